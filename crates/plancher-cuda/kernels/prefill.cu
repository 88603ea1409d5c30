// What lies between the matrix products of a chunk of positions: embedding rows, residual addition with norms, query and
// key norms with rotary embedding and append to the paged cache, gated activation. All arithmetic in f32; what feeds a
// product is written as elements, zeros from a row's end to its stride.

#ifdef EMBED
// Options: HIDDEN, EMBEDDING_STRIDE (elements). One block a position.
extern "C" __global__ void __launch_bounds__(256) prefill_embed(
    float* __restrict__ residual,          // (chunk, HIDDEN)
    const element* __restrict__ embedding, // (vocabulary, EMBEDDING_STRIDE)
    const u32* __restrict__ tokens,        // (chunk)
    float scale) {
    const u32* row = (const u32*)(embedding + (u64)tokens[blockIdx.x] * EMBEDDING_STRIDE);
    float2* out = (float2*)(residual + (u64)blockIdx.x * HIDDEN);
    for (int i = threadIdx.x; i < HIDDEN / 2; i += 256) {
        float2 value = unpack_elements(row[i]);
        out[i] = make_float2(value.x * scale, value.y * scale);
    }
}
#endif

#ifdef NORMALIZE
// Options: HIDDEN (a multiple of 4), OUT_STRIDE, THREADS; DELTA (a branch's result is added first), BIAS (and its bias), POST_NORM
// (through a norm of its own). One block a position, its row in registers.
#define VECTORS ((HIDDEN / 4 + THREADS - 1) / THREADS)

// The sum over the block, in a fixed order.
static __device__ __forceinline__ float block_sum(float value) {
    __shared__ float partial[THREADS / 32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) sum += partial[i];
    return sum;
}

static __device__ __forceinline__ float rms_factor(const float4 (&row)[VECTORS], float epsilon) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) sum += row[i].x * row[i].x + row[i].y * row[i].y + row[i].z * row[i].z + row[i].w * row[i].w;
    return rsqrtf(block_sum(sum) / HIDDEN + epsilon);
}

extern "C" __global__ void __launch_bounds__(THREADS) prefill_normalize(
    element* __restrict__ out,             // (chunk, OUT_STRIDE)
    float* __restrict__ residual,          // (chunk, HIDDEN); updated with DELTA
    const float* __restrict__ delta,       // (chunk, HIDDEN), with DELTA
    const float* __restrict__ bias,        // (HIDDEN), with BIAS
    const float* __restrict__ post_weight, // (HIDDEN), with POST_NORM
    const float* __restrict__ weight,      // (HIDDEN)
    float epsilon) {
    float4* row = (float4*)(residual + (u64)blockIdx.x * HIDDEN);
    float4 values[VECTORS];
#if DELTA
    const float4* added = (const float4*)(delta + (u64)blockIdx.x * HIDDEN);
    float4 branch[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int at = i * THREADS + (int)threadIdx.x;
        branch[i] = at < HIDDEN / 4 ? added[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if BIAS
        if (at < HIDDEN / 4) {
            float4 b = ((const float4*)bias)[at];
            branch[i].x += b.x, branch[i].y += b.y, branch[i].z += b.z, branch[i].w += b.w;
        }
#endif
    }
#if POST_NORM
    float post_factor = rms_factor(branch, epsilon);
#endif
#endif
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int at = i * THREADS + (int)threadIdx.x;
        values[i] = at < HIDDEN / 4 ? row[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if DELTA
        if (at < HIDDEN / 4) {
#if POST_NORM
            float4 w = ((const float4*)post_weight)[at];
            branch[i].x *= post_factor * w.x, branch[i].y *= post_factor * w.y;
            branch[i].z *= post_factor * w.z, branch[i].w *= post_factor * w.w;
#endif
            values[i].x += branch[i].x, values[i].y += branch[i].y, values[i].z += branch[i].z, values[i].w += branch[i].w;
            row[at] = values[i];
        }
#endif
    }
    float factor = rms_factor(values, epsilon);
    uint2* target = (uint2*)(out + (u64)blockIdx.x * OUT_STRIDE);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        int at = i * THREADS + (int)threadIdx.x;
        if (at < HIDDEN / 4) {
            float4 w = ((const float4*)weight)[at];
            target[at] = make_uint2(pack_elements(values[i].x * factor * w.x, values[i].y * factor * w.y),
                                    pack_elements(values[i].z * factor * w.z, values[i].w * factor * w.w));
        }
    }
    for (int at = HIDDEN / 4 + (int)threadIdx.x; at < OUT_STRIDE / 4; at += THREADS) target[at] = make_uint2(0, 0);
}
#endif

