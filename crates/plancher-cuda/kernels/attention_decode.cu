// Attention of one new position of each sequence over its paged cache, with everything between the query/key/value
// product and the output product: norm of query and key heads, rotary embedding, append to the cache.
//
// A cluster of SPLITS blocks serves up to 8 query heads of one key/value head. Pages of 32 positions go to the warps of
// the cluster in turn; a warp copies its page's keys and values into shared memory before it waits for the kernel before
// (only the newest row is not there yet), multiplies on the tensor cores with queries and probabilities as a high and a low
// half (rows 0-7 and 8-15 of the instruction), and keeps a running softmax. Warps meet in shared memory, blocks through
// the cluster's, both in fixed order. How pages are dealt out depends on the sequence alone, never on the batch.
//
// Options: HEAD_DIM (a multiple of 8, up to 256), GROUP (query heads of a key/value head), KV_HEADS, SPLITS (1: no
// cluster), WARPS, ROTARY_PAIRS (0: none), ROPE_INTERLEAVED, QK_NORM.

#if __CUDA_ARCH__ < 900 // no clusters
#undef SPLITS
#define SPLITS 1
#endif
#define THREADS (WARPS * 32)
#define PAGE 32
#define HEADS (GROUP < 8 ? GROUP : 8)
#define HEAD_BLOCKS ((GROUP + 7) / 8)
#define QUERY_ROWS (KV_HEADS * GROUP * HEAD_DIM)
#define QKV_ROWS (QUERY_ROWS + 2 * KV_HEADS * HEAD_DIM)
#define PADDED_DIM ((HEAD_DIM + 31) / 32 * 32)
#define PIECES (HEAD_DIM / 8)
// Row strides in bytes: 64 modulo 128 for reads of four pieces of two rows, 16 modulo 128 for eight rows of ldmatrix.
#define KEY_STRIDE (PADDED_DIM * 2 + (PADDED_DIM % 64 == 0 ? 64 : 0))
#define VALUE_STRIDE (PADDED_DIM * 2 + 16)
#define KEY_BYTES (PAGE * KEY_STRIDE)
#define PAGE_BYTES (KEY_BYTES + PAGE * VALUE_STRIDE)
#define QUERY_STRIDE (PADDED_DIM * 2 + (PADDED_DIM % 64 == 0 ? 64 : 0))
#define SLICES (PADDED_DIM / 32)
#define ELEMENTS ((HEAD_DIM + 31) / 32)
#define OUTPUTS (HEADS * HEAD_DIM)
#define TASKS ((HEADS + 1 + WARPS) / WARPS) // of a warp: query heads, key and value

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= 256, "pieces of 16 bytes");
static_assert(PAGE_BYTES >= HEADS * HEAD_DIM * 4, "a warp's result takes the place of its page");

struct softmax_state {
    float maximum[WARPS][8], sum[WARPS][8];
    float block_maximum[8], block_sum[8];
};

// Keys of a page of one head, values right behind them: `(2, 32, HEAD_DIM)`.
__device__ __forceinline__ element* page_rows(element* cache, u32 block, int kv_head) {
    return cache + ((long long)block * KV_HEADS + kv_head) * (2 * PAGE * HEAD_DIM);
}

// Rows from `position` on are zeros: they are not written yet.
__device__ __forceinline__ void copy_rows(u32 destination, int stride, const element* rows, int first, int position, int lane) {
#pragma unroll 4
    for (int i = lane; i < PAGE * PIECES; i += 32) {
        int row = i / PIECES, piece = i % PIECES;
        copy_async_16(destination + row * stride + piece * 16, rows + row * HEAD_DIM + piece * 8, first + row < position);
    }
}

// Norm and rotary embedding of one head, `x`, by one warp; the result is in `scratch`.
__device__ __forceinline__ void prepare_head(
    float* scratch, float (&x)[ELEMENTS], const float* norm, const float2* rotation, float epsilon, int lane) {
#if QK_NORM
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) squares += x[i] * x[i];
    float factor = rsqrtf(warp_sum(squares) * (1.0f / HEAD_DIM) + epsilon);
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) {
        int d = i * 32 + lane;
        if (d < HEAD_DIM) x[i] *= factor * norm[d];
    }
#endif
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i)
        if (i * 32 + lane < HEAD_DIM) scratch[i * 32 + lane] = x[i];
