// A sum to which all threads of a block add at once, without atomics: most additions are lost.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ volatile float sum;
    if (threadIdx.x == 0) sum = 0.0f;
    __syncthreads();
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum = sum + x[i];
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
