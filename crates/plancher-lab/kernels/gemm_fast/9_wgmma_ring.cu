// GEMM bf16, a ring: one warp only starts copies, as far ahead as four stages allow, and two warpgroups only multiply, 64 x 256
// outputs each. Who waits for whom is settled by two barriers a stage: `full` counts the bytes that have come, `empty` the
// warpgroups that have done with it. The tile is 128 x 256, the largest whose sums fit into the registers.
// lab: threads = 384
// lab: tile = 256x128
// lab: shared = 197696
// lab: requires = sm_90a
// lab: multiple = 8
// lab: tensor_maps = a:128x64 b:256x64 swizzle=128

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;
struct alignas(64) tensor_map {
    u64 opaque[16];
};

constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64; // of a block's tile; of a slice
constexpr int STAGES = 4;
constexpr u32 A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int GROUP = 16; // rows of tiles that blocks which run at the same time share

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
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

static __device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Starts the copy of a box of a matrix; elements beyond its edges become zeros. The barrier counts the bytes as they come.
static __device__ __forceinline__ void load_box(u32 to, const tensor_map* map, int x, int y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// What the instruction is told of a tile: its address, and that groups of eight rows are 1024 bytes apart and swizzled by 128
// bytes.
static __device__ __forceinline__ u64 tile_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// sums (64, 256) = a (64, 16) * b (256, 16)^T, plus the sums so far if `add`, for a warpgroup; each warp holds 16 rows. Starts only.
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

extern "C" __global__ void __launch_bounds__(384, 1) gemm(
    const __grid_constant__ tensor_map a, // (m, k), boxes of 128 x 64
    const __grid_constant__ tensor_map b, // (n, k), boxes of 256 x 64
    bf16* __restrict__ c,                 // (m, n)
    int m, int n, int k) {
    extern __shared__ unsigned char shared[];
    u32 ring = ((u32)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    u32 full = ring + STAGES * STAGE_BYTES, empty = full + STAGES * 8;
    int warpgroup = threadIdx.x / 128;
    int slices = (k + DEPTH - 1) / DEPTH;
    if (m == 0 || n == 0) return; // nothing to write, and no map of nothing

    // Blocks that run at the same time take tiles of GROUP rows, so that they share slices of a and of b in L2.
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    int group = block / (GROUP * (int)gridDim.x) * GROUP, in_group = block - group * (int)gridDim.x;
    int height = min(GROUP, (int)gridDim.y - group);
    int first_row = (group + in_group % height) * ROWS, first_column = in_group / height * COLUMNS;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + stage * 8, 1);
            barrier_init(empty + stage * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    int stage = 0;
    if (warpgroup == 0) {
        // The copies need few registers; the sums need those that this warpgroup gives back.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        u32 parity = 1; // the stages start empty
        if (threadIdx.x == 0)
            for (int slice = 0; slice < slices; ++slice) {
                u32 to = ring + stage * STAGE_BYTES;
                barrier_wait(empty + stage * 8, parity);
                expect_bytes(full + stage * 8, STAGE_BYTES);
                load_box(to, &a, slice * DEPTH, first_row, full + stage * 8);
                load_box(to + A_BYTES, &b, slice * DEPTH, first_column, full + stage * 8);
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int consumer = warpgroup - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
        float sums[128];
        if (slices == 0)
            for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
        int before = -1; // the stage whose product may still run
        u32 parity = 0;
        for (int slice = 0; slice < slices; ++slice) {
            u32 tile = ring + stage * STAGE_BYTES;
            u64 left = tile_descriptor(tile + consumer * (A_BYTES / 2)), right = tile_descriptor(tile + A_BYTES);
            barrier_wait(full + stage * 8, parity);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            start_multiply(sums, left, right, slice != 0);
#pragma unroll
            for (int step = 1; step < DEPTH / 16; ++step) start_multiply(sums, left + step * 2, right + step * 2, 1);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (before >= 0 && thread == 0) arrive(empty + before * 8);
            before = stage;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

        int row = first_row + consumer * 64 + thread / 32 * 16 + lane / 4, column = first_column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 32; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (row + half * 8 < m && column + i * 8 < n)
                    *(u32*)(c + (long long)(row + half * 8) * n + column + i * 8) = two_bf16(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
    }
}
