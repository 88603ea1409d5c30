// A matrix times the vectors of up to eight sequences, reading each weight once: all products of a decode step, with what
// comes before (norm) and after (bias, residual, activation) in the same kernel.
//
// A group is SUBTILES times 8 rows. The warps of a block split the columns of a group in slices of 64 (128 bytes of a row);
// each copies its own slices into its own ring in shared memory in the background, so that no barrier stands between a
// copy and its use, and multiplies 16 rows by 16 columns an instruction (mma.sync; the sequences are its 8 columns). Sums
// of the warps meet in shared memory in fixed order. The first slices of weights are asked for before the kernel waits
// for the one before it. Each sequence's arithmetic is the same at every batch size.
//
// Options: K_SIZE (columns as stored, a multiple of 64), NORM_SIZE (columns that the norm counts), ROW_COUNT (gate rows for
// OUTPUT_GATED), BATCH (1 to 8), SUBTILES, STAGES, WARPS, INPUT and OUTPUT (below), HAS_BIAS, GELU (else SiLU),
// LEAD (slices that a warp has still to ask for when its block counts as nearly done).

#define INPUT_ELEMENTS 0  // elements (BATCH, K_SIZE)
#define INPUT_NORM 1      // RMS norm of the residual stream, f32 (BATCH, K_SIZE)
#define INPUT_POST_NORM 2 // the same after adding the normed output of the branch before
#define OUTPUT_STORE 0    // f32 (BATCH, ROW_COUNT)
#define OUTPUT_ADD 1      // added to f32 (BATCH, out_stride)
#define OUTPUT_GATED 2    // activation(gate) * up as elements (BATCH, out_stride)
#define OUTPUT_LOGITS 3   // stored, and each block's largest with its row

#define MOST_POLLS 2000 // of 100 ns and more
#define THREADS (WARPS * 32)
#define SLICES (K_SIZE / 64)
#define UNITS ((SLICES + WARPS - 1) / WARPS)
#define GATED (OUTPUT == OUTPUT_GATED)
#define OUT_ROWS (GATED ? SUBTILES * 4 : SUBTILES * 8)
#define GROUPS ((ROW_COUNT + OUT_ROWS - 1) / OUT_ROWS)
#define X_RING (INPUT == INPUT_ELEMENTS)
#define WEIGHT_BYTES (SUBTILES * 1024)
#define STAGE_BYTES (WEIGHT_BYTES + (X_RING ? BATCH * 128 : 0))
#define RING_BYTES (WARPS * STAGES * STAGE_BYTES)
#define X_BYTES (X_RING ? 0 : BATCH * K_SIZE * 2)
#define VECTORS ((UNITS + 1) / 2)
#define PAIRS ((SUBTILES + 1) / 2)

static_assert(K_SIZE % 64 == 0, "rows are padded");
static_assert(NORM_SIZE % 4 == 0, "four columns at a time");
static_assert(BATCH >= 1 && BATCH <= 8, "the matrix instruction has 8 columns");
static_assert(!GATED || SUBTILES % 2 == 0, "gate and up rows come in pairs");
static_assert(OUTPUT != OUTPUT_LOGITS || SUBTILES == 2 || SUBTILES == 4, "the maximum is taken within a warp");
static_assert(OUT_ROWS * BATCH <= THREADS, "one output a thread");

struct partial_sums {
    float values[2][WARPS][SUBTILES * 8][BATCH];
    float squares[WARPS][BATCH];
    float delta_squares[WARPS][BATCH];
};

// Byte offset of a 16-byte piece in rows of 128 bytes, so that a quarter warp that reads four pieces of two rows meets
// every bank once.
__device__ __forceinline__ u32 piece_offset(int row, int piece) {
    return (u32)(row * 128 + ((piece ^ ((row & 1) << 2)) << 4));
}

__device__ __forceinline__ long long weight_row(int group, int local) {
    if (!GATED) return (long long)group * OUT_ROWS + local;
    bool up = local >= SUBTILES * 4;
    return (long long)group * OUT_ROWS + (up ? local - SUBTILES * 4 + ROW_COUNT : local);
}

__device__ __forceinline__ bool row_exists(int group, int local) {
    if (ROW_COUNT % OUT_ROWS == 0) return true;
    return group * OUT_ROWS + local % OUT_ROWS < ROW_COUNT;
}

// A warp's place in its sequence of slices.
struct cursor {
    int group, unit;
    __device__ __forceinline__ void advance() {
        if (++unit == UNITS) { unit = 0; group += (int)gridDim.x; }
    }
    __device__ __forceinline__ int slice(int warp) const { return unit * WARPS + warp; }
    __device__ __forceinline__ bool valid(int warp) const {
        return group < GROUPS && (SLICES % WARPS == 0 || slice(warp) < SLICES);
    }
};

