// GEMM fp32, with an eye on the banks of the register file. An FMA reads three registers; a scheduler fetches one a clock from
// each of two banks, those with even and those with odd numbers, unless it still holds the one that the instruction before
// named. So the products of a step are walked through like a field under the plough: at the end of a row the next one begins
// in the same column, and one of the two factors is always held. The sums must then lie in the other bank than the factor
// that changes; the compiler sees to it if nothing ties them to places, as 16-byte stores would. `a` is transposed again, word
// by word on its way, so that the factors of one step, not of four, wait in registers, and the next step's beside them.
// lab: threads = 256
// lab: tile = 128x128
// lab: shared = 66560

constexpr int ROWS = 128, COLUMNS = 128, DEPTH = 16; // of a block's tile; of a slice
constexpr int THREADS = 256, STAGES = 4;
constexpr int GROUP = 8; // rows of tiles that blocks which run at the same time share
constexpr int A_PITCH = ROWS + 4; // words between rows of the transposed tile of a: eight steps of four rows are 32 banks
constexpr int A_WORDS = DEPTH * A_PITCH, STAGE_WORDS = A_WORDS + DEPTH * COLUMNS;
// Eight warps, two down and four across, of 64 x 32 outputs; a thread has two groups of four rows and two of four columns.
constexpr int WIDE = 32, QUADS = 2;

static __device__ __forceinline__ void copy1(unsigned to, const float* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
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

    bool b_aligned = (size_t)b % 16 == 0 && n % 4 == 0;
    bool inside = b_aligned && first_row + ROWS <= m && first_column + COLUMNS <= n;

    // Of a, a thread copies single words, so that they can be transposed: eight steps of 32 rows at a time. Of b, four words.
    constexpr int B_STEP = THREADS / (COLUMNS / 4);
    int a_row = thread / 8, a_depth = thread % 8;
    int b_depth = thread / (COLUMNS / 4), b_column = thread % (COLUMNS / 4) * 4;
    const float* a_from = a + (long long)(first_row + a_row) * k + a_depth;
    const float* b_from = b + (long long)b_depth * n + first_column + b_column;
    unsigned a_to = ring + (a_depth * A_PITCH + a_row) * 4, b_to = ring + (A_WORDS + b_depth * COLUMNS + b_column) * 4;
    long long a_step = (long long)32 * k, b_step = (long long)B_STEP * n;

    int slices = (k + DEPTH - 1) / DEPTH;
    auto copy_slice = [&](int slice, unsigned offset) {
        if (slice < slices) {
            const float* from_a = a_from + slice * DEPTH;
            const float* from_b = b_from + (long long)slice * DEPTH * n;
            if (inside && (slice + 1) * DEPTH <= k) {
#pragma unroll
                for (int i = 0; i < ROWS / 32; ++i)
#pragma unroll
                    for (int j = 0; j < DEPTH / 8; ++j)
                        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(a_to + offset + (j * 8 * A_PITCH + i * 32) * 4), "l"(from_a + i * a_step + j * 8) : "memory");
#pragma unroll
                for (int i = 0; i < DEPTH / B_STEP; ++i)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(b_to + offset + i * (B_STEP * COLUMNS * 4)), "l"(from_b + i * b_step) : "memory");
            } else {
#pragma unroll 1
                for (int i = 0; i < ROWS / 32; ++i)
#pragma unroll 1
                    for (int j = 0; j < DEPTH / 8; ++j) {
                        bool there = first_row + a_row + i * 32 < m && slice * DEPTH + a_depth + j * 8 < k;
                        copy1(a_to + offset + (j * 8 * A_PITCH + i * 32) * 4, there ? from_a + i * a_step + j * 8 : a, there);
                    }
#pragma unroll 1
                for (int i = 0; i < DEPTH / B_STEP; ++i)
#pragma unroll 1
                    for (int j = 0; j < 4; ++j) {
                        bool there = slice * DEPTH + b_depth + i * B_STEP < k && first_column + b_column + j < n;
                        copy1(b_to + offset + (i * B_STEP * COLUMNS + j) * 4, there ? from_b + i * b_step + j : b, there);
                    }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    int lane_row = lane / 4 * 4, lane_column = lane % 4 * 4;
    const float* a_read = shared + warp / 4 * 64 + lane_row;
    const float* b_read = shared + A_WORDS + warp % 4 * WIDE + lane_column;

    float sums[8][QUADS * 4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < QUADS * 4; ++j) sums[i][j] = 0.0f;
    float left[2][8], right[2][QUADS * 4];
    auto read = [&](int into, const float* from_a, const float* from_b) {
#pragma unroll
        for (int i = 0; i < 2; ++i) *(float4*)(left[into] + i * 4) = *(const float4*)(from_a + i * 32);
#pragma unroll
        for (int j = 0; j < QUADS; ++j) *(float4*)(right[into] + j * 4) = *(const float4*)(from_b + j * 16);
    };

    for (int stage = 0; stage < STAGES - 1; ++stage) copy_slice(stage, stage * (STAGE_WORDS * 4));
    int stage = 0, into = STAGES - 1;
    if (slices > 0) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        read(0, a_read, b_read);
    }
    for (int slice = 0; slice < slices; ++slice) {
        const float* a_stage = a_read + stage * STAGE_WORDS;
        const float* b_stage = b_read + stage * STAGE_WORDS;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            if (step == 0) {
                copy_slice(slice + STAGES - 1, into * (STAGE_WORDS * 4));
                into = into + 1 == STAGES ? 0 : into + 1;
            }
            if (step == DEPTH - 1) {
                // The next slice has come for everyone, and everyone has read this one.
                asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
                __syncthreads();
                read((step + 1) % 2, a_read + stage * STAGE_WORDS, b_read + stage * STAGE_WORDS);
            } else {
                read((step + 1) % 2, a_stage + (step + 1) * A_PITCH, b_stage + (step + 1) * COLUMNS);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int turn = 0; turn < QUADS * 4; ++turn) {
                    int j = i % 2 ? QUADS * 4 - 1 - turn : turn; // back and forth
                    sums[i][j] += left[step % 2][i] * right[step % 2][j];
                }
        }
    }

    int row0 = first_row + warp / 4 * 64 + lane_row, column0 = first_column + warp % 4 * WIDE + lane_column;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = row0 + i / 4 * 32 + i % 4;
        if (row >= m) continue;
        float* to = c + (long long)row * n + column0;
#pragma unroll
        for (int j = 0; j < QUADS * 4; ++j)
            if (column0 + j / 4 * 16 + j % 4 < n) to[j / 4 * 16 + j % 4] = sums[i][j];
    }
}
