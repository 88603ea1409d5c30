// GEMM, coalesced: the same loop with the two coordinates of a thread exchanged, so that a warp lies along a row of c.
// Its 32 loads of `b` and its 32 stores are now 128 bytes in one piece, and its load of `a` is one word for all lanes.
// lab: threads = 32x32
// lab: tile = 32x32

extern "C" __global__ void __launch_bounds__(1024) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    int row = blockIdx.y * 32 + threadIdx.y;
    int column = blockIdx.x * 32 + threadIdx.x;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(long long)row * k + i] * b[(long long)i * n + column];
    c[(long long)row * n + column] = sum;
}