__device__ __forceinline__ void copy_weights(u32 stage, const element* weight, const cursor& at, int warp, int lane, u64 policy) {
    if (!at.valid(warp)) return;
    int piece = lane & 7;
    const element* column = weight + at.slice(warp) * 64 + piece * 8;
#pragma unroll
    for (int i = 0; i < SUBTILES * 2; ++i) {
        int row = i * 4 + (lane >> 3);
        bool exists = row_exists(at.group, row);
        const element* source = column + (exists ? weight_row(at.group, row) : 0) * (long long)K_SIZE;
        copy_async_16_once(stage + piece_offset(row, piece), source, exists, policy);
    }
}

__device__ __forceinline__ void copy_x(u32 stage, const element* x, const cursor& at, int warp, int lane) {
    if (!at.valid(warp)) return;
#pragma unroll
    for (int i = 0; i < (BATCH * 8 + 31) / 32; ++i) {
        int row = i * 4 + (lane >> 3), piece = lane & 7;
        if (row < BATCH)
            copy_async_16(stage + WEIGHT_BYTES + piece_offset(row, piece), x + row * K_SIZE + at.slice(warp) * 64 + piece * 8, true);
    }
}

// Adds one slice's products to the sums, in two chains for each 16 rows so that instructions wait less for each other.
__device__ __forceinline__ void multiply_slice(float (&sums)[PAIRS][2][4], u32 stage, u32 x, int lane) {
    int row = lane >> 2, quarter = lane & 3;
    uint4 b[2], a[2][2 * PAIRS];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int piece = half * 4 + quarter;
        b[half] = a[half][2 * PAIRS - 1] = make_uint4(0, 0, 0, 0);
        if (row < BATCH) b[half] = load_shared_16(x + row * (X_RING ? 0 : K_SIZE * 2 - 128) + piece_offset(row, piece));
#pragma unroll
        for (int i = 0; i < SUBTILES; ++i) a[half][i] = load_shared_16(stage + piece_offset(i * 8 + row, piece));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            uint4 low = a[half][2 * i], high = a[half][2 * i + 1];
            multiply_accumulate(sums[i][0], low.x, high.x, low.y, high.y, b[half].x, b[half].y);
            multiply_accumulate(sums[i][1], low.z, high.z, low.w, high.w, b[half].z, b[half].w);
        }
}

#if !X_RING
// Where a lane's four columns of the i-th pair of slices begin, or -1 where the warp has no slice.
__device__ __forceinline__ int vector_column(int i, int warp, int lane) {
    int unit = i * 2 + (lane >> 4), slice = unit * WARPS + warp;
    bool exists = (UNITS % 2 == 0 || unit < UNITS) && (SLICES % WARPS == 0 || slice < SLICES);
    return exists ? slice * 64 + (lane & 15) * 4 : -1;
}

// Four columns, or zeros: where there is no slice, and in the padding of the last one.
template <bool FRESH>
__device__ __forceinline__ float4 load_columns(const float* row, int column) {
    if (column < 0 || (K_SIZE != NORM_SIZE && column >= NORM_SIZE)) return make_float4(0, 0, 0, 0);
    return FRESH ? load_fresh((const float4*)(row + column)) : *(const float4*)(row + column);
}

__device__ __forceinline__ float sum_of_squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

#if INPUT == INPUT_POST_NORM
// Normed branch outputs are added before the norm; block 0 keeps the sum for the kernels to come.
__device__ __forceinline__ void sum_delta_squares(const float* delta, partial_sums* partial, int warp, int lane) {
    for (int b = 0; b < BATCH; ++b) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            squares += sum_of_squares(load_columns<true>(delta + b * K_SIZE, vector_column(i, warp, lane)));
        }
        squares = warp_sum(squares);
        if (lane == 0) partial->delta_squares[warp][b] = squares;
    }
    __syncthreads();
}
#endif
#endif

__device__ __forceinline__ float rms_factor(const float (&squares)[WARPS][BATCH], int b, float epsilon) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += squares[w][b];
    return rsqrtf(sum * (1.0f / NORM_SIZE) + epsilon);
}

#if ELEMENT_F16
// A power of two that brings the largest of a warp's values to about 2^10, and its inverse: half precision has no room
// for the outliers of a residual stream.
__device__ __forceinline__ float2 power_of_two_scale(float largest) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    int exponent = min(max(264 - (int)(__float_as_uint(largest) >> 23), 1), 253);
    if (largest == 0.0f) exponent = 127;
    return make_float2(__uint_as_float((u32)exponent << 23), __uint_as_float((u32)(254 - exponent) << 23));
}
#endif

