// Sum of an array whose result depends on the numbers alone: the same bits on a card with 20 multiprocessors and on one with 132, and for
// a view at any address. Every sum is taken in an order that the index fixes: a block has 32,768 elements, a thread the same 128 of them,
// added in the same order whether they come as vectors or one at a time. A grid that fits the card, as in the two-level version, would
// change the order with the card.
//
// lab: threads = 256
// lab: per_block = 32768

#define VECTORS 8

typedef unsigned long long u64;

static __device__ __forceinline__ float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Adds the vectors as a tree.
static __device__ __forceinline__ float4 tree(float4 (&v)[VECTORS]) {
#pragma unroll
    for (int half = VECTORS / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; ++k) v[k] = add(v[k], v[k + half]);
    return v[0];
}

static __device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(0xffffffffu, x, distance);
    return x;
}

extern "C" __global__ void __launch_bounds__(256, 4) reduce(const float* x, float* sums, u64 n) {
    __shared__ float part[8];
    u64 first = (u64)blockIdx.x * 32768;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (((u64)x & 15) == 0 && first + 32768 <= n) {
        const float4* from = (const float4*)(x + first) + threadIdx.x;
#pragma unroll 1
        for (int round = 0; round < 32 / VECTORS; ++round, from += 256 * VECTORS) {
            float4 v[VECTORS];
#pragma unroll
            for (int k = 0; k < VECTORS; ++k) v[k] = __ldcs(from + k * 256);
            sum = add(sum, tree(v));
        }
    } else {
        u64 i = first + 4 * threadIdx.x;
#pragma unroll 1
        for (int round = 0; round < 32 / VECTORS; ++round) {
            float4 v[VECTORS];
#pragma unroll
            for (int k = 0; k < VECTORS; ++k, i += 1024) {
                v[k].x = i < n ? x[i] : 0.0f;
                v[k].y = i + 1 < n ? x[i + 1] : 0.0f;
                v[k].z = i + 2 < n ? x[i + 2] : 0.0f;
                v[k].w = i + 3 < n ? x[i + 3] : 0.0f;
            }
            sum = add(sum, tree(v));
        }
    }
    float total = sum_of_warp((sum.x + sum.y) + (sum.z + sum.w));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = sum_of_warp(threadIdx.x < 8 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = total;
    }
}
