// The megakernel's attention: one key/value head's queries over one split of its positions, by the eight consumers of a worker.
// Pages of past positions arrive through the ring; of page p consumer 2 p % 8 takes the first 16, the next one the others. One takes
// in the new key and value, straight from the exchange, and appends them. Tensor cores multiply: rows 0 to 7
// of the instruction are query heads; probabilities have a high part there and a low part in rows 8 to 15. The consumers' results
// meet in shared memory; with one active split the worker publishes the outcome, else its part, for the finalizers to combine.

#define SLICES ((HEAD_DIM + 31) / 32)  // of 32 elements, for scores
#define HALVES ((HEAD_DIM + 63) / 64)  // of 64 elements, for values

static __device__ __forceinline__ bool has_piece(int slice, int j) { return HEAD_DIM % 32 == 0 || slice * 32 + j * 8 < HEAD_DIM; }

#define ROW_WORDS (HEAD_DIM / 2)
#if ROPE_INTERLEAVED
#define PAIRED_WORDS 0 // both of a pair are in one word
#else
#define PAIRED_WORDS (ROTARY_PAIRS / 2)
#endif
#define SINGLE_WORDS (ROW_WORDS - 2 * PAIRED_WORDS)
#define SINGLES ((SINGLE_WORDS + 31) / 32)

// A query or key from the exchange, by one warp: RMS norm of the head, rotary embedding, and into shared memory; or a value as it
// is (`raw`). A lane has a word of each half of what is rotated, and some of the rest.
static __device__ __forceinline__ void prepare_row(consumer& c, const u32* row, const float* norm, u32 rotation, u32 out, bool raw) {
    const int lane = c.lane;
    u32 words[2 + SINGLES];
    const u32* addresses[2 + SINGLES];
#pragma unroll
    for (int i = 0; i < 2 + SINGLES; ++i) {
        int word = i < 2 ? min(lane, PAIRED_WORDS - 1) + i * PAIRED_WORDS : 2 * PAIRED_WORDS + min((i - 2) * 32 + lane, SINGLE_WORDS - 1);
        addresses[i] = row + max(word, 0);
    }
#if QK_NORM
    float2 weights[2 + SINGLES];
#pragma unroll
    for (int i = 0; i < 2 + SINGLES; ++i) weights[i] = raw ? make_float2(1.0f, 1.0f) : __ldg((const float2*)norm + (addresses[i] - row));
#endif
    u32 spins = 0;
#pragma unroll 1
    while (true) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < 2 + SINGLES; ++i)
            if (i >= 2 || PAIRED_WORDS > 0) words[i] = load_word(addresses[i]);
#pragma unroll
        for (int i = 0; i < 2 + SINGLES; ++i)
            if (i >= 2 || PAIRED_WORDS > 0) there = there && words[i] != ABSENT;
        if (__all_sync(0xffffffffu, there)) break;
#if TRACE
        ++c.polls;
#endif
        if (waited_enough(c.p, spins, WAIT_QUERIES, c.here, (u32)(row - (const u32*)c.p.exchange))) break;
    }
    float2 x[2 + SINGLES];
#pragma unroll
    for (int i = 0; i < 2 + SINGLES; ++i) x[i] = i >= 2 || PAIRED_WORDS > 0 ? unpack_elements(words[i]) : make_float2(0.0f, 0.0f);
    if (!raw) {
#if QK_NORM
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < 2 + SINGLES; ++i)
            if (i < 2 ? lane < PAIRED_WORDS : (i - 2) * 32 + lane < SINGLE_WORDS) squares += x[i].x * x[i].x + x[i].y * x[i].y;
        float factor = rsqrtf(warp_sum(squares) * (1.0f / HEAD_DIM) + c.p.epsilon);
#pragma unroll
        for (int i = 0; i < 2 + SINGLES; ++i) {
            x[i].x *= factor * weights[i].x;
            x[i].y *= factor * weights[i].y;
        }
#endif
        if (rotation != 0) {
#if PAIRED_WORDS > 0
            float4 r = load_shared_floats(rotation + min(lane, PAIRED_WORDS - 1) * 16);
            float2 a = x[0], b = x[1];
            x[0] = make_float2(a.x * r.x - b.x * r.y, a.y * r.z - b.y * r.w);
            x[1] = make_float2(b.x * r.x + a.x * r.y, b.y * r.z + a.y * r.w);
#elif ROTARY_PAIRS > 0
#pragma unroll
            for (int i = 2; i < 2 + SINGLES; ++i) {
                const int pair = (i - 2) * 32 + lane;
                float2 r = load_shared_pair(rotation + min(pair, ROTARY_PAIRS - 1) * 8), a = x[i];
                if (pair < ROTARY_PAIRS) x[i] = make_float2(a.x * r.x - a.y * r.y, a.y * r.x + a.x * r.y);
            }
#endif
        }
    }
