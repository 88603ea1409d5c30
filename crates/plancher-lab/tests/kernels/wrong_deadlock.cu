// SAXPY whose threads wait for a word that nobody sets.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    while (ready == 0) {}
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
