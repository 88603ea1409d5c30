// GEMM fp32, warp tiles: the same work dealt out differently. A warp now has a compact 64 x 32 piece of the block's tile instead
// of a strip of 16 x 128, and reads 96 words a step instead of 144 for the same 2048 products.
// lab: threads = 256
// lab: tile = 128x128

constexpr int TILE = 128, DEPTH = 8;
constexpr int PITCH = TILE + 4; // words between rows of the tile of a: the four words of a piece go to four banks of their own

// Four neighbouring words of a row, of which `count` exist; zeros for the others.
static __device__ __forceinline__ float4 load4(const float* from, int count, bool aligned) {
    if (aligned && count >= 4) return *(const float4*)from;
    float4 words = {};
    if (count > 0) words.x = from[0];
    if (count > 1) words.y = from[1];
    if (count > 2) words.z = from[2];
    if (count > 3) words.w = from[3];
    return words;
}

extern "C" __global__ void __launch_bounds__(256, 2) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    __shared__ __align__(16) float a_tile[DEPTH][PITCH]; // k, rows of a: transposed
    __shared__ __align__(16) float b_tile[DEPTH][TILE];  // k, columns of b
    int thread = threadIdx.x;
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    // Vectors of 16 bytes, if all rows begin where such vectors may lie.
    bool a_aligned = (size_t)a % 16 == 0 && k % 4 == 0, b_aligned = (size_t)b % 16 == 0 && n % 4 == 0;

    // Of a slice a thread copies four words of a row of a and four of a row of b.
    int a_row = thread / 2, a_depth = thread % 2 * 4;
    int b_depth = thread / 32, b_column = thread % 32 * 4;
    // Eight warps, two down and four across, each with 64 x 32 outputs: its eight threads down and four across have two groups
    // of four rows and two groups of four columns.
    int lane = thread % 32, warp = thread / 32;
    int x = warp % 4 * 32 + lane % 4 * 4, y = warp / 4 * 64 + lane / 4 * 4;
    constexpr int FAR_X = 16, FAR_Y = 32; // from the first group to the second

    // Where these words begin, and how many there are from there to the edge (of b: in the rows that exist).
    const float* a_from = a + (long long)min(first_row + a_row, m - 1) * k + a_depth;
    const float* b_from = b + (long long)b_depth * n + first_column + b_column;
    int a_words = first_row + a_row < m ? k - a_depth : 0, b_words = n - first_column - b_column;
    auto load_a = [&](int slice) { return load4(a_from + slice, a_words - slice, a_aligned); };
    auto load_b = [&](int slice) { return load4(b_from + (long long)slice * n, slice + b_depth < k ? b_words : 0, b_aligned); };
    auto keep = [&](float4 of_a, float4 of_b) {
        a_tile[a_depth + 0][a_row] = of_a.x;
        a_tile[a_depth + 1][a_row] = of_a.y;
        a_tile[a_depth + 2][a_row] = of_a.z;
        a_tile[a_depth + 3][a_row] = of_a.w;
        *(float4*)&b_tile[b_depth][b_column] = of_b;
    };

    float sums[8][8] = {};
    auto multiply = [&]() {
#pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            float left[8], right[8];
            *(float4*)left = *(const float4*)&a_tile[step][y];
            *(float4*)(left + 4) = *(const float4*)&a_tile[step][y + FAR_Y];
            *(float4*)right = *(const float4*)&b_tile[step][x];
            *(float4*)(right + 4) = *(const float4*)&b_tile[step][x + FAR_X];
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] += left[i] * right[j];
        }
    };

    for (int slice = 0; slice < k; slice += DEPTH) {
        keep(load_a(slice), load_b(slice));
        __syncthreads();
        multiply();
        __syncthreads();
    }

    bool c_aligned = (size_t)c % 16 == 0 && n % 4 == 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = first_row + y + i / 4 * FAR_Y + i % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int column = first_column + x + half * FAR_X;
            float* to = c + (long long)row * n + column;
            if (row < m && column < n && c_aligned) {
                *(float4*)to = *(const float4*)(sums[i] + half * 4);
            } else {
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    if (row < m && column + part < n) to[part] = sums[i][half * 4 + part];
            }
        }
    }
}
