// GEMM bf16 on the tensor cores of Hopper, the shortest way: c = a b^T. One thread lets the copy engine (TMA) fetch a slice of both operands,
// everyone waits for it, two warpgroups multiply it with `wgmma`, which reads its operands from shared memory by itself, and
// then it starts over. Nothing overlaps within a block; only the other blocks of the multiprocessor fill the gaps.
// lab: threads = 256
// lab: tile = 128x128
// lab: shared = 33856
// lab: requires = sm_90a
// lab: multiple = 8
// lab: tensor_maps = a:128x64 b:128x64 swizzle=128

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;
struct alignas(64) tensor_map {
    u64 opaque[16];
};

constexpr int ROWS = 128, COLUMNS = 128, DEPTH = 64; // of a block's tile; of a slice
constexpr u32 A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2;

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

// sums (64, 128) = a (64, 16) * b (128, 16)^T, plus the sums so far if `add`, for a warpgroup; each warp holds 16 rows. Starts only.
static __device__ __forceinline__ void start_multiply(float (&sums)[64], u64 a, u64 b, int add) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n\t}"
        :
        "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
        "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
        "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
        "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]),
        "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]), "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]),
        "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]),
        "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]), "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
        "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]), "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63])
        : "l"(a), "l"(b), "r"(add));
}

static __device__ __forceinline__ u32 two_bf16(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

extern "C" __global__ void __launch_bounds__(256) gemm(
    const __grid_constant__ tensor_map a, // (m, k), boxes of 128 x 64
    const __grid_constant__ tensor_map b, // (n, k), boxes of 128 x 64
    bf16* __restrict__ c,                 // (m, n)
    int m, int n, int k) {
    extern __shared__ unsigned char shared[];
    u32 tile = ((u32)__cvta_generic_to_shared(shared) + 1023) & ~1023u, full = tile + A_BYTES + B_BYTES;
    int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    if (m == 0 || n == 0) return; // nothing to write, and no map of nothing

    if (threadIdx.x == 0) {
        barrier_init(full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    float sums[64] = {};
    u32 parity = 0;
    for (int slice = 0; slice < k; slice += DEPTH) {
        if (threadIdx.x == 0) {
            expect_bytes(full, A_BYTES + B_BYTES);
            load_box(tile, &a, slice, first_row, full);
            load_box(tile + A_BYTES, &b, slice, first_column, full);
        }
        barrier_wait(full, parity);
        parity ^= 1;
        u64 left = tile_descriptor(tile + warpgroup * (A_BYTES / 2)), right = tile_descriptor(tile + A_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < DEPTH / 16; ++step) start_multiply(sums, left + step * 2, right + step * 2, 1);
        asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads(); // both warpgroups have done with the slice
    }

    int row = first_row + warp * 16 + lane / 4, column = first_column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (row + half * 8 < m && column + i * 8 < n)
                *(u32*)(c + (long long)(row + half * 8) * n + column + i * 8) = two_bf16(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
}
