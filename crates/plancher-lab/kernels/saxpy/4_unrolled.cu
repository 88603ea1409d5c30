// SAXPY with two independent vectors of each array a thread: all four loads are started before the first sum, so that half the
// threads keep as many bytes in flight. Blocks stay small, 4 KB of each array: what reads and writes at once goes faster through
// many short runs than through long runs of loads and then of stores.
//
// lab: threads = 128
// lab: per_block = 1024

#define VECTORS 2

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    const unsigned long long piece = 128 * 4 * VECTORS;
    unsigned long long first = blockIdx.x * piece;
    bool aligned = (((unsigned long long)x | (unsigned long long)y) & 15) == 0;
    if (aligned && first + piece <= n) {
        const float4* from = (const float4*)(x + first) + threadIdx.x;
        float4* to = (float4*)(y + first) + threadIdx.x;
        float4 u[VECTORS], v[VECTORS];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            u[k] = from[k * 128];
            v[k] = to[k * 128];
        }
#pragma unroll
        for (int k = 0; k < VECTORS; ++k)
            to[k * 128] = make_float4(a * u[k].x + v[k].x, a * u[k].y + v[k].y, a * u[k].z + v[k].z, a * u[k].w + v[k].w);
    } else {
        for (unsigned long long i = first + threadIdx.x; i < n && i < first + piece; i += 128) y[i] = a * x[i] + y[i];
    }
}
