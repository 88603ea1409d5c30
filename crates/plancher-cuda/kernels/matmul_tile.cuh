// What the matrix product kernels share: how a slice of a tile gets into shared memory, and how results get out. This text
// is put in front of each of them.
//
// Options of all: K_SIZE, X_STRIDE, WEIGHT_STRIDE (elements), N_SIZE, OUT_STRIDE, TILE_M, TILE_N, TILE_K (64), WARP_M, WARP_N, STAGES,
// OUT_F32 (f32 results, else elements), ACCUMULATE (adds to f32 results).
// Needs: K_SIZE a multiple of TILE_K (rows are padded with zeros), OUT_STRIDE a multiple of 4: columns from N_SIZE to it
// become zeros.

#define WARPS_N (TILE_N / WARP_N)
#define WARPS ((TILE_M / WARP_M) * WARPS_N)
#define THREADS (WARPS * 32)
#define PIECES (TILE_K / 8)
#define SLICE_BYTES ((TILE_M + TILE_N) * TILE_K * 2)
#define SLICES (K_SIZE / TILE_K)
#define STEPS_M (WARP_M / 16)
#define STEPS_N (WARP_N / 8)

static_assert(TILE_K == 64, "the swizzle takes rows of eight pieces");
static_assert(K_SIZE % TILE_K == 0, "rows are padded");
static_assert(WARP_N % 16 == 0 && WARP_M % 16 == 0, "warps own whole matrix instructions");

// Byte offset of a 16-byte piece in a tile of rows.
static __device__ __forceinline__ u32 piece_offset(int row, int piece) {
    return (u32)(row * (TILE_K * 2) + ((piece ^ (row & 7)) << 4));
}

// Starts the copy of a tile's slice: ROWS rows from `first` on, zeros beyond `limit`.
template <int ROWS, long long STRIDE>
static __device__ __forceinline__ void copy_slice(u32 destination, const element* source, int first, int limit, int slice) {
#pragma unroll
    for (int i = 0; i < (ROWS * PIECES + THREADS - 1) / THREADS; ++i) {
        int index = i * THREADS + (int)threadIdx.x;
        if (ROWS * PIECES % THREADS != 0 && index >= ROWS * PIECES) break;
        int row = index / PIECES, piece = index % PIECES;
        bool valid = first + row < limit;
        // An address inside the matrix, also for rows that are not.
        const element* from = source + (long long)(valid ? first + row : first) * STRIDE + slice * TILE_K + piece * 8;
        copy_async_16(destination + piece_offset(row, piece), from, valid);
    }
}

// Writes a warp's results: its tile begins at row `first_row`, column `first_column`. Lane l holds of each 16 x 8 rows l / 4 and
// l / 4 + 8, columns 2 * (l % 4) and the next.
static __device__ __forceinline__ void store_results(const float (&sums)[STEPS_M][STEPS_N][4], void* out, int first_row,
                                                     int first_column, int m_size) {
    int lane = threadIdx.x % 32;
    int row = first_row + lane / 4;
#pragma unroll
    for (int m = 0; m < STEPS_M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int at = row + m * 16 + half * 8;
#if OUT_F32
            float2 values[STEPS_N];
#pragma unroll
            for (int n = 0; n < STEPS_N; ++n) values[n] = make_float2(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
            float* target = (float*)out + (long long)at * OUT_STRIDE + first_column + lane % 4 * 2;
            int columns = at < m_size ? OUT_STRIDE - (first_column + lane % 4 * 2) : 0;
#if ACCUMULATE
            // All loads of a row before its stores, which the compiler must take for stores to the same places.
            float2 before[STEPS_N];
#pragma unroll
            for (int n = 0; n < STEPS_N; ++n)
                before[n] = n * 8 < columns ? *(const float2*)(target + n * 8) : make_float2(0.0f, 0.0f);
#pragma unroll
            for (int n = 0; n < STEPS_N; ++n) values[n].x += before[n].x, values[n].y += before[n].y;
#endif
#pragma unroll
            for (int n = 0; n < STEPS_N; ++n)
                if (n * 8 < columns) *(float2*)(target + n * 8) = values[n];
#else
            // Two neighbouring tiles of eight columns: lanes of a group of four exchange, so that each stores 8 bytes
            // and the four together one whole sector.
#pragma unroll
            for (int n = 0; n < STEPS_N; n += 2) {
                u32 low = pack_elements(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
                u32 high = pack_elements(sums[m][n + 1][half * 2], sums[m][n + 1][half * 2 + 1]);
                int source = lane % 2 * 2; // within the group: pairs (0, 1) or (2, 3)
                int base = lane & ~3;
                u32 low0 = __shfl_sync(0xffffffffu, low, base + source), low1 = __shfl_sync(0xffffffffu, low, base + source + 1);
                u32 high0 = __shfl_sync(0xffffffffu, high, base + source), high1 = __shfl_sync(0xffffffffu, high, base + source + 1);
                bool second = lane % 4 >= 2;
                int column = first_column + n * 8 + lane % 4 * 4;
                if (at < m_size && column < OUT_STRIDE) {
                    *(uint2*)((element*)out + (long long)at * OUT_STRIDE + column) =
                        make_uint2(second ? high0 : low0, second ? high1 : low1);
                }
            }
#endif
        }
}
