// What the harness itself does on the device: it makes the inputs, guards what lies around the arrays, and holds results
// against double precision. Plain on purpose: this is what everything else is judged by.
//
// Numbers are functions of a seed and an index, so that an array that a kernel overwrites can be made again. An element has
// 4 bytes (f32) or 2 (bf16).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define POISON_F32 0xffffffffu
#define POISON_BF16 0xffffu
#define ALL 0xffffffffu

// What was found; all zeros (and `first` all ones) before.
struct findings {
    u64 first;          // the first wrong element, all ones if there is none
    u64 wrong;          // how many are wrong
    u64 unwritten;      // how many of them still hold the poison
    u64 nan;            // how many are NaN and should not be, or the other way round
    double worst;       // the largest error, as a multiple of the honest one
    double squares;     // the sum of squared errors
    double rounding;    // the sum of squared errors that rounding the exact result once would make
    double expected;    // of element `target`
    double got;         // of element `target`
};

// The finalizer of SplitMix64.
static __device__ __forceinline__ u64 scramble(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static __device__ __forceinline__ u16 round_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) return 0x7fc0;
    return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Element `index` of the array of a seed: between -1 and 1, a multiple of 2^-23. `extreme` 1 to 3 mixes in large numbers
// and denormals, infinities, and NaN; 4 makes any bits.
static __device__ __forceinline__ float value(u64 seed, u64 index, u32 extreme) {
    u64 bits = scramble(seed ^ scramble(index));
    float plain = (float)((int)(bits >> 40) - (1 << 23)) * 0x1p-23f;
    if (extreme == 0) return plain;
    if (extreme == 4) return __uint_as_float((u32)bits);
    u32 choice = (u32)(bits & 1023);
    if (choice < 8) return plain * 0x1p48f;
    if (choice < 16) return plain * 0x1p-130f;
    if (choice < 20) return plain < 0.0f ? -0.0f : 0.0f;
    if (extreme >= 2 && choice == 20) return plain < 0.0f ? __uint_as_float(0xff800000u) : __uint_as_float(0x7f800000u);
    if (extreme >= 3 && choice == 21) return __uint_as_float(0x7fc00000u);
    return plain;
}

static __device__ __forceinline__ void store(void* to, u64 index, u32 bytes, float x) {
    if (bytes == 4) ((float*)to)[index] = x;
    else ((u16*)to)[index] = round_bf16(x);
}

static __device__ __forceinline__ float load(const void* from, u64 index, u32 bytes) {
    if (bytes == 4) return ((const float*)from)[index];
    return __uint_as_float((u32)((const u16*)from)[index] << 16);
}

#define EACH(i, n) \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride_ = (u64)gridDim.x * blockDim.x; i < (n); i += stride_)

extern "C" __global__ void lab_fill(void* to, u64 n, u32 bytes, u64 seed, u32 extreme) {
    EACH(i, n) store(to, i, bytes, value(seed, i, extreme));
}

// Changes `count` elements at places that the seed chooses.
extern "C" __global__ void lab_perturb(void* to, u64 n, u32 bytes, u64 seed, u64 count) {
    EACH(i, count) {
        u64 at = scramble(seed + i) % n;
        store(to, at, bytes, value(seed, at, 0));
    }
}

// NaN bits that differ from place to place, so that a piece of a guard that was copied elsewhere is noticed.
static __device__ __forceinline__ u16 guard_word(u64 key, u64 index) {
    return (u16)(0x7fc1u | (scramble(key ^ index) & 0x3e));
}

extern "C" __global__ void lab_guard(u16* at, u64 words, u64 key) {
    EACH(i, words) at[i] = guard_word(key, i);
}

// The lowest and the highest changed word of a guard: bounds[0] is all ones and bounds[1] zero where there is none.
extern "C" __global__ void lab_guard_check(const u16* at, u64 words, u64 key, u64* bounds) {
    EACH(i, words) {
        if (at[i] != guard_word(key, i)) {
            atomicMin(bounds, i);
            atomicMax(bounds + 1, i + 1);
        }
    }
}

static __device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

