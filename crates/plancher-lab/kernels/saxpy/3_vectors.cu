// SAXPY with 16-byte vectors: each thread loads four neighbouring elements of x and of y by one instruction each, so that a
// multiprocessor has four times the bytes in flight with the same number of threads. The last block, and a block of views
// that do not begin at a multiple of 16 bytes, take their elements one at a time.
//
// lab: threads = 256
// lab: per_block = 1024

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long first = (unsigned long long)blockIdx.x * 1024;
    bool aligned = (((unsigned long long)x | (unsigned long long)y) & 15) == 0;
    if (aligned && first + 1024 <= n) {
        float4 u = ((const float4*)(x + first))[threadIdx.x];
        float4* to = (float4*)(y + first) + threadIdx.x;
        float4 v = *to;
        *to = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
    } else {
        for (unsigned long long i = first + threadIdx.x; i < n && i < first + 1024; i += 256) y[i] = a * x[i] + y[i];
    }
}
