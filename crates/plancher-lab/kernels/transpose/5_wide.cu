// Transpose with vectors in swizzled pieces, in tiles of 128 x 128 for 256 threads: rows of a tile are 256 bytes in bf16, where the 128 of
// the smaller tiles are too short. (In f32 the smaller tiles have 256 bytes already.)
//
// lab: threads = 256
// lab: tile = 128x128

#define SIDE 128
#define VECTOR (16 / ELEMENT_BYTES) // elements of a vector
#define PITCH (SIDE + 1)            // of the padded rows

typedef unsigned long long u64;

// Where vector `piece` of the row `row` of the turned tile lies, in 16-byte units.
static __device__ __forceinline__ int place(int row, int piece) { return row * (SIDE / VECTOR) + (piece ^ (row / VECTOR % 8)); }

// Whether the halves of a row's vectors change places: of the 16 rows that half a warp writes 8 bytes each of, two by two would meet in a bank.
static __device__ __forceinline__ int swapped(int row) { return row / 64 % 2; }

// The block's four rows as they were loaded are put into shared memory by columns. `group` is the number of these four rows in the tile.
static __device__ __forceinline__ void put(uint4* part, const uint4 (&row)[4], int column, int group) {
    const unsigned* words = &row[0].x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        unsigned a = words[k], b = words[4 + k], c = words[8 + k], d = words[12 + k];
        uint2* even = (uint2*)(part + place(column + 2 * k, group / 2)) + (group ^ swapped(column)) % 2;
        uint2* odd = (uint2*)(part + place(column + 2 * k + 1, group / 2)) + (group ^ swapped(column)) % 2;
        *even = make_uint2(__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410));
        *odd = make_uint2(__byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x7632));
    }
}

extern "C" __global__ void __launch_bounds__(256) transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ __align__(16) ELEMENT part[SIDE * PITCH];
    // Tiles follow each other down the columns: what blocks write at the same time lies side by side.
    unsigned tile = blockIdx.y * gridDim.x + blockIdx.x;
    int left = tile / gridDim.y * SIDE, top = tile % gridDim.y * SIDE, thread = threadIdx.x;
    in += (long long)top * columns + left;
    out += (long long)left * rows + top;
    bool aligned = (((u64)in | (u64)out) & 15) == 0 && rows % VECTOR == 0 && columns % VECTOR == 0;
    if (aligned && left + SIDE <= columns && top + SIDE <= rows) {
        const int ACROSS = SIDE / VECTOR, BLOCKS = ACROSS * (SIDE / 4) / 256; // blocks of 4 x VECTOR side by side, and of a thread
        uint4 row[BLOCKS][4];
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            int block = thread + b * 256;
            const ELEMENT* from = in + (long long)(block / ACROSS * 4) * columns + block % ACROSS * VECTOR;
#pragma unroll
            for (int k = 0; k < 4; ++k) row[b][k] = *(const uint4*)(from + (long long)k * columns);
        }
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            int block = thread + b * 256;
            put((uint4*)part, row[b], block % ACROSS * VECTOR, block / ACROSS);
        }
        __syncthreads();
#pragma unroll
        for (int b = 0; b < SIDE * ACROSS / 256; ++b) {
            int piece = thread + b * 256, column = piece / ACROSS, at = piece % ACROSS;
            uint4 v = ((const uint4*)part)[place(column, at)];
            *(uint4*)(out + (long long)column * rows + at * VECTOR) = swapped(column) ? make_uint4(v.z, v.w, v.x, v.y) : v;
        }
    } else {
        int column = thread % SIDE, row = thread % SIDE;
#pragma unroll 8
        for (int k = thread / SIDE; k < SIDE; k += 256 / SIDE)
            if (left + column < columns && top + k < rows) part[k * PITCH + column] = in[(long long)k * columns + column];
        __syncthreads();
#pragma unroll 8
        for (int k = thread / SIDE; k < SIDE; k += 256 / SIDE)
            if (left + k < columns && top + row < rows) out[(long long)k * rows + row] = part[row * PITCH + k];
    }
}
