// Causal attention of a chunk of new positions over the paged KV cache, in which the chunk's own keys and values already
// are. Tiled, with a running softmax: no matrix of scores ever leaves the registers.
//
// One block handles Q_ROWS positions of one query head. Each warp owns ROW_TILES * 16 of them: their scores against a tile
// of KV_TILE positions, the running maximum and sum, and the output, all in registers. Keys and values come tile by tile
// through two stages of shared memory, copied in the background. The scores' register layout is that of the A operand
// of the second product, so probabilities never touch memory.
//
// Options: HEAD_DIM, N_HEADS, N_KV_HEADS, WINDOW (0: none), Q_STRIDE and OUT_STRIDE (elements of a row), WARPS, ROW_TILES,
// KV_TILE (a multiple of 32). Needs: HEAD_DIM a multiple of 8.

#define DIM ((HEAD_DIM + 15) / 16 * 16) // zeros beyond HEAD_DIM
#define PIECES (DIM / 8)
#define THREADS (WARPS * 32)
#define Q_ROWS (WARPS * ROW_TILES * 16)
#define KV_BLOCK 32 // positions of a block of the cache
#define TILE_BYTES (KV_TILE * DIM * 2)
#define GROUP (N_HEADS / N_KV_HEADS)
#define MINUS_INFINITY __int_as_float(0xff800000)

static_assert(HEAD_DIM % 8 == 0, "rows of whole 16-byte pieces");
static_assert(KV_TILE % KV_BLOCK == 0, "tiles of whole blocks");

// Byte offset of a 16-byte piece of a row. Rows that ldmatrix reads together must meet different banks: as many low bits
// of the piece as a row has factors of two are turned by the row.
#define SWIZZLE_BITS (PIECES % 8 == 0 ? 3 : PIECES % 4 == 0 ? 2 : PIECES % 2 == 0 ? 1 : 0)
static __device__ __forceinline__ int turn(int row) { return (row >> (3 - SWIZZLE_BITS)) & ((1 << SWIZZLE_BITS) - 1); }
static __device__ __forceinline__ u32 piece_offset(int row, int piece) {
    return (u32)((row * PIECES + (piece ^ turn(row))) * 16);
}

// A lane's address for ldmatrix of 16 rows and 16 columns: the same row in every step, pieces 2 * step and 2 * step + 1.
struct LaneAddress {
    u32 row;
    u32 piece;
    __device__ __forceinline__ LaneAddress(int row_of_lane, int piece_of_lane)
        : row(row_of_lane * PIECES * 16), piece((piece_of_lane ^ turn(row_of_lane)) * 16) {}
    // `rows` is a multiple of 16: it turns nothing.
    __device__ __forceinline__ u32 at(u32 tile, int rows, int step) const {
        return tile + row + (piece ^ (step * 32)) + rows * PIECES * 16;
    }
};

