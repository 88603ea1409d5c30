// The textbook's product: tiles of 16 x 16 in shared memory, one result a thread.
//
// lab: threads = 16x16
// lab: tile = 16x16

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 16) {
        as[y][x] = row < m && start + x < k ? a[(long long)row * k + start + x] : 0.0f;
        bs[y][x] = start + y < k && column < n ? b[(long long)(start + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    if (row < m && column < n) c[(long long)row * n + column] = sum;
}
