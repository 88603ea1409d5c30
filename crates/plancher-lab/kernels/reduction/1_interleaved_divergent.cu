// Sum of an array, first version: a block brings one element a thread into shared memory and adds pairs at distance 1, 2, 4, ...
// Thread t takes part in a step only if t is a multiple of twice the distance: up to distance 16 all eight warps are busy, each with half
// as many lanes as in the step before, and from then on, with one lane each, half of the warps drop out in every step.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x;
    unsigned long long i = (unsigned long long)blockIdx.x * 256 + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned distance = 1; distance < 256; distance *= 2) {
        if (t % (2 * distance) == 0) part[t] += part[t + distance];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
