// GEMM fp32, asynchronous copies: a ring of stages is filled by `cp.async` several slices ahead, so that no register holds a
// word on its way and a slice costs one barrier. `a` is not transposed any more: a thread reads four steps of k of a row at
// once, which is as many reads as before, and the copies into the tile become 16 bytes wide as well. Rows of the tile are 20
// words apart: eight rows then start in eight different groups of four banks.
// lab: threads = 256
// lab: tile = 128x128
// lab: shared = 73728

constexpr int ROWS = 128, COLUMNS = 128, DEPTH = 16; // of a block's tile; of a slice
constexpr int THREADS = 256, STAGES = 4;
constexpr int GROUP = 8; // rows of tiles that blocks which run at the same time share
constexpr int A_PITCH = DEPTH + 4;
constexpr int A_WORDS = ROWS * A_PITCH, STAGE_WORDS = A_WORDS + DEPTH * COLUMNS;
// Eight warps, two down and four across, of 64 x 32 outputs; a thread has eight rows of two groups of four columns.
constexpr int WIDE = 32, QUADS = 2;

// Four words from `from` (only the first `count` exist; the others become zeros) to shared memory.
static __device__ __forceinline__ void copy4(unsigned to, const float* from, int count, bool aligned) {
    if (aligned) {
        int bytes = count >= 4 ? 16 : count > 0 ? count * 4 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + i * 4), "l"(i < count ? from + i : from), "r"(i < count ? 4 : 0) : "memory");
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    extern __shared__ __align__(16) float shared[];
    unsigned ring = (unsigned)__cvta_generic_to_shared(shared);
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;

    // Blocks that run at the same time take tiles of GROUP rows, so that they share slices of a and of b in L2.
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    int first_of_group = block / (GROUP * (int)gridDim.x) * GROUP;
    int in_group = block - first_of_group * (int)gridDim.x;
    int group_rows = min(GROUP, (int)gridDim.y - first_of_group);
    int first_row = (first_of_group + in_group % group_rows) * ROWS;
    int first_column = in_group / group_rows * COLUMNS;

    bool a_aligned = (size_t)a % 16 == 0 && k % 4 == 0;
    bool b_aligned = (size_t)b % 16 == 0 && n % 4 == 0;
    bool inside = a_aligned && b_aligned && first_row + ROWS <= m && first_column + COLUMNS <= n;

    // A thread's pieces of four words in a slice: of a, DEPTH / 4 threads lie along a row; of b, COLUMNS / 4.
    constexpr int A_STEP = THREADS / (DEPTH / 4), B_STEP = THREADS / (COLUMNS / 4);
    int a_row = thread / (DEPTH / 4), a_depth = thread % (DEPTH / 4) * 4;
    int b_depth = thread / (COLUMNS / 4), b_column = thread % (COLUMNS / 4) * 4;
    const float* a_from = a + (long long)(first_row + a_row) * k + a_depth;
    const float* b_from = b + (long long)b_depth * n + first_column + b_column;
    unsigned a_to = (a_row * A_PITCH + a_depth) * 4, b_to = (A_WORDS + b_depth * COLUMNS + b_column) * 4;

    int slices = (k + DEPTH - 1) / DEPTH;
    auto copy_slice = [&](int slice, int stage) {
        if (slice < slices) {
            unsigned to = ring + stage * (STAGE_WORDS * 4);
            const float* from_a = a_from + slice * DEPTH;
            const float* from_b = b_from + (long long)slice * DEPTH * n;
            if (inside && (slice + 1) * DEPTH <= k) {
#pragma unroll
                for (int i = 0; i < ROWS / A_STEP; ++i)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + a_to + i * (A_STEP * A_PITCH * 4)), "l"(from_a + (long long)i * A_STEP * k) : "memory");
#pragma unroll
                for (int i = 0; i < DEPTH / B_STEP; ++i)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + b_to + i * (B_STEP * COLUMNS * 4)), "l"(from_b + (long long)i * B_STEP * n) : "memory");
            } else {
                for (int i = 0; i < ROWS / A_STEP; ++i) {
                    int left = first_row + a_row + i * A_STEP < m ? k - slice * DEPTH - a_depth : 0;
                    copy4(to + a_to + i * (A_STEP * A_PITCH * 4), left > 0 ? from_a + (long long)i * A_STEP * k : a, left, a_aligned);
                }
                for (int i = 0; i < DEPTH / B_STEP; ++i) {
                    int left = slice * DEPTH + b_depth + i * B_STEP < k ? n - first_column - b_column : 0;
                    copy4(to + b_to + i * (B_STEP * COLUMNS * 4), left > 0 ? from_b + (long long)i * B_STEP * n : b, left, b_aligned);
                }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    int lane_row = lane / 4, lane_column = lane % 4 * 4;
    const float* a_read = shared + (warp / 4 * 64 + lane_row) * A_PITCH;
    const float* b_read = shared + A_WORDS + warp % 4 * WIDE + lane_column;

    float sums[8][QUADS * 4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < QUADS * 4; ++j) sums[i][j] = 0.0f;

    for (int stage = 0; stage < STAGES - 1; ++stage) copy_slice(stage, stage);
    int stage = 0, into = STAGES - 1;
    for (int slice = 0; slice < slices; ++slice) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads(); // this slice has come for everyone, and everyone has done with the one before it
        copy_slice(slice + STAGES - 1, into);
        const float* a_stage = a_read + stage * STAGE_WORDS;
        const float* b_stage = b_read + stage * STAGE_WORDS;
#pragma unroll
        for (int four = 0; four < DEPTH; four += 4) {
            float left[8][4];
#pragma unroll
            for (int i = 0; i < 8; ++i) *(float4*)left[i] = *(const float4*)(a_stage + i * 8 * A_PITCH + four);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                float right[QUADS * 4];
#pragma unroll
                for (int j = 0; j < QUADS; ++j) *(float4*)(right + j * 4) = *(const float4*)(b_stage + (four + step) * COLUMNS + j * 16);
#pragma unroll
                for (int i = 0; i < 8; ++i)
#pragma unroll
                    for (int j = 0; j < QUADS * 4; ++j) sums[i][j] += left[i][step] * right[j];
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        into = into + 1 == STAGES ? 0 : into + 1;
    }

    int row0 = first_row + warp / 4 * 64 + lane_row, column0 = first_column + warp % 4 * WIDE + lane_column;
    bool c_aligned = (size_t)c % 16 == 0 && n % 4 == 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = row0 + i * 8;
        if (row >= m) break;
        float* to = c + (long long)row * n + column0;
#pragma unroll
        for (int j = 0; j < QUADS; ++j) {
            if (c_aligned && column0 + j * 16 < n) {
                *(float4*)(to + j * 16) = *(const float4*)(sums[i] + j * 4);
            } else {
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    if (column0 + j * 16 + part < n) to[j * 16 + part] = sums[i][j * 4 + part];
            }
        }
    }
}
