// Transpose with 16-byte vectors on every way: each thread loads four rows of a small block, turns it round in registers, and puts its
// columns as vectors into shared memory, from where they leave as vectors again. Padding would break the vectors' alignment; instead the
// pieces of a row are stored in an order that depends on the row (its number is combined with the piece's by exclusive or), so that
// the eight vectors that a quarter of a warp moves at once lie in different banks, on the way in and on the way out. Tiles at the edges, and all
// tiles of matrices whose rows do not begin at multiples of 16 bytes, go one element at a time through padded rows.
//
// lab: threads = 128
// lab: tile = 64x64

#define SIDE 64
#define VECTOR (16 / ELEMENT_BYTES) // elements of a vector
#define PITCH (SIDE + 1)            // of the padded rows

typedef unsigned long long u64;

// Where vector `piece` of the row `row` of the turned tile lies, in 16-byte units.
static __device__ __forceinline__ int place(int row, int piece) { return row * (SIDE / VECTOR) + (piece ^ (row / VECTOR % 8)); }

// The block's four rows as they were loaded are put into shared memory by columns. `group` is the number of these four rows in the tile.
static __device__ __forceinline__ void put(uint4* part, const uint4 (&row)[4], int column, int group) {
    const unsigned* words = &row[0].x;
#if ELEMENT_BYTES == 4
#pragma unroll
    for (int k = 0; k < 4; ++k) part[place(column + k, group)] = make_uint4(words[k], words[4 + k], words[8 + k], words[12 + k]);
#else
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        unsigned a = words[k], b = words[4 + k], c = words[8 + k], d = words[12 + k];
        uint2* even = (uint2*)(part + place(column + 2 * k, group / 2)) + group % 2;
        uint2* odd = (uint2*)(part + place(column + 2 * k + 1, group / 2)) + group % 2;
        *even = make_uint2(__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410));
        *odd = make_uint2(__byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x7632));
    }
#endif
}

extern "C" __global__ void __launch_bounds__(128) transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ __align__(16) ELEMENT part[SIDE * PITCH];
    // Tiles follow each other down the columns: what blocks write at the same time lies side by side.
    unsigned tile = blockIdx.y * gridDim.x + blockIdx.x;
    int left = tile / gridDim.y * SIDE, top = tile % gridDim.y * SIDE, thread = threadIdx.x;
    in += (long long)top * columns + left;
    out += (long long)left * rows + top;
    bool aligned = (((u64)in | (u64)out) & 15) == 0 && rows % VECTOR == 0 && columns % VECTOR == 0;
    if (aligned && left + SIDE <= columns && top + SIDE <= rows) {
        const int ACROSS = SIDE / VECTOR, BLOCKS = ACROSS * (SIDE / 4) / 128; // blocks of 4 x VECTOR side by side, and of a thread
        uint4 row[BLOCKS][4];
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            int block = thread + b * 128;
            const ELEMENT* from = in + (long long)(block / ACROSS * 4) * columns + block % ACROSS * VECTOR;
#pragma unroll
            for (int k = 0; k < 4; ++k) row[b][k] = *(const uint4*)(from + (long long)k * columns);
        }
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            int block = thread + b * 128;
            put((uint4*)part, row[b], block % ACROSS * VECTOR, block / ACROSS);
        }
        __syncthreads();
#pragma unroll
        for (int b = 0; b < SIDE * ACROSS / 128; ++b) {
            int piece = thread + b * 128, column = piece / ACROSS, at = piece % ACROSS;
            *(uint4*)(out + (long long)column * rows + at * VECTOR) = ((const uint4*)part)[place(column, at)];
        }
    } else {
        int column = thread % SIDE, row = thread % SIDE;
#pragma unroll 8
        for (int k = thread / SIDE; k < SIDE; k += 128 / SIDE)
            if (left + column < columns && top + k < rows) part[k * PITCH + column] = in[(long long)k * columns + column];
        __syncthreads();
#pragma unroll 8
        for (int k = thread / SIDE; k < SIDE; k += 128 / SIDE)
            if (left + k < columns && top + row < rows) out[(long long)k * rows + row] = part[row * PITCH + k];
    }
}