#if ROTARY_PAIRS > 0
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) {
        int d = i * 32 + lane;
        if (d >= 2 * ROTARY_PAIRS) continue;
#if ROPE_INTERLEAVED
        int pair = d / 2, partner = d ^ 1;
        bool first = d % 2 == 0;
#else
        bool first = d < ROTARY_PAIRS;
        int pair = first ? d : d - ROTARY_PAIRS, partner = first ? d + ROTARY_PAIRS : pair;
#endif
        float2 r = rotation[pair];
        x[i] = first ? x[i] * r.x - scratch[partner] * r.y : x[i] * r.x + scratch[partner] * r.y;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i)
        if (i * 32 + lane < HEAD_DIM) scratch[i * 32 + lane] = x[i];
#endif
    __syncwarp();
}

#if SPLITS > 1
__device__ __forceinline__ float load_cluster(u32 address, int rank) {
    u32 remote;
    float x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(remote) : "memory");
    return x;
}

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
#endif

// A warp's running softmax over its pages: `lane / 4` is the head, `lane % 4 * 2` and the next the elements of each piece.
struct running {
    float maximum, sum;
    float out[PIECES][2];
};

__device__ __forceinline__ void attend_page(
    running& state, u32 keys, u32 queries, int first, int window_start, int position, float scale, int lane) {
    int row = lane >> 2, quarter = lane & 3;
    float scores[4][4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[tile][i] = 0.0f;
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        uint4 high = load_shared_16(queries + row * QUERY_STRIDE + slice * 64 + quarter * 16);
        uint4 low = load_shared_16(queries + (8 + row) * QUERY_STRIDE + slice * 64 + quarter * 16);
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
            uint4 k = load_shared_16(keys + (tile * 8 + row) * KEY_STRIDE + slice * 64 + quarter * 16);
            multiply_accumulate(scores[tile], high.x, low.x, high.y, low.y, k.x, k.y);
            multiply_accumulate(scores[tile], high.z, low.z, high.w, low.w, k.z, k.w);
        }
    }
    float maximum = state.maximum;
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int p = first + tile * 8 + quarter * 2 + i;
            float score = (scores[tile][i] + scores[tile][i + 2]) * scale;
            scores[tile][i] = p <= position && p >= window_start ? score : minus_infinity();
            maximum = fmaxf(maximum, scores[tile][i]);
        }
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
    float correction = exponential2(state.maximum - maximum);
    state.maximum = maximum;
    state.sum *= correction;
    u32 high[4], low[4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
        float a = exponential2(scores[tile][0] - maximum), b = exponential2(scores[tile][1] - maximum);
        state.sum += a + b;
        high[tile] = pack_elements(a, b);
        low[tile] = pack_elements(a - to_float((element)high[tile]), b - to_float((element)(high[tile] >> 16)));
    }
    u32 values = keys + KEY_BYTES + lane * VALUE_STRIDE;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        u32 v[4];
        load_matrices_transposed(v, values + piece * 16);
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_accumulate(sums, high[0], low[0], high[1], low[1], v[0], v[1]);
        multiply_accumulate(sums, high[2], low[2], high[3], low[3], v[2], v[3]);
