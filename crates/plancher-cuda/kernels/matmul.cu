// Matrix product on the tensor cores of every card since Ampere, for machines without cuBLASLt:
//   out (M, N) = x (M, K) * weight (N, K)^T, both row-major 16-bit elements, f32 sums.
// One block computes TILE_M x TILE_N outputs. Its threads copy slices of TILE_K into a ring of STAGES in shared memory
// in the background (cp.async) while its warps, each with WARP_M x WARP_N outputs in registers, multiply the slices
// that have landed (ldmatrix, mma.sync). Rows of a slice are cut into 16-byte pieces whose order is turned by the row
// (exclusive or), so that neither the copies nor ldmatrix meet bank conflicts. Options: see matmul_tile.cuh.

// The operands of step `step` of a warp.
static __device__ __forceinline__ void load_operands(u32 (&a)[STEPS_M][4], u32 (&b)[STEPS_N / 2][4], u32 a_lane, u32 a_piece,
                                                     u32 b_lane, u32 b_piece, int step) {
#pragma unroll
    for (int m = 0; m < STEPS_M; ++m) load_matrices(a[m], a_lane + m * 16 * TILE_K * 2 + (a_piece ^ (step * 32)));
#pragma unroll
    for (int n = 0; n < STEPS_N / 2; ++n) load_matrices(b[n], b_lane + n * 16 * TILE_K * 2 + (b_piece ^ (step * 32)));
}

extern "C" __global__ void __launch_bounds__(THREADS) matmul(
    void* __restrict__ out,             // (M, OUT_STRIDE)
    const element* __restrict__ x,      // (M, X_STRIDE)
    const element* __restrict__ weight, // (N_SIZE, WEIGHT_STRIDE)
    int m_size) {
    extern __shared__ __align__(128) unsigned char shared[];
    u32 ring = shared_address(shared);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    // Blocks that run at the same time share weight tiles: M runs fastest.
    int first_m = (int)blockIdx.x * TILE_M, first_n = (int)blockIdx.y * TILE_N;

    float sums[STEPS_M][STEPS_N][4];
#pragma unroll
    for (int m = 0; m < STEPS_M; ++m)
#pragma unroll
        for (int n = 0; n < STEPS_N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < SLICES) {
            copy_slice<TILE_M, X_STRIDE>(ring + stage * SLICE_BYTES, x, first_m, m_size, stage);
            copy_slice<TILE_N, WEIGHT_STRIDE>(ring + stage * SLICE_BYTES + TILE_M * TILE_K * 2, weight, first_n, N_SIZE, stage);
        }
        copy_async_commit();
    }

    // ldmatrix addresses: of A, lanes 0-15 give rows, lanes 16-31 the same rows eight columns on; of B, lanes 0-7 rows,
    // 8-15 the same rows eight columns on, 16-31 the next eight rows. Rows of a warp start at a multiple of 16, so the
    // turn of a piece is the lane's own.
    u32 a_lane = (warp_m + lane % 16) * TILE_K * 2, a_piece = ((lane / 16) ^ (lane % 8)) * 16;
    u32 b_lane = TILE_M * TILE_K * 2 + (warp_n + lane % 8 + lane / 16 * 8) * TILE_K * 2;
    u32 b_piece = ((lane / 8 % 2) ^ (lane % 8)) * 16;

    // Operands of one step of 16 in K are loaded while the step before is multiplied.
    u32 a[2][STEPS_M][4], b[2][STEPS_N / 2][4];
    int stage = 0;
    for (int slice = 0; slice < SLICES; ++slice) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        u32 tile = ring + stage * SLICE_BYTES;
        load_operands(a[0], b[0], tile + a_lane, a_piece, tile + b_lane, b_piece, 0);
        int next = slice + STAGES - 1;
        if (next < SLICES) {
            u32 into = ring + (stage == 0 ? STAGES - 1 : stage - 1) * SLICE_BYTES;
            copy_slice<TILE_M, X_STRIDE>(into, x, first_m, m_size, next);
            copy_slice<TILE_N, WEIGHT_STRIDE>(into + TILE_M * TILE_K * 2, weight, first_n, N_SIZE, next);
        }
        copy_async_commit();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) {
            int now = step % 2;
            if (step + 1 < TILE_K / 16)
                load_operands(a[now ^ 1], b[now ^ 1], tile + a_lane, a_piece, tile + b_lane, b_piece, step + 1);
#pragma unroll
            for (int m = 0; m < STEPS_M; ++m)
#pragma unroll
                for (int n = 0; n < STEPS_N; ++n)
                    multiply_accumulate(sums[m][n], a[now][m][0], a[now][m][1], a[now][m][2], a[now][m][3],
                                        b[now][n / 2][n % 2 * 2], b[now][n / 2][n % 2 * 2 + 1]);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    store_results(sums, out, first_m + warp_m, first_n + warp_n, m_size);
}
