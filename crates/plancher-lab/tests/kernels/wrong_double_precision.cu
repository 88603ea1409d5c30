// A product whose sums are in double precision: right, and not the kernel that was asked for.
//
// lab: threads = 16x16
// lab: tile = 16x16

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || column >= n) return;
    double sum = 0.0;
    for (int i = 0; i < k; ++i) sum += (double)a[(long long)row * k + i] * (double)b[(long long)i * n + column];
    c[(long long)row * n + column] = (float)sum;
}
