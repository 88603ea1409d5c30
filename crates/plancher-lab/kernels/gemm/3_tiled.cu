// GEMM, the textbook tile: a block copies a 32 x 32 piece of `a` and of `b` into shared memory, and every thread adds up one
// output from them. Each word that comes from far away is now used 32 times, but every product still costs a read of `b`
// and a share of a read of `a` in shared memory, and that is what it ends up waiting for.
// lab: threads = 32x32
// lab: tile = 32x32

constexpr int TILE = 32; // outputs of a block in each direction, and the depth of a slice

extern "C" __global__ void __launch_bounds__(TILE * TILE) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE]; // rows of a, k
    __shared__ float b_tile[TILE][TILE]; // k, columns of b
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;

    float sum = 0.0f;
    for (int slice = 0; slice < k; slice += TILE) {
        // Beyond an edge the tiles hold zeros, which add nothing.
        a_tile[y][x] = row < m && slice + x < k ? a[(long long)row * k + slice + x] : 0.0f;
        b_tile[y][x] = slice + y < k && column < n ? b[(long long)(slice + y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads();
    }
    if (row < m && column < n) c[(long long)row * n + column] = sum;
}
