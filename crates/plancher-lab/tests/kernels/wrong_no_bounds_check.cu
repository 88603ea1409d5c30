// SAXPY that trusts n to be a multiple of the block.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = a * x[i] + y[i];
}