#ifdef APPEND
// Options: N_HEADS, N_KV_HEADS, HEAD_DIM (even), STRIDE (elements of a row of projections), PAIRS (0: no rotary embedding),
// INTERLEAVED, QK_NORM, BIAS. One block a position; each warp has several heads under way, so that their loads overlap.
#define KV_BLOCK 32
#define WARPS 8
#define WORDS ((HEAD_DIM / 2 + 31) / 32) // pairs of neighbouring elements that a lane holds
#define HEADS (N_HEADS + 2 * N_KV_HEADS)
#define AT_ONCE 3

#if QK_NORM
// RMS norm of a head over the warp.
static __device__ __forceinline__ void normalize_head(float2 (&values)[WORDS], const float* weight, float epsilon) {
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) sum += values[i].x * values[i].x + values[i].y * values[i].y;
    float factor = rsqrtf(warp_sum(sum) / HEAD_DIM + epsilon);
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        int word = i * 32 + lane;
        if (word < HEAD_DIM / 2) {
            values[i].x *= factor * weight[2 * word];
            values[i].y *= factor * weight[2 * word + 1];
        }
    }
}
#endif

#if PAIRS > 0
// Element `at` of a head, rotated; `head` holds all of them, since a partner may be another lane's.
static __device__ __forceinline__ float rotated(const float* head, int at, const float2* angles) {
#if INTERLEAVED
    bool second = at % 2 == 1;
    float2 angle = angles[at / 2];
    float partner = head[at ^ 1];
#else
    bool second = at >= PAIRS;
    float2 angle = angles[second ? at - PAIRS : at];
    float partner = head[second ? at - PAIRS : at + PAIRS];
#endif
    return second ? head[at] * angle.x + partner * angle.y : head[at] * angle.x - partner * angle.y;
}
#endif

extern "C" __global__ void __launch_bounds__(WARPS * 32) prefill_append(
    element* __restrict__ projections,    // (chunk, STRIDE): query, key, value heads; queries are rotated in place
    element* __restrict__ cache,          // this layer's (blocks, N_KV_HEADS, 2, KV_BLOCK, HEAD_DIM)
    const u32* __restrict__ block_table,  // this sequence's
    int start,                            // position of the chunk's first row
    const float2* __restrict__ rotations, // (positions, PAIRS): cosine, sine
    const float* __restrict__ bias,       // (STRIDE's rows), with BIAS
    const float* __restrict__ query_norm, // (HEAD_DIM), with QK_NORM
    const float* __restrict__ key_norm,   // (HEAD_DIM), with QK_NORM
    float epsilon) {
#if PAIRS > 0
    __shared__ float heads[WARPS][HEAD_DIM];
#endif
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 position = (u32)start + blockIdx.x;
    u64 block = block_table[position / KV_BLOCK];
    element* row = projections + (u64)blockIdx.x * STRIDE;
    for (int first = warp; first < HEADS; first += WARPS * AT_ONCE) {
        float2 values[AT_ONCE][WORDS];
#pragma unroll
        for (int i = 0; i < AT_ONCE * WORDS; ++i) {
            int head = first + i / WORDS * WARPS, word = i % WORDS * 32 + lane;
            bool inside = head < HEADS && word < HEAD_DIM / 2;
            values[i / WORDS][i % WORDS] =
                inside ? unpack_elements(((const u32*)(row + head * HEAD_DIM))[word]) : make_float2(0.0f, 0.0f);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            int head = first + j * WARPS;
            if (head >= HEADS) break;
            bool is_query = head < N_HEADS, is_value = head >= N_HEADS + N_KV_HEADS;
#if BIAS
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                int word = i * 32 + lane;
                if (word >= HEAD_DIM / 2) break;
                values[j][i].x += bias[head * HEAD_DIM + 2 * word];
                values[j][i].y += bias[head * HEAD_DIM + 2 * word + 1];
            }
#endif
#if QK_NORM
            if (!is_value) normalize_head(values[j], is_query ? query_norm : key_norm, epsilon);
#endif
#if PAIRS > 0
            if (!is_value) {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < WORDS; ++i) {
                    int word = i * 32 + lane;
                    if (word < HEAD_DIM / 2) *(float2*)&heads[warp][2 * word] = values[j][i];
                }
                __syncwarp();
                const float2* angles = rotations + (u64)position * PAIRS;
#pragma unroll
                for (int i = 0; i < WORDS; ++i) {
                    int at = 2 * (i * 32 + lane);
                    if (at < 2 * PAIRS) {
                        values[j][i].x = rotated(heads[warp], at, angles);
                        values[j][i].y = rotated(heads[warp], at + 1, angles);
                    }
                }
            }
#endif
            u32* target = (u32*)(row + head * HEAD_DIM);
            if (!is_query) {
                u64 kv_head = (u64)(is_value ? head - N_HEADS - N_KV_HEADS : head - N_HEADS);
                u64 slot = ((block * N_KV_HEADS + kv_head) * 2 + is_value) * KV_BLOCK + position % KV_BLOCK;
                target = (u32*)(cache + slot * HEAD_DIM);
            }
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                int word = i * 32 + lane;
                if (word < HEAD_DIM / 2) target[word] = pack_elements(values[j][i].x, values[j][i].y);
            }
        }
    }
}
#endif

