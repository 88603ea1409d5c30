// GEMM fp32, a register tile in one dimension: a block of 64 x 64 outputs, a slice only 8 deep, and each thread adds up a
// column of eight outputs. A word of `b` now serves eight products, and the block fetches half as much for each product as the
// 32 x 32 tile did.
// lab: threads = 512
// lab: tile = 64x64

constexpr int TILE = 64, DEPTH = 8;
constexpr int OUTPUTS = 8; // of a thread, one below the other

extern "C" __global__ void __launch_bounds__(512) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    __shared__ __align__(16) float a_tile[TILE][DEPTH];
    __shared__ __align__(16) float b_tile[DEPTH][TILE];
    int thread = threadIdx.x, x = thread % TILE, y = thread / TILE;
    int first_row = blockIdx.y * TILE, column = blockIdx.x * TILE + x;
    int a_row = first_row + thread / DEPTH, a_depth = thread % DEPTH;

    float sums[OUTPUTS] = {};
    for (int slice = 0; slice < k; slice += DEPTH) {
        // 512 threads, 512 words of each tile. Beyond an edge the tiles hold zeros, which add nothing.
        a_tile[thread / DEPTH][a_depth] = a_row < m && slice + a_depth < k ? a[(long long)a_row * k + slice + a_depth] : 0.0f;
        b_tile[y][x] = slice + y < k && column < n ? b[(long long)(slice + y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            float right = b_tile[i][x];
#pragma unroll
            for (int j = 0; j < OUTPUTS; ++j) sums[j] += a_tile[y * OUTPUTS + j][i] * right;
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) {
        int row = first_row + y * OUTPUTS + j;
        if (row < m && column < n) c[(long long)row * n + column] = sums[j];
    }
}
