// The megakernel's stream of weights, made from the row-major matrices that the other kernels read.
//
// A worker's weights are stages of 16 KiB in the order in which it multiplies with them; stage s of worker w lies at
// (s * workers + w) * 16 KiB, so that stages which are read at the same time lie side by side. A stage has 2 KiB for
// each of the 8 warps that share a row: warp w has columns [w * padded / 8, (w + 1) * padded / 8). Its four fragments
// of 512 bytes are what the lanes of `mma.m16n8k16` hold of 16 rows, 16 bytes a lane. One block makes the stages of one
// tile: 16 rows, or 8 rows in the shape of 16, whose lower half are columns from the second half of the warp's share.

#define WARPS 8
#define STAGE (WARPS * 128) // 16-byte pieces

// As the host writes it.
struct tile {
    u32 worker;
    u32 stage;     // the tile's first one, of the worker
    u32 low;       // the matrix' row of the tile's row 0
    u32 low_rows;  // of the tile's rows 0 to 7, how many there are; the others are zeros
    u32 high;      // the matrix' row of the tile's row 8
    u32 high_rows;
    u32 half;      // 1: 8 rows in the shape of 16; `high` says nothing
    u32 padding;
};

static __device__ __forceinline__ uint4 piece(const element* matrix, u32 row, bool valid, u32 column, u32 stride) {
    if (!valid || column >= stride) return make_uint4(0, 0, 0, 0);
    return *(const uint4*)(matrix + (u64)row * stride + column);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) mega_pack(
    uint4* __restrict__ stream,         // (stages, workers, STAGE)
    const element* __restrict__ matrix, // (rows, stride), zeros beyond the columns
    const tile* __restrict__ tiles,     // (gridDim.x)
    u32 stride,                         // elements, a multiple of 8
    u32 padded,                         // elements that a tile's row has in the stream, a multiple of 512
    u32 workers) {
    tile t = tiles[blockIdx.x];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4;
    u32 share = padded / WARPS, first = warp * share + lane % 4 * 8;
    // A pair of fragments covers 32 columns of 16 rows, or twice 32 columns of 8 rows.
    u32 pairs = t.half ? share / 64 : share / 32;
    for (u32 pair = 0; pair < pairs; ++pair) {
        u32 column = first + pair * 32;
        uint4 a = piece(matrix, t.low + row, row < t.low_rows, column, stride);
        uint4 b = t.half ? piece(matrix, t.low + row, row < t.low_rows, column + share / 2, stride)
                         : piece(matrix, t.high + row, row < t.high_rows, column, stride);
        u64 stage = (u64)(t.stage + pair / 2) * workers + t.worker;
        uint4* out = stream + stage * STAGE + warp * 128 + pair % 2 * 64 + lane;
        out[0] = make_uint4(a.x, b.x, a.y, b.y);
        out[32] = make_uint4(a.z, b.z, a.w, b.w);
    }
}
