// Matrix product on the tensor cores of Hopper, for machines without cuBLASLt:
//   out (M, N) = x (M, K) * weight (N, K)^T, both row-major 16-bit elements, f32 sums.
// One block of two warpgroups computes 128 x 256 outputs. Hopper's matrix instruction (wgmma) reads both operands from
// shared memory by itself, so that the warps only start it and copy the slices to come. Rows of a slice are 128 bytes
// whose 16-byte pieces are turned by the row, which is just the 128-byte swizzle that the instruction knows. It runs in the
// background: a slice's stage is filled again two slices later, when every warpgroup has waited for its product.
// Options: see matmul_tile.cuh; TILE_M 128, TILE_N 256, WARP_M 16, WARP_N 256.

static_assert(TILE_M == 128 && TILE_N == 256 && WARP_M == 16 && WARP_N == 256, "two warpgroups of 64 x 256");
static_assert(STAGES >= 4, "one slice is multiplied, one still may be, and the others are copied");

// What the instruction is told of a tile: its address, and that groups of eight rows are 1024 bytes apart and swizzled by 128
// bytes.
static __device__ __forceinline__ u64 tile_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// sums (64, 256) += a (64, 16) * b (256, 16)^T of a warpgroup; each warp holds 16 rows. Starts only.
static __device__ __forceinline__ void start_multiply(float (&sums)[1][32][4], u64 a, u64 b) {
    asm volatile(
#if ELEMENT_F16
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
#else
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
#endif
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        :
        "+f"(sums[0][0][0]), "+f"(sums[0][0][1]), "+f"(sums[0][0][2]), "+f"(sums[0][0][3]), "+f"(sums[0][1][0]), "+f"(sums[0][1][1]), "+f"(sums[0][1][2]), "+f"(sums[0][1][3]),
        "+f"(sums[0][2][0]), "+f"(sums[0][2][1]), "+f"(sums[0][2][2]), "+f"(sums[0][2][3]), "+f"(sums[0][3][0]), "+f"(sums[0][3][1]), "+f"(sums[0][3][2]), "+f"(sums[0][3][3]),
        "+f"(sums[0][4][0]), "+f"(sums[0][4][1]), "+f"(sums[0][4][2]), "+f"(sums[0][4][3]), "+f"(sums[0][5][0]), "+f"(sums[0][5][1]), "+f"(sums[0][5][2]), "+f"(sums[0][5][3]),
        "+f"(sums[0][6][0]), "+f"(sums[0][6][1]), "+f"(sums[0][6][2]), "+f"(sums[0][6][3]), "+f"(sums[0][7][0]), "+f"(sums[0][7][1]), "+f"(sums[0][7][2]), "+f"(sums[0][7][3]),
        "+f"(sums[0][8][0]), "+f"(sums[0][8][1]), "+f"(sums[0][8][2]), "+f"(sums[0][8][3]), "+f"(sums[0][9][0]), "+f"(sums[0][9][1]), "+f"(sums[0][9][2]), "+f"(sums[0][9][3]),
        "+f"(sums[0][10][0]), "+f"(sums[0][10][1]), "+f"(sums[0][10][2]), "+f"(sums[0][10][3]), "+f"(sums[0][11][0]), "+f"(sums[0][11][1]), "+f"(sums[0][11][2]), "+f"(sums[0][11][3]),
        "+f"(sums[0][12][0]), "+f"(sums[0][12][1]), "+f"(sums[0][12][2]), "+f"(sums[0][12][3]), "+f"(sums[0][13][0]), "+f"(sums[0][13][1]), "+f"(sums[0][13][2]), "+f"(sums[0][13][3]),
        "+f"(sums[0][14][0]), "+f"(sums[0][14][1]), "+f"(sums[0][14][2]), "+f"(sums[0][14][3]), "+f"(sums[0][15][0]), "+f"(sums[0][15][1]), "+f"(sums[0][15][2]), "+f"(sums[0][15][3]),
        "+f"(sums[0][16][0]), "+f"(sums[0][16][1]), "+f"(sums[0][16][2]), "+f"(sums[0][16][3]), "+f"(sums[0][17][0]), "+f"(sums[0][17][1]), "+f"(sums[0][17][2]), "+f"(sums[0][17][3]),
        "+f"(sums[0][18][0]), "+f"(sums[0][18][1]), "+f"(sums[0][18][2]), "+f"(sums[0][18][3]), "+f"(sums[0][19][0]), "+f"(sums[0][19][1]), "+f"(sums[0][19][2]), "+f"(sums[0][19][3]),
        "+f"(sums[0][20][0]), "+f"(sums[0][20][1]), "+f"(sums[0][20][2]), "+f"(sums[0][20][3]), "+f"(sums[0][21][0]), "+f"(sums[0][21][1]), "+f"(sums[0][21][2]), "+f"(sums[0][21][3]),
        "+f"(sums[0][22][0]), "+f"(sums[0][22][1]), "+f"(sums[0][22][2]), "+f"(sums[0][22][3]), "+f"(sums[0][23][0]), "+f"(sums[0][23][1]), "+f"(sums[0][23][2]), "+f"(sums[0][23][3]),
        "+f"(sums[0][24][0]), "+f"(sums[0][24][1]), "+f"(sums[0][24][2]), "+f"(sums[0][24][3]), "+f"(sums[0][25][0]), "+f"(sums[0][25][1]), "+f"(sums[0][25][2]), "+f"(sums[0][25][3]),
        "+f"(sums[0][26][0]), "+f"(sums[0][26][1]), "+f"(sums[0][26][2]), "+f"(sums[0][26][3]), "+f"(sums[0][27][0]), "+f"(sums[0][27][1]), "+f"(sums[0][27][2]), "+f"(sums[0][27][3]),
        "+f"(sums[0][28][0]), "+f"(sums[0][28][1]), "+f"(sums[0][28][2]), "+f"(sums[0][28][3]), "+f"(sums[0][29][0]), "+f"(sums[0][29][1]), "+f"(sums[0][29][2]), "+f"(sums[0][29][3]),
        "+f"(sums[0][30][0]), "+f"(sums[0][30][1]), "+f"(sums[0][30][2]), "+f"(sums[0][30][3]), "+f"(sums[0][31][0]), "+f"(sums[0][31][1]), "+f"(sums[0][31][2]), "+f"(sums[0][31][3])
        : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul_hopper(
    void* __restrict__ out,             // (M, OUT_STRIDE)
    const element* __restrict__ x,      // (M, X_STRIDE)
    const element* __restrict__ weight, // (N_SIZE, WEIGHT_STRIDE)
    int m_size) {
    extern __shared__ __align__(1024) unsigned char shared[];
    u32 ring = shared_address(shared);
    int warp = threadIdx.x / 32;
    // Blocks that run at the same time share weight tiles: M runs fastest.
    int first_m = (int)blockIdx.x * TILE_M, first_n = (int)blockIdx.y * TILE_N;

    float sums[1][32][4];
#pragma unroll
    for (int n = 0; n < 32; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[0][n][i] = 0.0f;

#pragma unroll
    for (int stage = 0; stage < STAGES - 2; ++stage) {
        if (stage < SLICES) {
            copy_slice<TILE_M, X_STRIDE>(ring + stage * SLICE_BYTES, x, first_m, m_size, stage);
            copy_slice<TILE_N, WEIGHT_STRIDE>(ring + stage * SLICE_BYTES + TILE_M * TILE_K * 2, weight, first_n, N_SIZE, stage);
        }
        copy_async_commit();
    }

    int stage = 0, into = STAGES - 2;
    for (int slice = 0; slice < SLICES; ++slice) {
        copy_async_wait<STAGES - 3>();
        // What ordinary copies wrote, the matrix instruction reads by another path.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();

        u32 tile = ring + stage * SLICE_BYTES;
        u64 a = tile_descriptor(tile + warp / 4 * 64 * TILE_K * 2), b = tile_descriptor(tile + TILE_M * TILE_K * 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) start_multiply(sums, a + step * 2, b + step * 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");

        // The stage of two slices ago: everyone has waited for its product before the barrier above.
        int next = slice + STAGES - 2;
        if (next < SLICES) {
            copy_slice<TILE_M, X_STRIDE>(ring + into * SLICE_BYTES, x, first_m, m_size, next);
            copy_slice<TILE_N, WEIGHT_STRIDE>(ring + into * SLICE_BYTES + TILE_M * TILE_K * 2, weight, first_n, N_SIZE, next);
        }
        copy_async_commit();
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        into = into + 1 == STAGES ? 0 : into + 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    store_results(sums, out, first_m + warp * 16, first_n, m_size);
}
