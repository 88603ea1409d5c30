// GEMM, the plain way: a thread computes one output with a loop over k, and the threads of a warp lie along the *rows* of c.
// That is the order in which the formula is written, and the wrong one for the memory: the 32 loads of `a` of a warp fall
// into 32 different rows, and so do its 32 stores.
// lab: threads = 32x32
// lab: tile = 32x32

extern "C" __global__ void __launch_bounds__(1024) gemm(
    const float* __restrict__ a, // (m, k)
    const float* __restrict__ b, // (k, n)
    float* __restrict__ c,       // (m, n)
    int m, int n, int k) {
    int row = blockIdx.y * 32 + threadIdx.x;
    int column = blockIdx.x * 32 + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(long long)row * k + i] * b[(long long)i * n + column];
    c[(long long)row * n + column] = sum;
}