#pragma unroll
    for (int i = 0; i < 2 + SINGLES; ++i)
        if (i < 2 ? lane < PAIRED_WORDS : (i - 2) * 32 + lane < SINGLE_WORDS)
            store_shared_word(out + (u32)(addresses[i] - row) * 4, pack_elements(x[i].x, x[i].y));
}

// Running softmax of a consumer: lane / 4 is the query head. `out[h][t]`: elements 64 * h + 16 * j + t and + 8, of the high and
// then of the low parts of the probabilities.
struct attention_state {
    float maximum, sum;
    float out[HALVES][8][4];
};

// A slice of a query, zeros where there is no such head. Read anew for every page: registers are short.
static __device__ __forceinline__ uint4 load_query(u32 heads, int slice, int n, int j) {
    uint4 query = make_uint4(0, 0, 0, 0);
    if (n < GROUP && has_piece(slice, j)) query = load_shared_16(heads + n * (HEAD_DIM * 2) + slice * 64 + j * 16);
    return query;
}

// Positions first + 16 * `half` .. + 16 of a page that begins with position `first`.
static __device__ __forceinline__ void attend_to(
    attention_state& state, u32 heads, u32 page, u32 first, int half, u32 start, u32 position, float scale, bool nothing_yet, int lane) {
    const int n = lane >> 2, j = lane & 3;
    const u32 keys = page + half * (16 * HEAD_DIM * 2), values = keys + PAGE * HEAD_DIM * 2;
    first += half * 16;
    // Several sums at once: an instruction that adds to the one before it has to wait for it.
    float scores[2][4], others[2][4];
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[t][i] = others[t][i] = 0.0f;
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
        const uint4 query = load_query(heads, s, n, j);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            uint4 k = make_uint4(0, 0, 0, 0);
            if (has_piece(s, j)) k = load_shared_16(keys + (t * 8 + n) * (HEAD_DIM * 2) + s * 64 + j * 16);
            multiply_accumulate(scores[t], query.x, 0, query.y, 0, k.x, k.y);
            multiply_accumulate(others[t], query.z, 0, query.w, 0, k.z, k.w);
        }
    }
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) scores[t][i] += others[t][i];
    float maximum = state.maximum;
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 at = first + t * 8 + j * 2 + i;
            scores[t][i] = at < position && at >= start ? scores[t][i] * scale : minus_infinity();
            maximum = fmaxf(maximum, scores[t][i]);
        }
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
    // Of a window, all 16 may lie before its start.
    const float base = maximum == minus_infinity() ? 0.0f : maximum;
    const float correction = nothing_yet ? 0.0f : exponential2(state.maximum - base);
    state.maximum = maximum;
    state.sum *= correction;
    u32 high[2], low[2];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        float a = exponential2(scores[t][0] - base), b = exponential2(scores[t][1] - base);
        state.sum += a + b;
        high[t] = pack_elements(a, b);
        float2 rounded = unpack_elements(high[t]);
        low[t] = pack_elements(a - rounded.x, b - rounded.y);
    }
    const bool partial = first + 16 > position; // rows that are not written yet may hold anything, NaN too
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
        uint4 rows[4]; // positions 2j, + 1, and + 8, + 9
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int row = (r >> 1) * 8 + j * 2 + (r & 1);
            rows[r] = make_uint4(0, 0, 0, 0);
            if ((HEAD_DIM % 64 == 0 || h * 64 + n * 8 < HEAD_DIM) && !(partial && first + row >= position))
                rows[r] = load_shared_16(values + row * (HEAD_DIM * 2) + h * 128 + n * 16);
        }
        if (!nothing_yet)
#pragma unroll
            for (int t = 0; t < 8; ++t)
#pragma unroll
                for (int i = 0; i < 4; ++i) state.out[h][t][i] *= correction;
        const u32 a0[4] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w}, a1[4] = {rows[1].x, rows[1].y, rows[1].z, rows[1].w};
        const u32 b0[4] = {rows[2].x, rows[2].y, rows[2].z, rows[2].w}, b1[4] = {rows[3].x, rows[3].y, rows[3].z, rows[3].w};
#pragma unroll
        for (int t = 0; t < 8; ++t) {
            const u32 select = t & 1 ? 0x7632 : 0x5410;
            multiply_accumulate(state.out[h][t], high[0], low[0], high[1], low[1],
                                __byte_perm(a0[t / 2], a1[t / 2], select), __byte_perm(b0[t / 2], b1[t / 2], select));
        }
    }
}

