// A sum: each thread its own, then a tree in shared memory.
//
// lab: threads = 256
// lab: blocks_per_sm = 8

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ float partial[256];
    float sum = 0.0f;
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum += x[i];
    partial[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}
