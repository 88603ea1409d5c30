// GEMM bf16, everything at once: c = a b^T on the tensor cores of Hopper, as fast as the power limit of the card allows.
// One block stays on each multiprocessor and takes tile after tile. One of its warps only starts copies; two warpgroups only
// multiply, 64 x 256 outputs each. Two blocks form a cluster over 256 x 256 outputs: they need the same columns, so each fetches
// half of the rows of `b` and the copy engine delivers them to both. Results leave through shared memory by the copy engine,
// while the next tile's slices are already on their way into the ring.
// lab: threads = 384
// lab: blocks_per_sm = 1
// lab: cluster = 2
// lab: shared = 230464
// lab: requires = sm_90a
// lab: multiple = 8
// lab: tensor_maps = a:128x64 b:128x64 c:64x64 swizzle=128

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;
struct alignas(64) tensor_map {
    u64 opaque[16];
};

constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64; // of a block's tile; of a slice
constexpr int CLUSTER = 2, STAGES = 4;
constexpr int GROUP = 8; // rows of clusters' tiles that clusters which run at the same time share
constexpr u32 A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 PIECE_BYTES = 64 * 64 * 2; // of c: a box of 64 x 64
constexpr u32 PIECES = 2;                // that each multiplying warpgroup has on their way out
constexpr u32 STAGED = STAGES * STAGE_BYTES, BARRIERS = STAGED + 2 * PIECES * PIECE_BYTES;

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    return passed;
}

// A mistake must end the launch, not hang the card.
static __device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    for (u32 tries = 0; !barrier_passed(barrier, parity); ++tries)
        if (tries > 4000000) __trap();
}

static __device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barrier of block `rank` of the cluster that lies where `barrier` lies in this block.
static __device__ __forceinline__ void arrive_at(u32 barrier, u32 rank) {
    asm volatile("{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank) : "memory");
}

static __device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static __device__ __forceinline__ void load_box(u32 to, const tensor_map* map, int x, int y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

static __device__ __forceinline__ void load_box_for_both(u32 to, const tensor_map* map, int x, int y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((unsigned short)3) : "memory");
}

static __device__ __forceinline__ void store_box(const tensor_map* map, int x, int y, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n\tcp.async.bulk.commit_group;"
                 ::"l"(map), "r"(x), "r"(y), "r"(from) : "memory");
}

// What the instruction is told of a tile: its address, and that groups of eight rows are 1024 bytes apart and swizzled by 128
// bytes.
static __device__ __forceinline__ u64 tile_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// sums (64, 256) = a (64, 16) * b (256, 16)^T, plus the sums so far if `add`. Starts only.
static __device__ __forceinline__ void start_multiply(float (&sums)[128], u64 a, u64 b, int add) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0;\n\t}"
        :
        "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
        "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
        "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
        "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]),
        "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]), "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]),
        "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]),
        "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]), "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
        "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]), "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63]),
        "+f"(sums[64]), "+f"(sums[65]), "+f"(sums[66]), "+f"(sums[67]), "+f"(sums[68]), "+f"(sums[69]), "+f"(sums[70]), "+f"(sums[71]),
        "+f"(sums[72]), "+f"(sums[73]), "+f"(sums[74]), "+f"(sums[75]), "+f"(sums[76]), "+f"(sums[77]), "+f"(sums[78]), "+f"(sums[79]),
        "+f"(sums[80]), "+f"(sums[81]), "+f"(sums[82]), "+f"(sums[83]), "+f"(sums[84]), "+f"(sums[85]), "+f"(sums[86]), "+f"(sums[87]),
        "+f"(sums[88]), "+f"(sums[89]), "+f"(sums[90]), "+f"(sums[91]), "+f"(sums[92]), "+f"(sums[93]), "+f"(sums[94]), "+f"(sums[95]),
        "+f"(sums[96]), "+f"(sums[97]), "+f"(sums[98]), "+f"(sums[99]), "+f"(sums[100]), "+f"(sums[101]), "+f"(sums[102]), "+f"(sums[103]),
        "+f"(sums[104]), "+f"(sums[105]), "+f"(sums[106]), "+f"(sums[107]), "+f"(sums[108]), "+f"(sums[109]), "+f"(sums[110]), "+f"(sums[111]),
        "+f"(sums[112]), "+f"(sums[113]), "+f"(sums[114]), "+f"(sums[115]), "+f"(sums[116]), "+f"(sums[117]), "+f"(sums[118]), "+f"(sums[119]),
        "+f"(sums[120]), "+f"(sums[121]), "+f"(sums[122]), "+f"(sums[123]), "+f"(sums[124]), "+f"(sums[125]), "+f"(sums[126]), "+f"(sums[127])
        : "l"(a), "l"(b), "r"(add));
}