__device__ __forceinline__ float activate(float x) {
#if GELU
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    // tanh(y) = 1 - 2 / (exp(2 y) + 1)
    return 0.5f * x * (2.0f - 2.0f / (__expf(2.0f * inner) + 1.0f));
#else
    return x / (1.0f + __expf(-x));
#endif
}

// Larger for larger logits and, among equals, for smaller tokens.
__device__ __forceinline__ u64 candidate_key(float logit, u32 token) {
    return (u64)ordered_bits(logit) << 32 | (u32)~token;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) matvec(
    void* out,
    const element* __restrict__ weight, // (ROW_COUNT or twice that, K_SIZE)
    const float* __restrict__ bias,     // a row each
    const void* x,                      // see INPUT
    const float* __restrict__ norm,     // (K_SIZE)
    const float* delta,                 // INPUT_POST_NORM: the branch's output (BATCH, K_SIZE)
    const float* __restrict__ post_norm,// (K_SIZE)
    float* sum,                         // INPUT_POST_NORM: the residual stream after it (BATCH, K_SIZE)
    u64* candidates,                    // OUTPUT_LOGITS: (BATCH, blocks)
    float epsilon,
    int out_stride,
    u32* progress,       // counts blocks of this launch that have little left to ask for
    const u32* previous, // that count of the kernel before, or nothing
    u32 enough) {        // of its blocks
    extern __shared__ __align__(128) u8 shared[];
    __shared__ partial_sums partial;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 ring = shared_address(shared) + (u32)(warp * STAGES * STAGE_BYTES);
    u64 policy = evict_first_policy();

    // Copies that start when the kernel before still has much to ask for would only take its turn, and then leave the
    // memory idle between the two: so they start when it has little left. This is a matter of time alone, and bounded.
    if (previous) {
        if (threadIdx.x == 0)
            for (int i = 0; i < MOST_POLLS && load_fresh(previous) < enough; ++i) __nanosleep(100);
        __syncthreads();
    }
    int groups = (GROUPS - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    int before_end = progress && threadIdx.x == 0 ? max(groups * UNITS - STAGES - LEAD, 0) + 1 : 0;

    cursor ahead = {(int)blockIdx.x, 0};
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        copy_weights(ring + stage * STAGE_BYTES, weight, ahead, warp, lane, policy);
        copy_async_commit();
        ahead.advance();
    }

    if (--before_end == 0) atomicAdd(progress, 1u);

    // The input: either copied along with the weights, or normed once into shared memory, each warp its own columns. The
    // factor 1 / rms is applied to the sums, so that nothing waits for it.
    int out_row = threadIdx.x % OUT_ROWS, sequence = threadIdx.x / OUT_ROWS;
    bool writes = threadIdx.x < OUT_ROWS * BATCH;
#if X_RING
    wait_for_previous();
    launch_dependents();
    cursor x_ahead = {(int)blockIdx.x, 0};
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        copy_x(ring + stage * STAGE_BYTES, (const element*)x, x_ahead, warp, lane);
        copy_async_commit();
        x_ahead.advance();
    }
#else
    u32 normed = shared_address(shared) + RING_BYTES;
    float4 norm_weight[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        norm_weight[i] = load_columns<false>(norm, vector_column(i, warp, lane));
    }
#if ELEMENT_F16
    float unscale[2] = {1.0f, 1.0f};
#endif
    float squares[BATCH];
    wait_for_previous();
    launch_dependents();
#if INPUT == INPUT_POST_NORM
    sum_delta_squares(delta, &partial, warp, lane);
#endif
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
        float4 v[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            v[i] = load_columns<true>((const float*)x + b * K_SIZE, vector_column(i, warp, lane));
        }
        squares[b] = 0.0f;
#if INPUT == INPUT_POST_NORM
        float factor = rms_factor(partial.delta_squares, b, epsilon);
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            int column = vector_column(i, warp, lane);
            float4 d = load_columns<true>(delta + b * K_SIZE, column), w = load_columns<false>(post_norm, column);
            v[i].x += d.x * factor * w.x; v[i].y += d.y * factor * w.y;
            v[i].z += d.z * factor * w.z; v[i].w += d.w * factor * w.w;
            if (blockIdx.x == 0 && column >= 0) *(float4*)(sum + b * K_SIZE + column) = v[i];
        }
#endif
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            squares[b] += sum_of_squares(v[i]);
            v[i].x *= norm_weight[i].x; v[i].y *= norm_weight[i].y; v[i].z *= norm_weight[i].z; v[i].w *= norm_weight[i].w;
        }
