// SAXPY as a first attempt would have it: few blocks, one element at a time.
//
// lab: threads = 128
// lab: blocks_per_sm = 4

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}
