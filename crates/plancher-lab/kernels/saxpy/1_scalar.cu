// SAXPY, one element a thread: y <- a x + y, with as many threads as there are elements.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
