// Sum of an array where each thread adds two elements while it loads them: half as many blocks for the same bytes, twice the bytes
// in flight, and the first step of the tree for nothing.
//
// lab: threads = 256
// lab: per_block = 512

extern "C" __global__ void reduce(const float* x, float* sums, unsigned long long n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x;
    unsigned long long i = (unsigned long long)blockIdx.x * 512 + t;
    float low = i < n ? x[i] : 0.0f, high = i + 256 < n ? x[i + 256] : 0.0f;
    part[t] = low + high;
    __syncthreads();
    for (unsigned distance = 128; distance > 0; distance /= 2) {
        if (t < distance) part[t] += part[t + distance];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
