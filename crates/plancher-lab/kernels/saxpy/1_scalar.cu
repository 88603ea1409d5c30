// SAXPY, first version: one element a thread, the code that everybody writes first. 8 bytes are read and 4 written for two
// floating-point operations, so only memory counts; each thread asks for two 4-byte words and has nothing else to do while
// they come.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
