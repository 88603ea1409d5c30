// The megakernel's attention: one key/value head's queries over one split of its positions, by the eight consumers of a worker.
// Pages of past positions arrive through the ring; page p belongs to consumer p % 8, and the one whose page the new position
// falls into also takes in the new key and value, straight from the exchange, and appends them. Tensor cores multiply: rows 0 to 7
// of the instruction are query heads; probabilities have a high part there and a low part in rows 8 to 15. The consumers' results
// meet in shared memory; with one active split the worker publishes the outcome, else its part, for the finalizers to combine.

#define SLICES ((HEAD_DIM + 31) / 32)  // of 32 elements, for scores
#define HALVES ((HEAD_DIM + 63) / 64)  // of 64 elements, for values

// Elements 32 * slice + 8 * j + i of a head, j = lane % 4.
struct head_slice {
    float x[SLICES][8];
};

static __device__ __forceinline__ bool has_piece(int slice, int j) { return HEAD_DIM % 32 == 0 || slice * 32 + j * 8 < HEAD_DIM; }

static __device__ __forceinline__ void unpack_slice(head_slice& out, const uint4 (&raw)[SLICES]) {
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
        const u32 words[4] = {raw[s].x, raw[s].y, raw[s].z, raw[s].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 pair = unpack_elements(words[i]);
            out.x[s][2 * i] = pair.x;
            out.x[s][2 * i + 1] = pair.y;
        }
    }
}

// RMS norm of a head and rotary embedding at a position. `scratch`: HEAD_DIM floats for each group of four lanes.
static __device__ __forceinline__ void prepare_head(head_slice& head, const float* norm, const float2* rotation, float epsilon, float* scratch, int j) {
#if QK_NORM
    float squares = 0.0f;
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int i = 0; i < 8; ++i) squares += head.x[s][i] * head.x[s][i];
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    float factor = rsqrtf(squares * (1.0f / HEAD_DIM) + epsilon);
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
        if (has_piece(s, j)) {
            float4 a = __ldg((const float4*)(norm + s * 32 + j * 8)), b = __ldg((const float4*)(norm + s * 32 + j * 8) + 1);
            const float w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 8; ++i) head.x[s][i] *= factor * w[i];
        }
#endif
#if ROTARY_PAIRS > 0
    if (rotation == nullptr) return; // the same for the whole warp
#if ROPE_INTERLEAVED
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            int d = s * 32 + j * 8 + i;
            if (d >= 2 * ROTARY_PAIRS) continue;
            float2 r = __ldg(rotation + d / 2);
            float a = head.x[s][i], b = head.x[s][i + 1];
            head.x[s][i] = a * r.x - b * r.y;
            head.x[s][i + 1] = b * r.x + a * r.y;
        }
#elif ROTARY_PAIRS % 32 == 0
    // Both of a pair are this lane's.
#pragma unroll
    for (int s = 0; s < ROTARY_PAIRS / 32; ++s)
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            float4 r = __ldg((const float4*)(rotation + s * 32 + j * 8 + i));
            float a = head.x[s][i], b = head.x[s + ROTARY_PAIRS / 32][i];
            head.x[s][i] = a * r.x - b * r.y;
            head.x[s + ROTARY_PAIRS / 32][i] = b * r.x + a * r.y;
            a = head.x[s][i + 1], b = head.x[s + ROTARY_PAIRS / 32][i + 1];
            head.x[s][i + 1] = a * r.z - b * r.w;
            head.x[s + ROTARY_PAIRS / 32][i + 1] = b * r.z + a * r.w;
        }
#else
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
        if (has_piece(s, j))
#pragma unroll
            for (int i = 0; i < 8; ++i) scratch[s * 32 + j * 8 + i] = head.x[s][i];
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int d = s * 32 + j * 8 + i;
            if (d >= 2 * ROTARY_PAIRS) continue;
            bool first = d < ROTARY_PAIRS;
            float2 r = __ldg(rotation + (first ? d : d - ROTARY_PAIRS));
            float other = scratch[first ? d + ROTARY_PAIRS : d - ROTARY_PAIRS];
            head.x[s][i] = first ? head.x[s][i] * r.x - other * r.y : head.x[s][i] * r.x + other * r.y;
        }
    __syncwarp();
#endif
#endif
}

static __device__ __forceinline__ uint4 pack_slice(const float (&x)[8]) {
    return make_uint4(pack_elements(x[0], x[1]), pack_elements(x[2], x[3]), pack_elements(x[4], x[5]), pack_elements(x[6], x[7]));
}

