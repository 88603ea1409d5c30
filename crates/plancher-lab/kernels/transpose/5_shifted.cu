// Transpose of any shape at full speed. With an odd number of columns or rows, rows begin at any element, and vectors are out of the question;
// single elements are enough as long as many are in flight and each warp's store covers whole sectors. So each row of the output is
// written from its first multiple of 32 bytes on, round the tile's end to its beginning. Elements of two bytes would take twice the
// instructions: they move as pairs, from the word boundary before the row's first element, and a row that begins in the middle of
// a word lies half a word further on in shared memory.
//
// lab: threads = 128
// lab: tile = 64x64

#define SIDE 64

typedef unsigned long long u64;

// Elements from an address to the next multiple of 32 bytes.
static __device__ __forceinline__ int to_sector(const ELEMENT* p) { return (int)((0 - (u64)p) & 31) / ELEMENT_BYTES; }

#if ELEMENT_BYTES == 4
#define PITCH (SIDE + 1)

static __device__ __forceinline__ void whole_tile(const ELEMENT* in, ELEMENT* out, int rows, int columns, ELEMENT* part) {
    int at = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
    const int STEP = 128 / SIDE, STEPS = SIDE / STEP, FLIGHT = 16;
    const ELEMENT* from = in + (long long)first * columns + at;
    for (int half = 0; half < STEPS; half += FLIGHT) {
        ELEMENT x[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; ++k, from += (long long)STEP * columns) x[k] = *from;
#pragma unroll
        for (int k = 0; k < FLIGHT; ++k) part[(first + (half + k) * STEP) * PITCH + at] = x[k];
    }
    __syncthreads();
    ELEMENT* to = out + (long long)first * rows;
#pragma unroll 8
    for (int k = first; k < SIDE; k += STEP, to += (long long)STEP * rows) {
        int row = (at + to_sector(to)) % SIDE;
        to[row] = part[row * PITCH + k];
    }
}
#else
#define PITCH (SIDE + 2)

static __device__ __forceinline__ void whole_tile(const ELEMENT* in, ELEMENT* out, int rows, int columns, ELEMENT* part) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int WARPS = 4, OWN = SIDE / WARPS;
    int odd_base = (int)((u64)in >> 1) & 1; // row `r` begins in the middle of a word if odd_base + r * columns is odd
    unsigned x[OWN];
#pragma unroll
    for (int k = 0; k < OWN; ++k) {
        int row = warp + k * WARPS;
        u64 from = (u64)(in + (long long)row * columns) & ~3ull;
        x[k] = ((const unsigned*)from)[lane];
    }
    int own_row = warp + lane % OWN * WARPS, own_odd = (odd_base + own_row * (columns & 1)) & 1;
    bool last = lane < OWN && own_odd; // such a row's words end one element before the tile does
    ELEMENT y = 0;
    if (last) y = in[(long long)own_row * columns + SIDE - 1];
#pragma unroll
    for (int k = 0; k < OWN; ++k) ((unsigned*)(part + (warp + k * WARPS) * PITCH))[lane] = x[k];
    if (last) part[own_row * PITCH + SIDE] = y;
    __syncthreads();
    // Half of the lanes take the second element of their pair first: so even and odd rows, and with them even and odd banks, are read at once.
    int swapped = lane / 16;
    unsigned select = swapped ? 0x1054 : 0x5410;
#pragma unroll 4
    for (int k = 0; k < OWN; ++k) {
        int column = warp + k * WARPS;
        ELEMENT* to = out + (long long)column * rows;
        int row = (2 * lane + to_sector(to)) % SIDE;
        int one = (row + swapped) % SIDE, two = (row + 1 - swapped) % SIDE;
        unsigned a = part[one * PITCH + ((odd_base + one * (columns & 1)) & 1) + column];
        unsigned b = part[two * PITCH + ((odd_base + two * (columns & 1)) & 1) + column];
        unsigned pair = __byte_perm(a, b, select);
        if (row + 1 < SIDE) {
            *(unsigned*)(to + row) = pair;
        } else { // the tile's last and first element
            to[row] = (ELEMENT)pair;
            to[0] = (ELEMENT)(pair >> 16);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(128) transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ __align__(16) ELEMENT part[SIDE * PITCH];
    unsigned tiles = (columns + SIDE - 1) / SIDE, tile = blockIdx.y * gridDim.x + blockIdx.x;
    int left = tile % tiles * SIDE, top = tile / tiles * SIDE;
    in += (long long)top * columns + left;
    out += (long long)left * rows + top;
    if (left + SIDE <= columns && top + SIDE <= rows) return whole_tile(in, out, rows, columns, part);
    int at = threadIdx.x % SIDE;
    for (int k = threadIdx.x / SIDE; k < SIDE; k += 128 / SIDE)
        if (left + at < columns && top + k < rows) part[k * PITCH + at] = in[(long long)k * columns + at];
    __syncthreads();
    for (int k = threadIdx.x / SIDE; k < SIDE; k += 128 / SIDE)
        if (left + k < columns && top + at < rows) out[(long long)k * rows + at] = part[at * PITCH + k];
}