static __device__ __forceinline__ double warp_sum(double x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

// A sum over all elements of their bits, each scrambled with its place.
extern "C" __global__ void lab_checksum(const void* from, u64 n, u32 bytes, u64* sum) {
    u64 mine = 0;
    EACH(i, n) {
        u32 bits = bytes == 4 ? ((const u32*)from)[i] : ((const u16*)from)[i];
        mine += scramble(((u64)bits << 32) ^ scramble(i));
    }
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

// Reads `words` times 16 bytes, so that they and nothing else are in the second-level cache.
extern "C" __global__ void lab_flush(const uint4* from, u64 words, u32* sink) {
    u32 sum = 0;
    EACH(i, words) {
        uint4 x = from[i];
        sum |= x.x & x.y & x.z & x.w;
    }
    if (sum == 0x12345678u) *sink = sum;
}

// Keeps the stream busy for some microseconds, while the host puts what is timed behind it.
extern "C" __global__ void lab_wait(u32 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

// One thread's findings, put together by a block.
struct tally {
    u64 first = ~0ull, wrong = 0, unwritten = 0, nan = 0;
    double worst = 0, squares = 0, rounding = 0;

    // `honest` is the error that is expected of the precision; up to `limit` times as much passes.
    __device__ __forceinline__ void judge(
        findings* out, u64 index, u64 target, double expected, double honest, double limit, const void* results, u32 bytes) {
        u32 bits = bytes == 4 ? ((const u32*)results)[index] : ((const u16*)results)[index];
        float got = load(results, index, bytes);
        float rounded = (float)expected;
        if (bytes == 2) rounded = __uint_as_float((u32)round_bf16(rounded) << 16);
        bool finite = rounded - rounded == 0.0f;
        bool is_wrong;
        if (finite && got - got == 0.0f) {
            double error = fabs((double)got - expected), once = (double)rounded - expected;
            double ratio = error == 0.0 ? 0.0 : error / honest;
            worst = fmax(worst, ratio);
            squares += error * error;
            rounding += once * once;
            is_wrong = !(ratio <= limit);
        } else {
            // Infinities and NaN must be what they are; but an honest error may decide whether a sum overflows.
            bool both_nan = rounded != rounded && got != got;
            is_wrong = !(both_nan || got == rounded);
            if (is_wrong && (got != got) != (rounded != rounded)) ++nan;
        }
        if (is_wrong) {
            ++wrong;
            if (bits == (bytes == 4 ? POISON_F32 : POISON_BF16)) ++unwritten;
            first = index < first ? index : first;
        }
        if (index == target) {
            out->expected = expected;
            out->got = got;
        }
    }

    __device__ __forceinline__ void publish(findings* out) {
        wrong = warp_sum(wrong);
        unwritten = warp_sum(unwritten);
        nan = warp_sum(nan);
        squares = warp_sum(squares);
        rounding = warp_sum(rounding);
        for (int offset = 16; offset > 0; offset /= 2) {
            u64 other = __shfl_xor_sync(ALL, first, offset);
            first = other < first ? other : first;
            worst = fmax(worst, __shfl_xor_sync(ALL, worst, offset));
        }
        if (threadIdx.x % 32 != 0) return;
        if (wrong != 0) {
            atomicMin(&out->first, first);
            atomicAdd(&out->wrong, wrong);
            atomicAdd(&out->unwritten, unwritten);
            atomicAdd(&out->nan, nan);
        }
        // Positive doubles are ordered like their bits.
        atomicMax((u64*)&out->worst, (u64)__double_as_longlong(worst));
        atomicAdd(&out->squares, squares);
        atomicAdd(&out->rounding, rounding);
    }
};

#define ROUNDING_F32 0x1p-24
#define SMALLEST_F32 0x1p-149

// y after y <- a x + y; what y was is made again from its seed. One rounding of the product, one of the sum.
extern "C" __global__ void lab_check_saxpy(
    float a, const float* x, const float* y, u64 n, u64 seed, u32 extreme, double limit, u64 target, findings* out) {
    tally mine;
    EACH(i, n) {
        double before = (double)value(seed, i, extreme), product = (double)a * (double)x[i], expected = product + before;
        double honest = ROUNDING_F32 * (fabs(product) + fabs(expected)) + SMALLEST_F32;
        mine.judge(out, i, target, expected, honest, limit, y, 4);
    }
    mine.publish(out);
}

// Bits, not numbers: a NaN keeps its payload.
extern "C" __global__ void lab_check_transpose(
    const void* in, const void* results, u64 rows, u64 columns, u32 bytes, u64 target, findings* out) {
    tally mine;
    EACH(i, rows * columns) {
        u64 from = (i % rows) * columns + i / rows;
        u32 expected = bytes == 4 ? ((const u32*)in)[from] : ((const u16*)in)[from];
        u32 got = bytes == 4 ? ((const u32*)results)[i] : ((const u16*)results)[i];
        if (expected != got) {
            ++mine.wrong;
            if (got == (bytes == 4 ? POISON_F32 : POISON_BF16)) ++mine.unwritten;
            mine.first = i < mine.first ? i : mine.first;
            mine.worst = 1.0;
        }
        if (i == target) {
            out->expected = (double)load(in, from, bytes);
            out->got = (double)load(results, i, bytes);
        }
    }
    mine.publish(out);
}

// The sum and the sum of squares of all elements: sums[0], sums[1].
extern "C" __global__ void lab_sum(const void* x, u64 n, u32 bytes, double* sums) {
    double sum = 0, squares = 0;
    EACH(i, n) {
        double element = (double)load(x, i, bytes);
        sum += element;
        squares += element * element;
    }
    sum = warp_sum(sum);
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sums, sum);
        atomicAdd(sums + 1, squares);
    }
}

// One number against the sum. Adding n numbers of mean square q, up to 4096 of them one after another, is off by about
// the rounding of partial sums that have grown to sqrt(4096 q).
extern "C" __global__ void lab_check_sum(const float* result, u64 n, const double* sums, double limit, u64 target, findings* out) {
    tally mine;
    if (threadIdx.x == 0) {
        double run = n < 4096 ? (double)n : 4096.0;
        double honest = ROUNDING_F32 * (sqrt(sums[1]) * sqrt(run) + fabs(sums[0])) + SMALLEST_F32;
        // Infinities and NaN make the scale one of them; the result is then compared as such.
        mine.judge(out, 0, target, sums[0], honest, limit, result, 4);
    }
    mine.publish(out);
}

// The 2-norm of each of `count` rows or columns: element j of number i is at i * outer + j * inner.
extern "C" __global__ void lab_norms(const void* from, u64 count, u64 length, u64 outer, u64 inner, u32 bytes, double* norms) {
    EACH(i, count) {
        double sum = 0;
        for (u64 j = 0; j < length; ++j) {
            double element = (double)load(from, i * outer + j * inner, bytes);
            sum += element * element;
        }
        norms[i] = sqrt(sum);
    }
}

#define TILE 64
#define DEPTH 16

// c (m, n) = a (m, k) b in double precision; b is (k, n), or (n, k) where `transposed`. Blocks of 16 x 16 threads, 4 x 4
// results each.
extern "C" __global__ void __launch_bounds__(256) lab_gemm(
    const void* a, const void* b, double* c, u64 m, u64 n, u64 k, u32 transposed, u32 bytes) {
    __shared__ double as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    u32 thread = threadIdx.x, tx = thread % 16, ty = thread / 16;
    u64 row = (u64)blockIdx.y * TILE, column = (u64)blockIdx.x * TILE;
    double sums[4][4] = {};
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
        for (u32 i = thread; i < TILE * DEPTH; i += 256) {
            u64 r = row + i / DEPTH, kk = k0 + i % DEPTH;
            as[i % DEPTH][i / DEPTH] = r < m && kk < k ? (double)load(a, r * k + kk, bytes) : 0.0;
        }
        for (u32 i = thread; i < TILE * DEPTH; i += 256) {
            u32 d = transposed ? i % DEPTH : i / TILE, j = transposed ? i / DEPTH : i % TILE;
            u64 kk = k0 + d, col = column + j;
            bool inside = kk < k && col < n;
            bs[d][j] = inside ? (double)load(b, transposed ? col * k + kk : kk * n + col, bytes) : 0.0;
        }
        __syncthreads();
#pragma unroll 2
        for (u32 d = 0; d < DEPTH; ++d) {
            double x[4], y[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) x[i] = as[d][ty + 16 * i], y[i] = bs[d][tx + 16 * i];
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 4; ++j) {
            u64 r = row + ty + 16 * i, col = column + tx + 16 * j;
            if (r < m && col < n) c[r * n + col] = sums[i][j];
        }
}

// Results (m, n) against `exact`. In f32, k numbers added one after another are off by about the rounding of the partial
// sums, whose size the norms of row and column tell. In bf16 the result is rounded, and the sums are those of tensor cores.
extern "C" __global__ void lab_check_gemm(
    const void* results, const double* exact, const double* rows, const double* columns, u64 m, u64 n, u32 bytes, double limit,
    u64 target, findings* out) {
    tally mine;
    EACH(i, m * n) {
        double expected = exact[i], scale = rows[i / n] * columns[i % n];
        double honest = bytes == 4 ? ROUNDING_F32 * (fabs(expected) + scale) : 0x1p-8 * fabs(expected) + 8 * ROUNDING_F32 * scale;
        mine.judge(out, i, target, expected, honest + SMALLEST_F32, limit, results, bytes);
    }
    mine.publish(out);
}
