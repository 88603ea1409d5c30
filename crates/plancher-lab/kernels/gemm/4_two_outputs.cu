// GEMM, two outputs a thread: the tile of the textbook version, but half the threads, each with two rows of one column. The
// word of `b` that a thread reads from shared memory now serves two products instead of one.
// lab: threads = 32x16
// lab: tile = 32x32

constexpr int TILE = 32;    // outputs of a block in each direction, and the depth of a slice
constexpr int OUTPUTS = 2;  // of a thread: rows `ROWS` apart in one column
constexpr int ROWS = TILE / OUTPUTS;

extern "C" __global__ void __launch_bounds__(TILE * ROWS) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE]; // rows of a, k
    __shared__ float b_tile[TILE][TILE]; // k, columns of b
    int x = threadIdx.x, y = threadIdx.y;
    int column = blockIdx.x * TILE + x;
    int first_row = blockIdx.y * TILE + y;

    float sums[OUTPUTS] = {};
    for (int slice = 0; slice < k; slice += TILE) {
        // Beyond an edge the tiles hold zeros, which add nothing.
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) {
            int row = first_row + i * ROWS, depth = slice + y + i * ROWS;
            a_tile[y + i * ROWS][x] = row < m && slice + x < k ? a[(long long)row * k + slice + x] : 0.0f;
            b_tile[y + i * ROWS][x] = depth < k && column < n ? b[(long long)depth * n + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) {
            float right = b_tile[i][x];
#pragma unroll
            for (int j = 0; j < OUTPUTS; ++j) sums[j] += a_tile[y + j * ROWS][i] * right;
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
        int row = first_row + i * ROWS;
        if (row < m && column < n) c[(long long)row * n + column] = sums[i];
    }
}