#if ELEMENT_F16
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v[i].x), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w))));
        float2 scale = power_of_two_scale(largest);
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) { v[i].x *= scale.x; v[i].y *= scale.x; v[i].z *= scale.x; v[i].w *= scale.x; }
        if (b / 2 == (lane & 3)) unscale[b % 2] = scale.y;
#endif
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            int column = vector_column(i, warp, lane);
            if (column < 0) continue;
            u32 to = normed + b * K_SIZE * 2 + column / 64 * 128 + piece_offset(b & 1, (lane & 15) / 2) - (b & 1) * 128 + (lane & 1) * 8;
            asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(to), "r"(pack_elements(v[i].x, v[i].y)), "r"(pack_elements(v[i].z, v[i].w)) : "memory");
        }
    }
    __syncwarp();
#endif

#if OUTPUT == OUTPUT_LOGITS
    u64 best = 0;
#endif
    int buffer = 0, stage = 0;
    for (int group = (int)blockIdx.x; group < GROUPS; group += (int)gridDim.x, buffer ^= 1) {
        long long row = (long long)group * OUT_ROWS + out_row;
        bool writes_row = writes && (ROW_COUNT % OUT_ROWS == 0 || row < ROW_COUNT);
#if OUTPUT == OUTPUT_ADD
        float carried = writes_row ? load_fresh((const float*)out + (long long)sequence * out_stride + row) : 0.0f;
#endif
#if HAS_BIAS
        float bias_value = writes_row ? bias[row] : 0.0f;
#if GATED
        float up_bias = writes_row ? bias[row + ROW_COUNT] : 0.0f;
#endif
#endif
        float sums[PAIRS][2][4];
#pragma unroll
        for (int i = 0; i < PAIRS * 8; ++i) sums[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll 1
        for (int unit = 0; unit < UNITS; ++unit) {
            copy_async_wait<STAGES - 1>();
            __syncwarp();
            u32 at = ring + stage * STAGE_BYTES;
            int slice = unit * WARPS + warp;
            if (SLICES % WARPS == 0 || slice < SLICES) {
#if X_RING
                multiply_slice(sums, at, at + WEIGHT_BYTES, lane);
#else
                multiply_slice(sums, at, normed + slice * 128, lane);
#endif
            }
            __syncwarp();
            copy_weights(at, weight, ahead, warp, lane, policy);
#if X_RING
            copy_x(at, (const element*)x, ahead, warp, lane);
#endif
            copy_async_commit();
            ahead.advance();
            if (--before_end == 0) atomicAdd(progress, 1u);
            if (++stage == STAGES) stage = 0;
        }

        // Lane (row, quarter) holds rows `row` and `row + 8` of sequences `2 quarter` and `2 quarter + 1`.
        int sub_row = lane >> 2, column = (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < SUBTILES; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j)
                if (column + j < BATCH) {
                    int at = (i % 2) * 2 + j;
                    float value = sums[i / 2][0][at] + sums[i / 2][1][at];
#if ELEMENT_F16 && !X_RING
                    value *= unscale[j];
#endif
                    partial.values[buffer][warp][i * 8 + sub_row][column + j] = value;
                }
#if !X_RING
        if (group == (int)blockIdx.x) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                float total = warp_sum(squares[b]);
                if (lane == 0) partial.squares[warp][b] = total;
            }
        }
#endif
        __syncthreads();
        if (writes_row) {
            float value = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) value += partial.values[buffer][w][out_row][sequence];
#if !X_RING
            float factor = rms_factor(partial.squares, sequence, epsilon);
            value *= factor;
#endif
#if HAS_BIAS
            value += bias_value;
#endif
#if GATED
            float up = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) up += partial.values[buffer][w][out_row + OUT_ROWS][sequence];
#if !X_RING
            up *= factor;
#endif
#if HAS_BIAS
            up += up_bias;
#endif
            float gated = activate(value) * up;
#if ELEMENT_F16
            gated = fminf(fmaxf(gated, -65504.0f), 65504.0f);
#endif
            ((element*)out)[(long long)sequence * out_stride + row] = to_element(gated);
#else
#if OUTPUT == OUTPUT_ADD
            value += carried;
#endif
            ((float*)out)[(long long)sequence * out_stride + row] = value;
#endif
#if OUTPUT == OUTPUT_LOGITS
            best = max(best, candidate_key(value, (u32)row));
#endif
        }
    }
#if OUTPUT == OUTPUT_LOGITS
#pragma unroll
    for (int offset = OUT_ROWS / 2; offset > 0; offset /= 2) {
        u64 other = __shfl_xor_sync(0xffffffffu, best, offset);
        best = max(best, other);
    }
    if (writes && out_row == 0) candidates[sequence * gridDim.x + blockIdx.x] = best;
#endif
}