#ifdef ACTIVATE
// Options: FEED_FORWARD (a multiple of 8), IN_STRIDE, OUT_STRIDE, GELU (else SiLU), BIAS. One thread eight outputs.
static __device__ __forceinline__ float activated(float gate, float up) {
#if GELU
    float inner = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
    return 0.5f * gate * (1.0f + tanhf(inner)) * up;
#else
    return gate / (1.0f + __expf(-gate)) * up;
#endif
}

extern "C" __global__ void __launch_bounds__(256) prefill_activate(
    element* __restrict__ out,           // (chunk, OUT_STRIDE)
    const element* __restrict__ gate_up, // (chunk, IN_STRIDE): gate, then up
    const float* __restrict__ bias,      // (2 * FEED_FORWARD), with BIAS
    int chunk) {
    int index = (int)(blockIdx.x * 256 + threadIdx.x);
    int row = index / (OUT_STRIDE / 8), column = index % (OUT_STRIDE / 8) * 8;
    if (row >= chunk) return;
    uint4 result = make_uint4(0, 0, 0, 0);
    if (column < FEED_FORWARD) {
        const element* gate = gate_up + (u64)row * IN_STRIDE + column;
        uint4 g = *(const uint4*)gate, u = *(const uint4*)(gate + FEED_FORWARD);
        u32 *gates = &g.x, *ups = &u.x, *results = &result.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 a = unpack_elements(gates[i]), b = unpack_elements(ups[i]);
#if BIAS
            a.x += bias[column + 2 * i], a.y += bias[column + 2 * i + 1];
            b.x += bias[FEED_FORWARD + column + 2 * i], b.y += bias[FEED_FORWARD + column + 2 * i + 1];
#endif
            results[i] = pack_elements(activated(a.x, b.x), activated(a.y, b.y));
        }
    }
    *(uint4*)(out + (u64)row * OUT_STRIDE + column) = result;
}
#endif

#ifdef ADD_BIAS
// Options: ROWS (a multiple of 4). One block a position.
extern "C" __global__ void __launch_bounds__(256) prefill_add_bias(
    float* __restrict__ values,       // (chunk, ROWS)
    const float* __restrict__ bias) { // (ROWS)
    float4* row = (float4*)(values + (u64)blockIdx.x * ROWS);
    for (int i = threadIdx.x; i < ROWS / 4; i += 256) {
        float4 value = row[i], added = ((const float4*)bias)[i];
        row[i] = make_float4(value.x + added.x, value.y + added.y, value.z + added.z, value.w + added.w);
    }
}
#endif
