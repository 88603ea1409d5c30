// Sum of an array whose last five steps go from register to register: a warp adds its 32 values by shuffles, without shared memory and
// without a barrier. One word a warp remains for shared memory, and one barrier in place of eight.
//
// lab: threads = 256
// lab: per_block = 512

static __device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(0xffffffffu, x, distance);
    return x;
}

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ float part[8];
    unsigned t = threadIdx.x;
    unsigned long long i = (unsigned long long)blockIdx.x * 512 + t;
    float low = i < n ? x[i] : 0.0f, high = i + 256 < n ? x[i + 256] : 0.0f;
    float sum = sum_of_warp(low + high);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = sum_of_warp(t < 8 ? part[t] : 0.0f);
        if (t == 0) sums[blockIdx.x] = sum;
    }
}
