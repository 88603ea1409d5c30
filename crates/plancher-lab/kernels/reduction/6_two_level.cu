// Sum of an array in two levels: a grid that just fills the multiprocessors walks through the array by 16-byte vectors, eight in flight a
// thread, each thread with sums of its own in registers; only at the end a block adds its threads' sums and writes one word. A second
// launch adds the few hundred words of the blocks. Views that do not begin at a multiple of 16 bytes begin with a few single elements.
//
// lab: threads = 256
// lab: blocks_per_sm = 4

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
    u64 threads = (u64)gridDim.x * 256, thread = (u64)blockIdx.x * 256 + threadIdx.x;
    u64 head = (16 - ((u64)x & 15)) % 16 / 4; // elements before the first multiple of 16 bytes
    if (head > n) head = n;
    const float4* body = (const float4*)(x + head);
    u64 vectors = (n - head) / 4, tiles = vectors / (256 * VECTORS), tail = head + 4 * vectors;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const float4* from = body + tile * (256 * VECTORS) + threadIdx.x;
        float4 v[VECTORS];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) v[k] = __ldcs(from + k * 256);
        sum = add(sum, tree(v));
    }
    float rest = 0.0f;
    for (u64 i = tiles * (256 * VECTORS) + thread; i < vectors; i += threads) {
        float4 v = body[i];
        rest += (v.x + v.y) + (v.z + v.w);
    }
    if (thread < head) rest += x[thread];
    if (thread < n - tail) rest += x[tail + thread];
    rest = sum_of_warp(rest + ((sum.x + sum.y) + (sum.z + sum.w)));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = rest;
    __syncthreads();
    if (threadIdx.x < 32) {
        rest = sum_of_warp(threadIdx.x < 8 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = rest;
    }
}