// Running softmax of a consumer: lane / 4 is the query head. `out[h][t]`: elements 64 * h + 16 * j + t and + 8, of the high and
// then of the low parts of the probabilities.
struct attention_state {
    float maximum, sum;
    float out[HALVES][8][4];
};

static __device__ __forceinline__ void attend_to_page(
    attention_state& state, const uint4 (&queries)[SLICES], u32 keys, u32 first, u32 start, u32 position, float scale, int lane) {
    const int n = lane >> 2, j = lane & 3;
    float scores[4][4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        scores[t][0] = scores[t][1] = scores[t][2] = scores[t][3] = 0.0f;
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            uint4 k = make_uint4(0, 0, 0, 0);
            if (has_piece(s, j)) k = load_shared_16(keys + (t * 8 + n) * (HEAD_DIM * 2) + s * 64 + j * 16);
            multiply_accumulate(scores[t], queries[s].x, 0, queries[s].y, 0, k.x, k.y);
            multiply_accumulate(scores[t], queries[s].z, 0, queries[s].w, 0, k.z, k.w);
        }
    }
    float maximum = state.maximum;
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 at = first + t * 8 + j * 2 + i;
            scores[t][i] = at < position && at >= start ? scores[t][i] * scale : minus_infinity();
            maximum = fmaxf(maximum, scores[t][i]);
        }
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
    float correction = exponential2(state.maximum - maximum);
    state.maximum = maximum;
    state.sum *= correction;
    u32 high[4], low[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        float a = exponential2(scores[t][0] - maximum), b = exponential2(scores[t][1] - maximum);
        state.sum += a + b;
        high[t] = pack_elements(a, b);
        float2 rounded = unpack_elements(high[t]);
        low[t] = pack_elements(a - rounded.x, b - rounded.y);
    }
    const bool partial = first + PAGE > position; // rows that are not written yet may hold anything, NaN too
    const u32 values = keys + PAGE * HEAD_DIM * 2;
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
        for (int t = 0; t < 8; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) state.out[h][t][i] *= correction;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            uint4 rows[4]; // positions 16 * pair + 2j, + 1, and + 8, + 9
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                int row = pair * 16 + (r >> 1) * 8 + j * 2 + (r & 1);
                rows[r] = make_uint4(0, 0, 0, 0);
                if ((HEAD_DIM % 64 == 0 || h * 64 + n * 8 < HEAD_DIM) && !(partial && first + row >= position))
                    rows[r] = load_shared_16(values + row * (HEAD_DIM * 2) + h * 128 + n * 16);
            }
            const u32 a0[4] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w}, a1[4] = {rows[1].x, rows[1].y, rows[1].z, rows[1].w};
            const u32 b0[4] = {rows[2].x, rows[2].y, rows[2].z, rows[2].w}, b1[4] = {rows[3].x, rows[3].y, rows[3].z, rows[3].w};
#pragma unroll
            for (int t = 0; t < 8; ++t) {
                const u32 select = t & 1 ? 0x7632 : 0x5410;
                multiply_accumulate(state.out[h][t], high[2 * pair], low[2 * pair], high[2 * pair + 1], low[2 * pair + 1],
                                    __byte_perm(a0[t / 2], a1[t / 2], select), __byte_perm(b0[t / 2], b1[t / 2], select));
            }
        }
    }
}