// Starts the copy of KV_TILE positions from `first` on: keys to `keys`, values TILE_BYTES behind; zeros from `length` on.
static __device__ __forceinline__ void copy_tile(u32 keys, const element* cache, const u32* block_table, int kv_head,
                                                 int first, int length) {
    const element* blocks[KV_TILE / KV_BLOCK];
#pragma unroll
    for (int b = 0; b < KV_TILE / KV_BLOCK; ++b) {
        // Blocks beyond the sequence's end have no entry in the table.
        u64 block = block_table[min(first / KV_BLOCK + b, (length - 1) / KV_BLOCK)];
        blocks[b] = cache + (block * N_KV_HEADS + kv_head) * (2 * KV_BLOCK * HEAD_DIM);
    }
#pragma unroll
    for (int b = 0; b < KV_TILE / KV_BLOCK; ++b)
#pragma unroll
        for (int i = 0; i < (KV_BLOCK * PIECES + THREADS - 1) / THREADS; ++i) {
            int index = i * THREADS + (int)threadIdx.x;
            if (KV_BLOCK * PIECES % THREADS != 0 && index >= KV_BLOCK * PIECES) break;
            int row = index / PIECES, piece = index % PIECES;
            bool inside = piece * 8 < HEAD_DIM;
            bool valid = first + b * KV_BLOCK + row < length && inside;
            const element* from = blocks[b] + row * HEAD_DIM + (inside ? piece * 8 : 0);
            u32 into = keys + piece_offset(b * KV_BLOCK + row, piece);
            copy_async_16(into, from, valid);
            copy_async_16(into + TILE_BYTES, from + KV_BLOCK * HEAD_DIM, valid);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_prefill(
    element* __restrict__ out,           // (chunk, OUT_STRIDE): row of a position, head after head; zeros beyond
    const element* __restrict__ queries, // (chunk, Q_STRIDE): the same, rotated
    const element* __restrict__ cache,   // this layer's (blocks, N_KV_HEADS, 2, KV_BLOCK, HEAD_DIM)
    const u32* __restrict__ block_table, // this sequence's
    int start,                           // position of the chunk's first row
    int chunk,                           // rows
    float scale) {                       // on the scores, log2(e) included
    extern __shared__ __align__(128) unsigned char shared[];
    u32 query_tile = shared_address(shared);
    u32 ring = query_tile + Q_ROWS * DIM * 2;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head = blockIdx.x, kv_head = head / GROUP;
    // The longest rows first, so that the last blocks to run are short.
    int first_row = ((int)gridDim.y - 1 - (int)blockIdx.y) * Q_ROWS;
    int length = start + chunk;
    int last_row = min(first_row + Q_ROWS, chunk) - 1;
    int end = start + last_row + 1; // positions that any row of the block sees
    int begin = 0;
#if WINDOW > 0
    begin = max(0, start + first_row + 1 - WINDOW) / KV_TILE * KV_TILE;
#endif

#pragma unroll
    for (int i = 0; i < (Q_ROWS * PIECES + THREADS - 1) / THREADS; ++i) {
        int index = i * THREADS + (int)threadIdx.x;
        if (Q_ROWS * PIECES % THREADS != 0 && index >= Q_ROWS * PIECES) break;
        int row = index / PIECES, piece = index % PIECES;
        bool valid = first_row + row < chunk && piece * 8 < HEAD_DIM;
        const element* from =
            queries + (u64)(valid ? first_row + row : first_row) * Q_STRIDE + head * HEAD_DIM + (valid ? piece * 8 : 0);
        copy_async_16(query_tile + piece_offset(row, piece), from, valid);
    }
    copy_tile(ring, cache, block_table, kv_head, begin, length);
    copy_async_commit();

    float outputs[ROW_TILES][DIM / 8][4];
    float maxima[ROW_TILES][2], sums[ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
        for (int n = 0; n < DIM / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) outputs[m][n][i] = 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) maxima[m][half] = MINUS_INFINITY, sums[m][half] = 0.0f;
    }
    int warp_row = warp * ROW_TILES * 16;
    int row_position = start + first_row + warp_row + lane / 4; // of row tile 0, half 0

    LaneAddress query_lane(warp_row + lane % 16, lane / 16);
    LaneAddress key_lane(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    LaneAddress value_lane(lane % 16, lane / 16);

    int stage = 0;
    for (int tile = begin; tile < end; tile += KV_TILE) {
        copy_async_wait<0>();
        __syncthreads();
        if (tile + KV_TILE < end) {
            copy_tile(ring + (stage ^ 1) * 2 * TILE_BYTES, cache, block_table, kv_head, tile + KV_TILE, length);
            copy_async_commit();
        }
        u32 keys = ring + stage * 2 * TILE_BYTES, values = keys + TILE_BYTES;
        stage ^= 1;
        // Causal: none of this warp's rows sees the tile.
        if (tile > start + first_row + warp_row + ROW_TILES * 16 - 1) continue;

        float scores[ROW_TILES][KV_TILE / 8][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int n = 0; n < KV_TILE / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < DIM / 16; ++step) {
            u32 a[ROW_TILES][4];
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
                load_matrices(a[m], query_lane.at(query_tile, m * 16, step));
#pragma unroll
            for (int n = 0; n < KV_TILE / 16; ++n) {
                u32 b[4];
                load_matrices(b, key_lane.at(keys, n * 16, step));
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) {
                    multiply_accumulate(scores[m][2 * n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                    multiply_accumulate(scores[m][2 * n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
                }
            }
        }

        bool masked = tile + KV_TILE > start + first_row + warp_row + 1;
#if WINDOW > 0
        masked = masked || tile <= start + first_row + warp_row + ROW_TILES * 16 - 1 - WINDOW;
#endif
        if (masked) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
                for (int n = 0; n < KV_TILE / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        int position = tile + n * 8 + lane % 4 * 2 + i % 2;
                        int row = row_position + m * 16 + i / 2 * 8;
                        bool seen = position <= row;
#if WINDOW > 0
                        seen = seen && position > row - WINDOW;
#endif
                        if (!seen) scores[m][n][i] = MINUS_INFINITY;
                    }
        }

#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float maximum = maxima[m][half];
#pragma unroll
                for (int n = 0; n < KV_TILE / 8; ++n)
                    maximum = fmaxf(maximum, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
                maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
                maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
                // A row that has seen nothing yet keeps zeros: its scores must not become infinity minus infinity.
                float base = maximum == MINUS_INFINITY ? 0.0f : maximum * scale;
                float correction = exponential2(maxima[m][half] * scale - base);
                maxima[m][half] = maximum;
                float sum = 0.0f;
#pragma unroll
                for (int n = 0; n < KV_TILE / 8; ++n)
#pragma unroll
                    for (int i = half * 2; i < half * 2 + 2; ++i) {
                        scores[m][n][i] = exponential2(fmaf(scores[m][n][i], scale, -base));
                        sum += scores[m][n][i];
                    }
                sums[m][half] = sums[m][half] * correction + sum;
#pragma unroll
                for (int n = 0; n < DIM / 8; ++n)
#pragma unroll
                    for (int i = half * 2; i < half * 2 + 2; ++i) outputs[m][n][i] *= correction;
            }

#pragma unroll
        for (int step = 0; step < KV_TILE / 16; ++step) {
            u32 a[ROW_TILES][4];
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m) {
                a[m][0] = pack_elements(scores[m][2 * step][0], scores[m][2 * step][1]);
                a[m][1] = pack_elements(scores[m][2 * step][2], scores[m][2 * step][3]);
                a[m][2] = pack_elements(scores[m][2 * step + 1][0], scores[m][2 * step + 1][1]);
                a[m][3] = pack_elements(scores[m][2 * step + 1][2], scores[m][2 * step + 1][3]);
            }
#pragma unroll
            for (int n = 0; n < DIM / 16; ++n) {
                u32 b[4];
                load_matrices_transposed(b, value_lane.at(values, step * 16, n));
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) {
                    multiply_accumulate(outputs[m][2 * n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                    multiply_accumulate(outputs[m][2 * n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
                }
            }
        }
    }

#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = sums[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float factor = 1.0f / sum;
            int row = first_row + warp_row + m * 16 + half * 8 + lane / 4;
            if (row >= chunk) continue;
            element* target = out + (u64)row * OUT_STRIDE + head * HEAD_DIM;
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 8; ++n)
                *(u32*)(target + n * 8 + lane % 4 * 2) =
                    pack_elements(outputs[m][n][half * 2] * factor, outputs[m][n][half * 2 + 1] * factor);
            if (N_HEADS * HEAD_DIM < OUT_STRIDE && head == N_HEADS - 1)
                for (int column = N_HEADS * HEAD_DIM + lane % 4; column < OUT_STRIDE; column += 4)
                    out[(u64)row * OUT_STRIDE + column] = 0;
        }
}