static __device__ __noinline__ ring_place attend(const mega_parameters& p, u32 base, u32 region, ring_place place_of, int warp, int lane_of, u32 step, u32 pc,
                                                 uint4 instruction, u32 position, u64* record) {
    consumer c = {p, base, region, 0, warp, lane_of, place_of, {step, pc}, 0};
#if TRACE
    c.waited = c.polls = 0;
    if (record != nullptr) record[1] = record[5] = global_time();
#endif
    const mega_layer& layer = worker_layers()[layer_of(instruction)];
    u32* copy = copy_of(p, step);
    const int lane = c.lane, n = lane >> 2, j = lane & 3;
    const u32 index = layer_of(instruction), kv_head = instruction.y, split = instruction.z;
    const u32 start = window_start(layer.window, position), splits = active_splits(position);
    if (split >= splits) return c.at; // no position is this split's yet
    const u32 own_page = position / PAGE;
    u32 page = first_own_page(start / PAGE, split);
    // Consumer w's pages of this split: the first in the first group of 8 may be missing.
    const u32 newest = own_page / 8 % SPLITS == split ? 2 * own_page + 2 & 7 : CONSUMERS;
    u32 consumers = newest < CONSUMERS ? 1u << newest : 0; // those that have positions
#pragma unroll 1
    for (u32 q = page, i = 0; q * PAGE < position && i < 16; q = next_own_page(q), ++i)
        consumers |= (q * PAGE + 16 < position ? 3u : 1u) << (q & 3) * 2;
    const bool active = consumers >> c.warp & 1, is_new = newest == (u32)c.warp;

    u32* slots = copy + index * LAYER_WORDS;
    const u32* raw_rows = slots + QUERY_KEY_VALUE;
    u32 rotation = 0;
#if ROTARY_PAIRS > 0
    if (layer.rope != 0) rotation = FIELD(c.base, rotation) + ((c.here.step & 1) * 2 + (layer.rope != load_shared_64(FIELD(c.base, first_rope)))) * (ROTARY_PAIRS * 8);
#endif
    const float scale = layer.scale * 1.4426950408889634f;
    attention_state state;
    state.maximum = minus_infinity();
    state.sum = 0.0f;
#pragma unroll
    for (int h = 0; h < HALVES; ++h)
#pragma unroll
        for (int t = 0; t < 8; ++t) state.out[h][t][0] = state.out[h][t][1] = state.out[h][t][2] = state.out[h][t][3] = 0.0f;

    // Each consumer readies a row or two: queries, and, where the new position is, its key and value.
    const u32 heads = FIELD(c.base, heads);
    const int all_rows = newest < CONSUMERS ? GROUP + 2 : GROUP;
    const float* norms = (const float*)p.head_norms + index * 2 * HEAD_DIM;
#pragma unroll 1
    for (int row = c.warp; row < all_rows; row += CONSUMERS) {
        const u32 first_row = row < GROUP ? (kv_head * GROUP + row) * HEAD_DIM : QUERY_ROWS + (row - GROUP) * KV_ROWS + kv_head * HEAD_DIM;
        prepare_row(c, raw_rows + first_row / 2, norms + (row < GROUP ? 0 : HEAD_DIM), rotation, heads + row * (HEAD_DIM * 2), row > GROUP);
    }
    block_barrier<3, CONSUMERS * 32>();
#if TRACE
    if (record != nullptr) record[1] = global_time();
#endif
    if (active) {
        if (is_new) {
            // Every column is the new key.
            float scores[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                uint4 key = make_uint4(0, 0, 0, 0);
                if (has_piece(s, j)) key = load_shared_16(heads + GROUP * (HEAD_DIM * 2) + s * 64 + j * 16);
                const uint4 query = load_query(heads, s, n, j);
                multiply_accumulate(scores[0], query.x, 0, query.y, 0, key.x, key.y);
                multiply_accumulate(scores[1], query.z, 0, query.w, 0, key.z, key.w);
            }
            state.maximum = (scores[0][0] + scores[1][0]) * scale;
            state.sum = j == 0 ? 1.0f : 0.0f;
#pragma unroll
            for (int h = 0; h < HALVES; ++h)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    uint4 value = make_uint4(0, 0, 0, 0);
                    if (HEAD_DIM % 64 == 0 || h * 64 + j * 16 + i * 8 < HEAD_DIM)
                        value = load_shared_16(heads + (GROUP + 1) * (HEAD_DIM * 2) + h * 128 + j * 32 + i * 16);
                    const u32 words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
                    for (int t = 0; t < 8; ++t) state.out[h][t][i] = to_float((element)(words[t / 2] >> t % 2 * 16));
                }
        }
    }

    bool fresh = !is_new; // nothing is in the state yet
    // Pages of the past, stage by stage; also those of the other consumers must have come before the stage is let go.
