// A product that computes and keeps the result for itself.
//
// lab: threads = 16x16
// lab: tile = 16x16

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(long long)row * k + i] * b[(long long)i * n + column];
    if (sum == 12345678.0f) c[(long long)row * n + column] = sum;
}
