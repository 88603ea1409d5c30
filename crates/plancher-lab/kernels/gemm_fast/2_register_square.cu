// GEMM fp32, a register tile in two dimensions: a block of 128 x 128 outputs, each thread a square of 8 x 8. Sixteen words from
// shared memory now feed 64 products. The layout is still the plain one, and that shows: the reads of a warp hit the same
// banks, and all copies move one word a thread.
// lab: threads = 256
// lab: tile = 128x128

constexpr int TILE = 128, DEPTH = 8;
constexpr int SQUARE = 8; // outputs of a thread in each direction

extern "C" __global__ void __launch_bounds__(256, 2) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    __shared__ __align__(16) float a_tile[TILE][DEPTH];
    __shared__ __align__(16) float b_tile[DEPTH][TILE];
    int thread = threadIdx.x, x = thread % 16 * SQUARE, y = thread / 16 * SQUARE;
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;

    float sums[SQUARE][SQUARE] = {};
    for (int slice = 0; slice < k; slice += DEPTH) {
        // Beyond an edge the tiles hold zeros, which add nothing.
#pragma unroll
        for (int i = 0; i < TILE * DEPTH / 256; ++i) {
            int row = first_row + thread / DEPTH + i * (256 / DEPTH), depth = slice + thread % DEPTH;
            a_tile[thread / DEPTH + i * (256 / DEPTH)][thread % DEPTH] = row < m && depth < k ? a[(long long)row * k + depth] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < TILE * DEPTH / 256; ++i) {
            int depth = slice + thread / TILE + i * (256 / TILE), column = first_column + thread % TILE;
            b_tile[thread / TILE + i * (256 / TILE)][thread % TILE] = depth < k && column < n ? b[(long long)depth * n + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            float left[SQUARE], right[SQUARE];
#pragma unroll
            for (int i = 0; i < SQUARE; ++i) left[i] = a_tile[y + i][step];
#pragma unroll
            for (int j = 0; j < SQUARE; ++j) right[j] = b_tile[step][x + j];
#pragma unroll
            for (int i = 0; i < SQUARE; ++i)
#pragma unroll
                for (int j = 0; j < SQUARE; ++j) sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < SQUARE; ++i) {
        int row = first_row + y + i;
#pragma unroll
        for (int j = 0; j < SQUARE; ++j) {
            int column = first_column + x + j;
            if (row < m && column < n) c[(long long)row * n + column] = sums[i][j];
        }
    }
}
