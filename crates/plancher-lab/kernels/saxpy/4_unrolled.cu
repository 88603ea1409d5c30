// SAXPY with several independent vectors a thread: all loads of a thread are started before the first of them is used, so that
// fewer threads keep as many bytes in flight. Blocks are small pieces of the arrays, not a persistent grid: what reads and
// writes at once goes faster through many short runs than through long runs of loads and then of stores.
//
// lab: threads = 256
// lab: per_block = 2048

#define VECTORS 2

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    const unsigned long long piece = 256 * 4 * VECTORS;
    unsigned long long first = blockIdx.x * piece;
    bool aligned = (((unsigned long long)x | (unsigned long long)y) & 15) == 0;
    if (aligned && first + piece <= n) {
        const float4* from = (const float4*)(x + first) + threadIdx.x;
        float4* to = (float4*)(y + first) + threadIdx.x;
        float4 u[VECTORS], v[VECTORS];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            u[k] = __ldcs(from + k * 256);
            v[k] = __ldcs(to + k * 256);
        }
#pragma unroll
        for (int k = 0; k < VECTORS; ++k)
            __stcs(to + k * 256, make_float4(a * u[k].x + v[k].x, a * u[k].y + v[k].y, a * u[k].z + v[k].z, a * u[k].w + v[k].w));
    } else {
        for (unsigned long long i = first + threadIdx.x; i < n && i < first + piece; i += 256) y[i] = a * x[i] + y[i];
    }
}
