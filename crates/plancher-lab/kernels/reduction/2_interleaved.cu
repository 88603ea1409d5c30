// Sum of an array with the same pairs as before, dealt to the first threads of the block: lanes of a warp now do the same, and whole
// warps drop out, until at distance 8 half of one is left. The price: neighbouring threads work at a stride of twice the distance, so
// that up to eight of them meet in one bank of the shared memory (32 lanes at a stride of 8 words, 16 at 16, 8 at 32).
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
        unsigned at = 2 * distance * t;
        if (at < 256) part[at] += part[at + distance];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