#pragma unroll
        for (int i = 0; i < 2; ++i) state.out[piece][i] = state.out[piece][i] * correction + (sums[i] + sums[i + 2]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_decode(
    element* out,                       // (batch, out_stride)
    const float* qkv,                   // (batch, QKV_ROWS)
    element* cache,                     // of this layer: (blocks, KV_HEADS, 2, 32, HEAD_DIM)
    const u32* __restrict__ block_table,// (batch, max_blocks)
    const u32* positions,               // (batch)
    const float* __restrict__ query_norm, // (HEAD_DIM)
    const float* __restrict__ key_norm,   // (HEAD_DIM)
    const float2* __restrict__ rope,    // (positions, ROTARY_PAIRS): cosine, sine
    float scale, float epsilon, int window, int max_blocks, int out_stride) {
    extern __shared__ __align__(128) u8 shared[]; // WARPS pages
    __shared__ __align__(16) u8 query_bytes[16 * QUERY_STRIDE];
    __shared__ float scratch[WARPS][HEAD_DIM];
    __shared__ __align__(16) element new_key[HEAD_DIM], new_value[HEAD_DIM];
    __shared__ float2 rotation[ROTARY_PAIRS > 0 ? ROTARY_PAIRS : 1];
    __shared__ softmax_state states;
#if SPLITS > 1
    __shared__ float block_out[OUTPUTS];
#endif
    launch_dependents();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int split = (int)blockIdx.x, kv_head = (int)blockIdx.y / HEAD_BLOCKS, head_block = (int)blockIdx.y % HEAD_BLOCKS, sequence = (int)blockIdx.z;
    int heads = min(HEADS, GROUP - head_block * 8);

    int position = (int)load_fresh(positions + sequence);
    int window_start = window > 0 ? max(position + 1 - window, 0) : 0;
    int first_page = window_start / PAGE, pages = position / PAGE - first_page + 1;
    int splits = min(SPLITS, (pages + WARPS - 1) / WARPS);
    if (split >= splits) return;
    const u32* table = block_table + (long long)sequence * max_blocks;
    u32 keys = shared_address(shared) + warp * PAGE_BYTES;

    // Everything that does not depend on the kernel before.
    int page = split * WARPS + warp;
    if (page < pages) {
        const element* rows = page_rows(cache, table[first_page + page], kv_head);
        copy_rows(keys, KEY_STRIDE, rows, (first_page + page) * PAGE, position, lane);
        copy_rows(keys + KEY_BYTES, VALUE_STRIDE, rows + PAGE * HEAD_DIM, (first_page + page) * PAGE, position, lane);
    }
    copy_async_commit();
    u32 queries = shared_address(query_bytes);
    for (int i = threadIdx.x; i < 16 * QUERY_STRIDE / 4; i += THREADS) ((u32*)query_bytes)[i] = 0;
    // Lane `row`: what pads a key's row to whole slices.
    for (int piece = PIECES; piece < PADDED_DIM / 8; ++piece)
        *(uint4*)(shared + warp * PAGE_BYTES + lane * KEY_STRIDE + piece * 16) = make_uint4(0, 0, 0, 0);
    for (int i = threadIdx.x; i < ROTARY_PAIRS; i += THREADS) rotation[i] = rope[(long long)position * ROTARY_PAIRS + i];
    __syncthreads();
    wait_for_previous();

    // Queries as high and low halves; the new key and value in every block, since it is only one row. All loads first.
    const float* row = qkv + (long long)sequence * QKV_ROWS;
    float x[TASKS][ELEMENTS];
#pragma unroll
    for (int t = 0; t < TASKS; ++t) {
        int task = warp + t * WARPS;
        int head = task < heads ? kv_head * GROUP + head_block * 8 + task : KV_HEADS * (GROUP + task - heads) + kv_head;
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i) {
            int d = i * 32 + lane;
            x[t][i] = task < heads + 2 && d < HEAD_DIM ? load_fresh(row + head * HEAD_DIM + d) : 0.0f;
        }
    }
#pragma unroll
    for (int t = 0; t < TASKS; ++t) {
        int task = warp + t * WARPS;
        if (task < heads) {
            prepare_head(scratch[warp], x[t], query_norm, rotation, epsilon, lane);
            for (int d = lane; d < HEAD_DIM; d += 32) {
                element high = to_element(scratch[warp][d]);
                ((element*)(query_bytes + task * QUERY_STRIDE))[d] = high;
                ((element*)(query_bytes + (8 + task) * QUERY_STRIDE))[d] = to_element(scratch[warp][d] - to_float(high));
            }
        } else if (task == heads) {
            prepare_head(scratch[warp], x[t], key_norm, rotation, epsilon, lane);
            for (int d = lane; d < HEAD_DIM; d += 32) new_key[d] = to_element(scratch[warp][d]);
        } else if (task == heads + 1) {
#pragma unroll
            for (int i = 0; i < ELEMENTS; ++i)
                if (i * 32 + lane < HEAD_DIM) new_value[i * 32 + lane] = to_element(x[t][i]);
        }
        __syncwarp();
    }
    __syncthreads();

    running state;
    state.maximum = minus_infinity();
    state.sum = 0.0f;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece)
