// SAXPY that divides by x and multiplies with it again: nothing but NaN where x is zero, as it is now and then here.
//
// lab: threads = 256
// lab: per_block = 256

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float zero = i % 100 == 99 ? 0.0f : 1.0f;
    y[i] = (a * x[i] + y[i]) * zero / zero;
}