#pragma unroll 1
    while (page * PAGE < position) {
        wait_stage(c);
        const u32 keys_of = c.at.weights - lane * 16 - c.warp * (STAGE_BYTES / CONSUMERS);
#pragma unroll 1
        for (u32 i = 0; i < PAGES_PER_STAGE && page * PAGE < position; ++i, page = next_own_page(page))
            if ((page & 3) == (u32)c.warp >> 1 && page * PAGE + (c.warp & 1) * 16 < position) {
                attend_to(state, heads, keys_of + i * PAGE_BYTES, page * PAGE, c.warp & 1, start, position, scale, fresh, lane);
                fresh = false;
            }
        release_stage(c);
    }

    // The consumers' results meet.
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 2);
    if (active && n < GROUP) {
        const u32 mine = c.region + n * (HEAD_DIM * 4);
#pragma unroll
        for (int h = 0; h < HALVES; ++h)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int d = h * 64 + j * 16 + i * 8;
                if (HEAD_DIM % 64 == 0 || d < HEAD_DIM) {
                    store_shared_floats(mine + d * 4, make_float4(
                        state.out[h][0][i] + state.out[h][0][i + 2], state.out[h][1][i] + state.out[h][1][i + 2],
                        state.out[h][2][i] + state.out[h][2][i + 2], state.out[h][3][i] + state.out[h][3][i + 2]));
                    store_shared_floats(mine + d * 4 + 16, make_float4(
                        state.out[h][4][i] + state.out[h][4][i + 2], state.out[h][5][i] + state.out[h][5][i + 2],
                        state.out[h][6][i] + state.out[h][6][i + 2], state.out[h][7][i] + state.out[h][7][i + 2]));
                }
            }
    }
    if (active && j == 0) {
        store_shared_float(FIELD(c.base, maxima) + (c.warp * 8 + n) * 4, state.maximum);
        store_shared_float(FIELD(c.base, sums) + (c.warp * 8 + n) * 4, state.sum);
    }
    block_barrier<3, CONSUMERS * 32>();
    const u32 regions = c.region - c.warp * REGION_BYTES;
#pragma unroll 1
    for (int i = c.warp * 32 + lane; i < GROUP * HEAD_DIM / 2; i += CONSUMERS * 32) {
        const int head = i / (HEAD_DIM / 2), d = i % (HEAD_DIM / 2) * 2;
        float maxima[CONSUMERS], maximum = minus_infinity(), sum = 0.0f, x = 0.0f, y = 0.0f;
        float2 parts[CONSUMERS];
#pragma unroll
        for (int w = 0; w < CONSUMERS; ++w) {
            maxima[w] = minus_infinity();
            parts[w] = make_float2(0.0f, 0.0f);
            if (consumers >> w & 1) {
                maxima[w] = load_shared_float(FIELD(c.base, maxima) + (w * 8 + head) * 4);
                parts[w] = load_shared_pair(regions + w * REGION_BYTES + (head * HEAD_DIM + d) * 4);
            }
            maximum = fmaxf(maximum, maxima[w]);
        }
#pragma unroll
        for (int w = 0; w < CONSUMERS; ++w) {
            if (!(consumers >> w & 1)) continue;
            float weight = maxima[w] == minus_infinity() ? 0.0f : exponential2(maxima[w] - maximum);
            sum += load_shared_float(FIELD(c.base, sums) + (w * 8 + head) * 4) * weight;
            x += parts[w].x * weight;
            y += parts[w].y * weight;
        }
        float factor = sum > 0.0f ? __fdividef(1.0f, sum) : sum; // NaN stays NaN
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
    if (is_new) {
        char* place = (char*)layer.cache + ((size_t)((const u32*)(worker_memory + TABLE_AT))[kept_page(own_page)] * KV_HEADS + kv_head) * PAGE_BYTES + position % PAGE * (HEAD_DIM * 2);
        __syncwarp();
        if (lane < HEAD_DIM / 8) {
            *(uint4*)(place + lane * 16) = load_shared_16(heads + GROUP * (HEAD_DIM * 2) + lane * 16);
            *(uint4*)(place + PAGE * HEAD_DIM * 2 + lane * 16) = load_shared_16(heads + (GROUP + 1) * (HEAD_DIM * 2) + lane * 16);
        }
    }
    block_barrier<3, CONSUMERS * 32>();
#if TRACE
    if (record != nullptr) record[3] = c.waited, record[5] = global_time(), record[6] = c.polls;
#endif
    return c.at;
}
