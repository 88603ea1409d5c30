// SAXPY that leaves out the last element.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) y[i] = a * x[i] + y[i];
}