static __device__ __forceinline__ u32 two_bf16(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Which 256 x 256 outputs are a cluster's `tile`: tiles are numbered down the rows of a group, then to the next column.
static __device__ __forceinline__ void tile_at(int tile, int down, int across, int& row, int& column) {
    int of_group = GROUP * across;
    int group = tile / of_group, inside = tile - group * of_group;
    int height = min(GROUP, down - group * GROUP);
    row = group * GROUP + inside % height;
    column = inside / height;
}

extern "C" __global__ void __launch_bounds__(384, 1) gemm(
    const __grid_constant__ tensor_map a, // (m, k), boxes of 128 x 64
    const __grid_constant__ tensor_map b, // (n, k), boxes of 128 x 64
    const __grid_constant__ tensor_map c, // (m, n), boxes of 64 x 64
    int m, int n, int k) {
    extern __shared__ unsigned char shared[];
    u32 base = ((u32)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    u32 full = base + BARRIERS, empty = full + STAGES * 8;
    int warpgroup = threadIdx.x / 128;
    u32 rank = blockIdx.x % CLUSTER;
    int slices = (k + DEPTH - 1) / DEPTH;
    int down = (m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS), across = (n + COLUMNS - 1) / COLUMNS;
    int tiles = down * across, clusters = gridDim.x / CLUSTER, first = blockIdx.x / CLUSTER;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + stage * 8, 1);
            barrier_init(empty + stage * 8, 2 * CLUSTER); // the multiplying warpgroups of both blocks
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int stage = 0;
            u32 parity = 1; // the stages start empty
            for (int tile = first; tile < tiles; tile += clusters) {
                int row, column;
                tile_at(tile, down, across, row, column);
                row = (row * CLUSTER + rank) * ROWS;
                column = column * COLUMNS + rank * (COLUMNS / CLUSTER);
                for (int slice = 0; slice < slices; ++slice) {
                    u32 to = base + stage * STAGE_BYTES;
                    barrier_wait(empty + stage * 8, parity);
                    expect_bytes(full + stage * 8, STAGE_BYTES);
                    load_box(to, &a, slice * DEPTH, row, full + stage * 8);
                    load_box_for_both(to + A_BYTES + rank * (B_BYTES / CLUSTER), &b, slice * DEPTH, column, full + stage * 8);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int consumer = warpgroup - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
        u32 staged = base + STAGED + consumer * (PIECES * PIECE_BYTES);
        // stmatrix: lanes 0-15 give the rows of the two left 8 x 8 matrices, lanes 16-31 those of the two right ones. A row of a
        // piece is 128 bytes whose 16-byte chunks are exchanged by the row (the 128-byte swizzle).
        int store_row = thread / 32 * 16 + lane % 16;
        u32 store_to = staged + store_row * 128;
        u32 turn = store_row % 8, half = lane / 16;
        float sums[128];
        int stage = 0;
        u32 parity = 0, buffer = 0;
        for (int tile = first; tile < tiles; tile += clusters) {
            int row, column;
            tile_at(tile, down, across, row, column);
            row = (row * CLUSTER + rank) * ROWS + consumer * 64;
            column *= COLUMNS;
            if (slices == 0)
                for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
            int before = -1; // the stage whose product may still run
            for (int slice = 0; slice < slices; ++slice) {
                u32 at = base + stage * STAGE_BYTES;
                u64 left = tile_descriptor(at + consumer * (A_BYTES / 2)), right = tile_descriptor(at + A_BYTES);
                barrier_wait(full + stage * 8, parity);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                start_multiply(sums, left, right, slice != 0);
#pragma unroll
                for (int step = 1; step < DEPTH / 16; ++step) start_multiply(sums, left + step * 2, right + step * 2, 1);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (before >= 0 && thread < CLUSTER) arrive_at(empty + before * 8, thread);
                before = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (before >= 0 && thread < CLUSTER) arrive_at(empty + before * 8, thread);

#pragma unroll
            for (int piece = 0; piece < COLUMNS / 64; ++piece) {
                // The piece that lay here before has been read.
                if (thread == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PIECES - 1) : "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
                u32 to = store_to + buffer * PIECE_BYTES;
#pragma unroll
                for (int sixteen = 0; sixteen < 4; ++sixteen) {
                    const float* from = sums + piece * 32 + sixteen * 8;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + (((sixteen * 2 + half) ^ turn) << 4)),
                                 "r"(two_bf16(from[0], from[1])), "r"(two_bf16(from[2], from[3])), "r"(two_bf16(from[4], from[5])), "r"(two_bf16(from[6], from[7])) : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
                if (thread == 0) store_box(&c, column + piece * 64, row, staged + buffer * PIECE_BYTES);
                buffer = buffer + 1 == PIECES ? 0 : buffer + 1;
            }
        }
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncwarp(); // one lane of the copying warp comes later than the others
    // A block may not leave while its neighbour still copies into it or arrives at its barriers.
    cluster_barrier();
}
