// Sum of an array with pairs at distance 128, 64, 32, ...: the active threads are the first ones and touch neighbouring words, so
// that there is neither divergence nor a bank conflict. Half of the threads still do nothing but load.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x;
    unsigned long long i = (unsigned long long)blockIdx.x * 256 + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned distance = 128; distance > 0; distance /= 2) {
        if (t < distance) part[t] += part[t + distance];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