static __device__ __forceinline__ void attend(consumer& c, const uint4& instruction, const mega_layer& layer, const u32* table, u32 position, u32* copy) {
    const int lane = c.lane, n = lane >> 2, j = lane & 3;
    const u32 index = layer_of(instruction), kv_head = instruction.y, split = instruction.z;
    const u32 start = window_start(layer.window, position), splits = active_splits(position);
    if (split >= splits) return; // no position is this split's yet
    const u32 own_page = position / PAGE;
    u32 page = first_own_page(start / PAGE, split);
    const bool is_new = own_page / 8 % SPLITS == split && (own_page & 7) == (u32)c.warp;
    // Consumer w's pages of this split: the first in the first group of 8 may be missing.
    bool active = is_new;
    for (u32 q = page, i = 0; q * PAGE < position && i < 16; q = next_own_page(q), ++i) active = active || (q & 7) == (u32)c.warp;

    u32* slots = copy + index * LAYER_WORDS;
    const u32* raw_rows = slots + QUERY_KEY_VALUE;
    const float2* rotation = layer.rope != 0 ? (const float2*)layer.rope + (size_t)position * (ROTARY_PAIRS > 0 ? ROTARY_PAIRS : 1) : nullptr;
    const float* norms = (const float*)c.p.head_norms + (size_t)index * 2 * HEAD_DIM;
    const float scale = layer.scale * 1.4426950408889634f;
    uint4 queries[SLICES];
    attention_state state;
    state.maximum = minus_infinity();
    state.sum = 0.0f;
#pragma unroll
    for (int h = 0; h < HALVES; ++h)
#pragma unroll
        for (int t = 0; t < 8; ++t) state.out[h][t][0] = state.out[h][t][1] = state.out[h][t][2] = state.out[h][t][3] = 0.0f;

    if (active) {
        uint4 keys[SLICES], values[HALVES][2];
#pragma unroll
        for (int s = 0; s < SLICES; ++s) queries[s] = keys[s] = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int h = 0; h < HALVES; ++h) values[h][0] = values[h][1] = make_uint4(0, 0, 0, 0);
        const u32* query = raw_rows + ((kv_head * GROUP + (n < GROUP ? n : 0)) * HEAD_DIM + j * 8) / 2;
        const u32* key = raw_rows + (QUERY_ROWS + kv_head * HEAD_DIM + j * 8) / 2;
        const u32* value = raw_rows + (QUERY_ROWS + KV_ROWS + kv_head * HEAD_DIM + j * 16) / 2;
        u32 spins = 0;
        while (true) {
            bool there = true;
#pragma unroll
            for (int s = 0; s < SLICES; ++s)
                if (has_piece(s, j)) queries[s] = load_words(query + s * 16);
            if (is_new) {
#pragma unroll
                for (int s = 0; s < SLICES; ++s)
                    if (has_piece(s, j)) keys[s] = load_words(key + s * 16);
#pragma unroll
                for (int h = 0; h < HALVES; ++h)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        if (HEAD_DIM % 64 == 0 || h * 64 + j * 16 + i * 8 < HEAD_DIM) values[h][i] = load_words(value + h * 32 + i * 4);
            }
#pragma unroll
            for (int s = 0; s < SLICES; ++s) there = there && !absent(queries[s]) && !absent(keys[s]);
#pragma unroll
            for (int h = 0; h < HALVES; ++h) there = there && !absent(values[h][0]) && !absent(values[h][1]);
            if (there) break;
#if TRACE
            ++c.polls;
#endif
            if (waited_enough(c.p, spins, WAIT_QUERIES, c.here, (u32)(raw_rows - (const u32*)c.p.exchange))) break;
        }
        __syncwarp();
        float* scratch = (float*)c.region_pointer + (n < GROUP ? n : 0) * HEAD_DIM;
        head_slice head;
        unpack_slice(head, queries);
        prepare_head(head, norms, rotation, c.p.epsilon, scratch, j);
#pragma unroll
        for (int s = 0; s < SLICES; ++s) queries[s] = n < GROUP ? pack_slice(head.x[s]) : make_uint4(0, 0, 0, 0);
        if (is_new) {
            unpack_slice(head, keys);
            prepare_head(head, norms + HEAD_DIM, rotation, c.p.epsilon, (float*)c.region_pointer, j);
#pragma unroll
            for (int s = 0; s < SLICES; ++s) keys[s] = pack_slice(head.x[s]);
            float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                multiply_accumulate(score, queries[s].x, 0, queries[s].y, 0, keys[s].x, keys[s].y);
                multiply_accumulate(score, queries[s].z, 0, queries[s].w, 0, keys[s].z, keys[s].w);
            }
            state.maximum = score[0] * scale;
            state.sum = j == 0 ? 1.0f : 0.0f;
#pragma unroll
            for (int h = 0; h < HALVES; ++h)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const u32 words[4] = {values[h][i].x, values[h][i].y, values[h][i].z, values[h][i].w};
#pragma unroll
                    for (int t = 0; t < 8; ++t) state.out[h][t][i] = to_float((element)(words[t / 2] >> t % 2 * 16));
                }
            // Kept for the cache.
            if (n == 0) {
#pragma unroll
                for (int s = 0; s < SLICES; ++s)
                    if (has_piece(s, j)) c.shared.fresh[0][s * 4 + j] = keys[s];
#pragma unroll
                for (int h = 0; h < HALVES; ++h)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        if (HEAD_DIM % 64 == 0 || h * 64 + j * 16 + i * 8 < HEAD_DIM) c.shared.fresh[1][h * 8 + j * 2 + i] = values[h][i];
            }
        }
    }

    // Pages of the past, stage by stage; also those of the other consumers must have come before the stage is let go.
