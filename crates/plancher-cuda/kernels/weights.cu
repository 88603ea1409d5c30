// Weights that are made on the device: the random matrices of a model without files, and rotary tables.

// The nearest bf16 number, ties to even; finite values only.
static __device__ __forceinline__ float round_to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    return __uint_as_float((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

// Elements of one matrix of a dummy model, as plancher-model defines them: element i (row-major, without padding) is the
// i-th number of a SplitMix64 sequence, its upper 24 bits as a number in [-1, 1), times the amplitude,
// rounded to bf16 (also where elements are f16). Zeros beyond `columns`.
extern "C" __global__ void __launch_bounds__(256) fill_random(
    element* __restrict__ out, // (rows, stride), 16-byte aligned
    u64 rows, u64 columns, u64 stride, // stride: a multiple of 8
    u64 seed, float amplitude) {
    u64 pieces = stride / 8, step = (u64)gridDim.x * 256;
    for (u64 index = (u64)blockIdx.x * 256 + threadIdx.x; index < rows * pieces; index += step) {
        u64 row = index / pieces, column = index % pieces * 8;
        u32 packed[4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            float values[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                u64 at = column + pair * 2 + i;
                u64 z = seed + (row * columns + at + 1) * 0x9E3779B97F4A7C15ull;
                z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
                z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
                z ^= z >> 31;
                float unit = (float)((int)(z >> 40) - (1 << 23)) * 0x1p-23f;
                values[i] = at < columns ? __fmul_rn(unit, amplitude) : 0.0f;
            }
            packed[pair] = pack_elements(round_to_bf16(values[0]), round_to_bf16(values[1]));
        }
        *(uint4*)(out + row * stride + column) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
}

// A rotary table: cosine and sine of position * frequency, both times `factor`.
extern "C" __global__ void __launch_bounds__(256) rope_table(
    float2* __restrict__ out,              // (positions, pairs)
    const float* __restrict__ frequencies, // (pairs)
    u32 positions, u32 pairs, float factor) {
    u64 index = (u64)blockIdx.x * 256 + threadIdx.x;
    if (index >= (u64)positions * pairs) return;
    float angle = (float)(u32)(index / pairs) * frequencies[index % pairs];
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    out[index] = make_float2(cosine * factor, sine * factor);
}
