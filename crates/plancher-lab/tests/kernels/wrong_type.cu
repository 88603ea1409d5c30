// SAXPY in double precision: its parameters are not those of the step.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(double a, const double* x, double* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
