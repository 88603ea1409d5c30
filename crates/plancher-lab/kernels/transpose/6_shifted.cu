// Transpose of any shape, elements of four bytes. With 8193 columns no two rows begin alike: vectors do not fit, and the rows of a tile
// begin and end inside lines of 128 bytes on both sides. So the bulk copy engine (Hopper and later) does both: it fetches the rows of
// a tile, each from the multiple of 16 bytes before its first element to the one behind its last, where they lie shifted as they
// do in memory; the tile is turned through registers; and the engine writes the rows of the output, 512 bytes at a time. It writes
// multiples of 16 bytes to multiples of 16 bytes. Therefore a row of the output begins with its first whole sector of 32 bytes and
// ends inside the next tile: seven rows more than the tile has are fetched, and no sector is written in two parts.
//
// lab: threads = 1024
// lab: tile = 128x128
// lab: shared = 72336
// lab: requires = sm_90

#define WIDE 128               // columns of a tile
#define HIGH 128               // elements of a row of the output that a tile writes
#define HALO 7                 // rows beyond, for a beginning inside a sector
#define PIECE 4                // elements of 16 bytes
#define PIECES (WIDE / PIECE + 1) // that a row may touch
#define WARPS 32

typedef unsigned long long u64;

static __device__ __forceinline__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void fetch(unsigned to, u64 from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// A copy that does not come ends the kernel.
static __device__ __forceinline__ void wait(unsigned barrier) {
    unsigned landed = 0;
#pragma unroll 1
    for (unsigned turn = 0; !landed; ++turn) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(landed) : "r"(barrier) : "memory");
        if (turn == 1u << 24) __trap();
    }
}

// Where the first 16 bytes of a row lie, in elements. Of 32 rows that begin in four different places of their 16 bytes, as rows with an
// odd number of columns do, one column lies in 32 banks.
static __device__ __forceinline__ int start(int row) { return (row * PIECES + row / PIECE) * PIECE; }

extern "C" __global__ void __launch_bounds__(1024) transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    extern __shared__ __align__(128) ELEMENT part[];
    __shared__ u64 landed;
    unsigned barrier = (unsigned)__cvta_generic_to_shared(&landed), memory = (unsigned)__cvta_generic_to_shared(part);
    // Tiles follow each other up the columns, from the last one on.
    unsigned tile = gridDim.x * gridDim.y - 1 - (blockIdx.y * gridDim.x + blockIdx.x);
    unsigned across = tile / gridDim.y;
    int top = tile % gridDim.y * HIGH, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    // The columns are shared out evenly: a tile of a few would cost as much as one of many.
    int left = (int)((u64)across * columns / gridDim.x), wide = (int)((u64)(across + 1) * columns / gridDim.x) - left, high = min(HIGH + HALO, rows - top);
    u64 begin = (u64)in, end = (u64)(in + (long long)rows * columns);
    in += (long long)top * columns + left;
    out += (long long)left * rows + top;
    if (thread == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(HIGH + HALO) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (thread < HIGH + HALO) {
        unsigned bytes = 0;
        u64 at = (u64)(in + (long long)thread * columns), first = at & ~15ull, behind = at + wide * ELEMENT_BYTES;
        // The array may begin or end inside 16 bytes: what it has of these is fetched one at a time.
        u64 from = first < begin ? first + 16 : first, whole = max(from, min((behind + 15) & ~15ull, end & ~15ull));
        unsigned to = memory + start(thread) * ELEMENT_BYTES + (unsigned)(from - first);
        if (thread < high) {
            bytes = (unsigned)(whole - from);
            auto one = [&](u64 address) { part[start(thread) + (int)(address - first) / ELEMENT_BYTES] = *(const ELEMENT*)address; };
            for (u64 address = at; address < min(from, behind); address += ELEMENT_BYTES) one(address);
            for (u64 address = max(whole, at); address < behind; address += ELEMENT_BYTES) one(address);
        }
        expect(barrier, bytes);
        if (bytes) fetch(to, from, bytes, barrier);
    }
    wait(barrier);
    __syncthreads();

    int shift = (int)((u64)in & 15) / ELEMENT_BYTES, drift = columns % PIECE; // of the first row, and from row to row
    auto place = [&](int row) { return start(row) + (shift + row * drift) % PIECE; };
    // Elements of a row of the output before its first whole sector: the tile before writes them.
    auto skipped = [&](int column) { return (int)((0 - (u64)(out + (long long)column * rows)) & 31) / ELEMENT_BYTES; };
    if (top == 0)
        for (int column = warp; column < wide; column += WARPS)
            if (lane < min(skipped(column), high)) out[(long long)column * rows + lane] = part[place(lane) + column];
    const int COLUMNS = WIDE / WARPS, LINES = HIGH / 32;
    const int STRIDE = (32 * PIECES + 32 / PIECE) * PIECE; // from a row to the 32nd after it, which begins alike
    ELEMENT kept[COLUMNS][LINES];
#pragma unroll
    for (int n = 0; n < COLUMNS; ++n) {
        int column = warp + n * WARPS;
        if (column >= wide) break;
        const ELEMENT* from = part + place(lane + skipped(column)) + column;
#pragma unroll
        for (int k = 0; k < LINES; ++k) kept[n][k] = from[k * STRIDE];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < COLUMNS; ++n) {
        int column = warp + n * WARPS;
        if (column >= wide) break;
#pragma unroll
        for (int k = 0; k < LINES; ++k) part[column * HIGH + k * 32 + lane] = kept[n][k];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // what threads wrote is read by the engine
    __syncthreads();
    if (thread < wide) {
        // Where the matrix ends, a row does, and perhaps inside 16 bytes.
        int count = min(HIGH, high - skipped(thread)), whole = max(count, 0) / PIECE * PIECE;
        ELEMENT* to = out + (long long)thread * rows + skipped(thread);
        if (whole > 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         ::"l"(to), "r"(memory + thread * HIGH * ELEMENT_BYTES), "r"(whole * ELEMENT_BYTES) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        for (int row = whole; row < count; ++row) to[row] = part[thread * HIGH + row];
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