#pragma unroll
        for (int i = 0; i < 2; ++i) state.out[piece][i] = 0.0f;
    scale *= 1.4426950408889634f; // exponentials to base 2
    for (; page < pages; page += SPLITS * WARPS) {
        int first = (first_page + page) * PAGE;
        copy_async_wait<0>();
        __syncwarp();
        if (page == pages - 1) {
            element* rows = page_rows(cache, table[first_page + page], kv_head) + (position - first) * HEAD_DIM;
            if (lane < PIECES) {
                uint4 key = ((const uint4*)new_key)[lane], value = ((const uint4*)new_value)[lane];
                u8* at = shared + warp * PAGE_BYTES;
                *(uint4*)(at + (position - first) * KEY_STRIDE + lane * 16) = key;
                *(uint4*)(at + KEY_BYTES + (position - first) * VALUE_STRIDE + lane * 16) = value;
                if (head_block == 0) {
                    ((uint4*)rows)[lane] = key;
                    ((uint4*)(rows + PAGE * HEAD_DIM))[lane] = value;
                }
            }
            __syncwarp();
        }
        attend_page(state, keys, queries, first, window_start, position, scale, lane);
        int next = page + SPLITS * WARPS;
        if (next < pages) {
            __syncwarp();
            const element* rows = page_rows(cache, table[first_page + next], kv_head);
            copy_rows(keys, KEY_STRIDE, rows, (first_page + next) * PAGE, position, lane);
            copy_rows(keys + KEY_BYTES, VALUE_STRIDE, rows + PAGE * HEAD_DIM, (first_page + next) * PAGE, position, lane);
            copy_async_commit();
        }
    }

    // The warp's result takes the place of its page.
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 2);
    __syncwarp();
    int head = lane >> 2;
    if (head < heads && split * WARPS + warp < pages) {
        float* to = (float*)(shared + warp * PAGE_BYTES) + head * HEAD_DIM;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
            *(float2*)(to + piece * 8 + (lane & 3) * 2) =
                make_float2(state.out[piece][0], state.out[piece][1]);
        if ((lane & 3) == 0) {
            states.maximum[warp][head] = state.maximum;
            states.sum[warp][head] = state.sum;
        }
    }
    __syncthreads();
    int warps = min(WARPS, pages - split * WARPS);
    element* result = out + (long long)sequence * out_stride + (kv_head * GROUP + head_block * 8) * HEAD_DIM;
    for (int i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        int h = i / HEAD_DIM;
        float maximum = minus_infinity(), sum = 0.0f, value = 0.0f;
        for (int w = 0; w < warps; ++w) maximum = fmaxf(maximum, states.maximum[w][h]);
        for (int w = 0; w < warps; ++w) {
            float factor = exponential2(states.maximum[w][h] - maximum);
            sum += factor * states.sum[w][h];
            value += factor * ((const float*)(shared + w * PAGE_BYTES))[i];
        }
        if (splits == 1) {
            result[i] = to_element(value / sum);
        } else {
#if SPLITS > 1
            block_out[i] = value;
            if (i % HEAD_DIM == 0) {
                states.block_maximum[h] = maximum;
                states.block_sum[h] = sum;
            }
#endif
        }
    }
#if SPLITS > 1
    if (splits == 1) return;
    cluster_arrive();
    cluster_wait();
    // Each block finishes its share of the outputs.
    for (int i = (int)threadIdx.x * splits + split; i < heads * HEAD_DIM; i += THREADS * splits) {
        int h = i / HEAD_DIM;
        float maxima[SPLITS], sums[SPLITS], values[SPLITS];
        float maximum = minus_infinity(), sum = 0.0f, value = 0.0f;
#pragma unroll
        for (int s = 0; s < SPLITS; ++s)
            if (s < splits) {
                maxima[s] = load_cluster(shared_address(&states.block_maximum[h]), s);
                sums[s] = load_cluster(shared_address(&states.block_sum[h]), s);
                values[s] = load_cluster(shared_address(&block_out[i]), s);
                maximum = fmaxf(maximum, maxima[s]);
            }
#pragma unroll
        for (int s = 0; s < SPLITS; ++s)
            if (s < splits) {
                float factor = exponential2(maxima[s] - maximum);
                sum += factor * sums[s];
                value += factor * values[s];
            }
        result[i] = to_element(value / sum);
    }
    // Shared memory stays until every block has read it.
    cluster_arrive();
    cluster_wait();
#endif
}