#pragma unroll 1
    while (page * PAGE < position) {
        wait_stage(c);
        const u32 keys_of = c.ring - c.warp * (STAGE_BYTES / CONSUMERS) + c.at.slot * STAGE_BYTES;
#pragma unroll 1
        for (u32 i = 0; i < PAGES_PER_STAGE && page * PAGE < position; ++i, page = next_own_page(page))
            if ((page & 7) == (u32)c.warp)
                attend_to_page(state, queries, keys_of + i * PAGE_BYTES, page * PAGE, start, position, scale, lane);
        release_stage(c);
    }

    // The consumers' results meet.
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 2);
    if (active && n < GROUP) {
        float* mine = (float*)c.region_pointer + n * HEAD_DIM;
#pragma unroll
        for (int h = 0; h < HALVES; ++h)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int d = h * 64 + j * 16 + i * 8;
                if (HEAD_DIM % 64 == 0 || d < HEAD_DIM) {
                    float4* place = (float4*)(mine + d);
                    place[0] = make_float4(state.out[h][0][i] + state.out[h][0][i + 2], state.out[h][1][i] + state.out[h][1][i + 2],
                                           state.out[h][2][i] + state.out[h][2][i + 2], state.out[h][3][i] + state.out[h][3][i + 2]);
                    place[1] = make_float4(state.out[h][4][i] + state.out[h][4][i + 2], state.out[h][5][i] + state.out[h][5][i + 2],
                                           state.out[h][6][i] + state.out[h][6][i + 2], state.out[h][7][i] + state.out[h][7][i + 2]);
                }
            }
    }
    if (j == 0) {
        c.shared.maxima[c.warp][n] = active ? state.maximum : minus_infinity();
        c.shared.sums[c.warp][n] = active ? state.sum : 0.0f;
    }
    block_barrier<3, CONSUMERS * 32>();
    const char* regions = c.region_pointer - c.warp * REGION_BYTES;
#pragma unroll 1
    for (int i = c.warp * 32 + lane; i < GROUP * HEAD_DIM / 2; i += CONSUMERS * 32) {
        const int head = i / (HEAD_DIM / 2), d = i % (HEAD_DIM / 2) * 2;
        float maximum = minus_infinity(), sum = 0.0f, x = 0.0f, y = 0.0f;
#pragma unroll
        for (int w = 0; w < CONSUMERS; ++w) maximum = fmaxf(maximum, c.shared.maxima[w][head]);
#pragma unroll
        for (int w = 0; w < CONSUMERS; ++w) {
            float weight = exponential2(c.shared.maxima[w][head] - maximum);
            if (c.shared.maxima[w][head] == minus_infinity()) continue;
            float2 part = *(const float2*)(regions + w * REGION_BYTES + (head * HEAD_DIM + d) * 4);
            sum += c.shared.sums[w][head] * weight;
            x += part.x * weight;
            y += part.y * weight;
        }
        float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
        if (!(sum == sum)) factor = sum; // NaN stays NaN
        u32 word = present(pack_elements(x * factor, y * factor));
        u32 at = (kv_head * GROUP * HEAD_DIM) / 2 + i;
        if (splits == 1) {
            store_word(slots + ATTENDED + at, word);
        } else {
            store_word(slots + PARTIALS + split * (QUERY_ROWS / 2) + at, word);
            if (d == 0) {
                u32* pair = slots + PARTIAL_SUMS + (split * HEADS + kv_head * GROUP + head) * 2;
                store_word(pair, present(__float_as_uint(maximum)));
                store_word(pair + 1, present(__float_as_uint(sum)));
            }
        }
    }
    block_barrier<3, CONSUMERS * 32>();

    if (is_new) {
        char* place = (char*)layer.cache + ((size_t)table[kept_page(own_page)] * KV_HEADS + kv_head) * PAGE_BYTES + position % PAGE * (HEAD_DIM * 2);
        __syncwarp();
        if (lane < HEAD_DIM / 8) {
            *(uint4*)(place + lane * 16) = c.shared.fresh[0][lane];
            *(uint4*)(place + PAGE * HEAD_DIM * 2 + lane * 16) = c.shared.fresh[1][lane];
        }
        // This worker's producer will copy the page in a later step.
        __threadfence();
        fence_copies();
        __syncwarp();
        if (lane == 0) store_shared_release(&c.shared.appended[c.warp], c.here.step * INSTRUCTIONS + c.here.instruction + 1);
    }
}
