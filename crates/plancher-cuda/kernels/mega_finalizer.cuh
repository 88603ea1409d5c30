// The megakernel's finalizer: one warp that turns the consumers' partial sums into results and publishes them, keeps the worker's
// rows of the residual stream in f32, combines splits of attention, clears what the step before published, and takes part in
// the choice of the next token.

struct finalizer {
    const mega_parameters& p;
    mega_shared& shared;
    u32 base;          // of the block's static shared memory
    u32 sums;          // (2, CONSUMERS, 128): of this lane's pair of rows
    float* residual;   // (RESIDUAL)
    int lane;
    place here;
    u32 chunk;
    u32 number;        // of the last token chosen
#if TRACE
    u64 parts_time;    // when the splits of attention were there
#endif
};

// The most rows of a worker, dealt in such units.
#define MOST_ROWS(rows, unit) ((((rows) + (unit) - 1) / (unit) + WORKERS - 1) / WORKERS * (unit))

// Waits for the partial sums of the next chunk.
static __device__ __forceinline__ u32 next_sums(finalizer& f) {
    const u32 buffer = f.chunk & 1;
    barrier_wait(f.p, FIELD(f.base, sums_full) + buffer * 8, f.chunk >> 1 & 1, WAIT_SUMS, f.here);
    return buffer;
}

static __device__ __forceinline__ void sums_read(finalizer& f, u32 buffer) {
    barrier_arrive_warp(FIELD(f.base, sums_empty) + buffer * 8, f.lane);
    ++f.chunk;
}

// This lane's pair of rows of a chunk, `row` rows on, added up over the consumers.
static __device__ __forceinline__ float2 add_up(const finalizer& f, u32 buffer, int row) {
    float2 parts[CONSUMERS];
#pragma unroll
    for (int w = 0; w < CONSUMERS; ++w) parts[w] = load_shared_pair(f.sums + ((buffer * CONSUMERS + w) * 128 + row) * 4);
#pragma unroll
    for (int step = 1; step < CONSUMERS; step *= 2)
#pragma unroll
        for (int w = 0; w < CONSUMERS; w += 2 * step) {
            parts[w].x += parts[w + step].x;
            parts[w].y += parts[w + step].y;
        }
    return parts[0];
}

// 1/rms of the input, for what was published of it.
static __device__ __forceinline__ float inverse_rms(const finalizer& f, u32 buffer) {
    uint4 a = load_shared_16(FIELD(f.base, squares) + buffer * CONSUMERS * 4), b = load_shared_16(FIELD(f.base, squares) + buffer * CONSUMERS * 4 + 16);
    float squares = ((__uint_as_float(a.x) + __uint_as_float(a.y)) + (__uint_as_float(a.z) + __uint_as_float(a.w)))
                  + ((__uint_as_float(b.x) + __uint_as_float(b.y)) + (__uint_as_float(b.z) + __uint_as_float(b.w)));
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(squares * (1.0f / HIDDEN) + f.p.epsilon * (RESIDUAL_SCALE * RESIDUAL_SCALE)));
    return inverse;
}

static __device__ __forceinline__ float activation(float x) {
#if ACTIVATION_GELU
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
#else
    return __fdividef(x, 1.0f + __expf(-x));
#endif
}

#define BIAS_ROWS (QKV_ROWS + HIDDEN + 2 * FEED_FORWARD + HIDDEN)

static __device__ __forceinline__ const float* biases_of(const mega_parameters& p, u32 layer, int offset) {
    return (const float*)p.biases + (size_t)layer * BIAS_ROWS + offset;
}

// Works through the chunks of an instruction's `count` rows, at most MOST of them: `finish(row, sums)` gets the first of this lane's
// pairs of rows, and their sums. What is known before the sums are there belongs before the call.
template <int MOST, bool NORMED, typename Finish>
static __device__ __forceinline__ void finish_rows(finalizer& f, int count, Finish finish) {
    float factor = 1.0f;
#pragma unroll 1
    for (int done = 0; done < (MOST <= 128 ? 1 : count); done += 128) {
        const u32 buffer = next_sums(f);
        if (NORMED && done == 0) factor = inverse_rms(f, buffer);
#pragma unroll
        for (int i = 0; i < (MOST <= 64 ? 1 : 2); ++i) {
            int row = done + i * 64 + f.lane * 2;
            float2 x = add_up(f, buffer, i * 64); // also where there is no such row: one path for all lanes
            if (NORMED) {
                x.x *= factor;
                x.y *= factor;
            }
            if (row < count) finish(row, x);
        }
        sums_read(f, buffer);
    }
}

static __device__ __forceinline__ void finish_query_key_value(finalizer& f, const uint4& instruction, u32* copy) {
    u32* out = copy + layer_of(instruction) * LAYER_WORDS + QUERY_KEY_VALUE + instruction.y / 2;
#if QKV_BIAS
    const float* bias = biases_of(f.p, layer_of(instruction), 0) + instruction.y;
#endif
    finish_rows<MOST_ROWS(QKV_ROWS, HALF_TILES(HIDDEN_P) ? 8 : 16), true>(f, instruction.z, [&](int row, float2 x) {
#if QKV_BIAS
        float2 b = *(const float2*)(bias + row);
        x.x += b.x;
        x.y += b.y;
#endif
        store_word(out + row / 2, present(pack_elements(within_range(x.x), within_range(x.y))));
    });
}

// The end of a branch: added to the residual stream, which is published.
template <bool ATTENTION>
static __device__ __forceinline__ void finish_branch(finalizer& f, const uint4& instruction, u32* copy) {
    const u32 layer = layer_of(instruction);
    u32* out = copy + (ATTENTION ? layer * LAYER_WORDS + X_FEED_FORWARD : (layer + 1) * LAYER_WORDS + X_ATTENTION) + instruction.y / 2;
    const float* bias = (ATTENTION ? OUTPUT_BIAS : DOWN_BIAS)
        ? biases_of(f.p, layer, ATTENTION ? QKV_ROWS : QKV_ROWS + HIDDEN + 2 * FEED_FORWARD) + instruction.y : nullptr;
    finish_rows<RESIDUAL, false>(f, instruction.z, [&](int row, float2 x) {
        if (ATTENTION ? OUTPUT_BIAS : DOWN_BIAS) {
            float2 b = *(const float2*)(bias + row);
            x.x += b.x;
            x.y += b.y;
        }
        float2* kept = (float2*)(f.residual + row);
        x.x += kept->x;
        x.y += kept->y;
        store_word(out + row / 2, present(pack_halves(within_half(x.x * RESIDUAL_SCALE), within_half(x.y * RESIDUAL_SCALE))));
        *kept = x;
    });
}

static __device__ __forceinline__ void finish_gate_up(finalizer& f, const uint4& instruction, u32* copy) {
    constexpr int MOST = MOST_ROWS(FEED_FORWARD, 8); // pairs
    u32* out = copy + layer_of(instruction) * LAYER_WORDS + GATED + instruction.y / 2 + f.lane;
#if GATE_UP_BIAS
    const float* bias = biases_of(f.p, layer_of(instruction), QKV_ROWS + HIDDEN) + instruction.y + f.lane * 2;
#endif
    // From pairs of rows to pairs of pairs: 8 rows of gate, then 8 of up.
    const int row = f.lane / 4 * 16 + f.lane % 4 * 2 - f.lane * 2;
    float factor = 0.0f;
#pragma unroll 1
    for (int done = 0; done < (MOST <= 64 ? 1 : (int)instruction.z); done += 64) {
        const u32 buffer = next_sums(f);
        if (done == 0) factor = inverse_rms(f, buffer);
        {
            float2 gate = add_up(f, buffer, row), up = add_up(f, buffer, row + 8);
            gate.x *= factor;
            gate.y *= factor;
            up.x *= factor;
            up.y *= factor;
#if GATE_UP_BIAS
            if (done + f.lane * 2 < (int)instruction.z) {
                float2 a = *(const float2*)(bias + done), b = *(const float2*)(bias + done + FEED_FORWARD);
                gate.x += a.x;
                gate.y += a.y;
                up.x += b.x;
                up.y += b.y;
            }
#endif
            u32 word = present(pack_elements(within_range(activation(gate.x) * up.x), within_range(activation(gate.y) * up.y)));
            if (done + f.lane * 2 < (int)instruction.z) store_word(out + done / 2, word);
        }
        sums_read(f, buffer);
    }
}

// Logits, and the largest of them.
static __device__ __forceinline__ u64 finish_head(finalizer& f, const uint4& instruction) {
    u64 best = 0;
    float* logits = (float*)f.p.logits + instruction.y;
    finish_rows<1 << 30, true>(f, instruction.z, [&](int row, float2 x) {
        const u32 token = instruction.y + row;
        logits[row] = x.x;
        u64 candidate = (u64)ordered_bits(x.x) << 32 | (u32)~token;
        best = candidate > best ? candidate : best;
        if (row + 1 < (int)instruction.z) {
            logits[row + 1] = x.y;
            candidate = (u64)ordered_bits(x.y) << 32 | (u32)~(token + 1);
            best = candidate > best ? candidate : best;
        }
    });
    return best;
}

// Adds up the splits of this worker's part of the attention outcome: 8 elements at a time, a split a lane.
static __device__ __forceinline__ void combine(finalizer& f, const uint4& instruction, u32* copy, u32 position) {
    const u32 splits = active_splits(position);
    if (splits == 1) return;
    u32* slots = copy + layer_of(instruction) * LAYER_WORDS;
    const u32 split = f.lane % 16;
#pragma unroll 1
    for (u32 done = 0; done < instruction.z; done += 16) {
        const u32 at = instruction.y + done + f.lane / 16 * 8; // the first element
        const bool mine = split < splits && done + f.lane / 16 * 8 < instruction.z;
        uint4 raw = make_uint4(0, 0, 0, 0);
        uint2 pair = make_uint2(0xff800000u, 0); // minus infinity, 0
        u32 spins = 0;
#pragma unroll 1
        while (true) {
            if (mine) {
                raw = load_words(slots + PARTIALS + split * (QUERY_ROWS / 2) + at / 2);
                pair = load_words_2(slots + PARTIAL_SUMS + (split * HEADS + at / HEAD_DIM) * 2);
            }
            if (__all_sync(0xffffffffu, !absent(raw) && pair.x != ABSENT && pair.y != ABSENT)) break;
            if (waited_enough(f.p, spins, WAIT_PARTIALS, f.here, split)) break;
        }
        __syncwarp();
#if TRACE
        f.parts_time = global_time();
#endif
        float maximum = __uint_as_float(pair.x), largest = maximum;
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        float weight = maximum == minus_infinity() ? 0.0f : __uint_as_float(pair.y) * exponential2(maximum - largest);
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
        float x[9];
        x[8] = weight;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 two = unpack_elements(words[i]);
            x[2 * i] = weight > 0.0f ? two.x * weight : 0.0f;
            x[2 * i + 1] = weight > 0.0f ? two.y * weight : 0.0f;
        }
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2)
#pragma unroll
            for (int i = 0; i < 9; ++i) x[i] += __shfl_xor_sync(0xffffffffu, x[i], offset);
        float factor = 1.0f / x[8];
        if (split < 4 && done + f.lane / 16 * 8 < instruction.z) {
            float a = split == 0 ? x[0] : split == 1 ? x[2] : split == 2 ? x[4] : x[6];
            float b = split == 0 ? x[1] : split == 1 ? x[3] : split == 2 ? x[5] : x[7];
            store_word(slots + ATTENDED + at / 2 + split, present(pack_elements(a * factor, b * factor)));
        }
    }
}

static __device__ __forceinline__ void clear_words(u32* first, u32 words, int lane) {
#pragma unroll 1
    for (u32 i = lane; i < words; i += 32) store_word(first + i, ABSENT);
}

// Clears what this worker published a step ago, once everybody is known to have read it.
static __device__ void clear_previous(finalizer& f, const uint4* instructions, u32 position) {
    if (f.here.step == 0) return;
    const u32* arrivals = (const u32*)f.p.counters;
    u32 spins = 0;
    while (!__all_sync(0xffffffffu, (int)(load_acquire(arrivals) - f.here.step * WORKERS) >= 0))
        if (waited_enough(f.p, spins, WAIT_ARRIVALS, f.here, f.here.step * WORKERS)) break;
    __syncwarp();
    u32* copy = copy_of(f.p, f.here.step - 1);
    const uint2* own = f.shared.own;
#pragma unroll 1
    for (u32 layer = 0; layer < LAYERS; ++layer) {
        u32* slots = copy + layer * LAYER_WORDS;
        clear_words(slots + QUERY_KEY_VALUE + own[QKV].x / 2, own[QKV].y / 2, f.lane);
        clear_words(slots + ATTENDED + own[COMBINE].x / 2, own[COMBINE].y / 2, f.lane);
        clear_words(slots + X_FEED_FORWARD + own[OUTPUT].x / 2, own[OUTPUT].y / 2, f.lane);
        clear_words(slots + GATED + own[GATE_UP].x / 2, own[GATE_UP].y / 2, f.lane);
        clear_words(slots + LAYER_WORDS + X_ATTENTION + own[DOWN].x / 2, own[DOWN].y / 2, f.lane);
    }
    if (active_splits(position - 1) > 1)
#pragma unroll 1
        for (u32 pc = 0; operation_of(instructions[pc]) != END; ++pc) {
            uint4 instruction = instructions[pc];
            if (operation_of(instruction) != ATTEND || instruction.z >= active_splits(position - 1)) continue;
            u32* slots = copy + layer_of(instruction) * LAYER_WORDS;
            clear_words(slots + PARTIALS + (instruction.z * QUERY_ROWS + instruction.y * GROUP * HEAD_DIM) / 2, GROUP * HEAD_DIM / 2, f.lane);
            clear_words(slots + PARTIAL_SUMS + (instruction.z * HEADS + instruction.y * GROUP) * 2, GROUP * 2, f.lane);
        }
    if (f.lane == 0) store_word_64((u64*)(copy + CANDIDATES) + blockIdx.x, ~0ull);
    if (f.lane == 0 && blockIdx.x == 0) store_word(copy + STOP_WORD, ABSENT);
}

static __device__ __forceinline__ u64 warp_largest(u64 x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        u64 other = __shfl_xor_sync(0xffffffffu, x, offset);
        x = other > x ? other : x;
    }
    return x;
}

// The largest of all workers' candidates.
static __device__ __forceinline__ u32 exchange_candidates(finalizer& f, u32* copy, u64 best) {
    best = warp_largest(best);
    u64* candidates = (u64*)(copy + CANDIDATES);
    if (f.lane == 0) store_word_64(candidates + blockIdx.x, best);
    constexpr int EACH = (WORKERS + 31) / 32;
    u64 found[EACH];
    u32 spins = 0;
    while (true) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            int worker = i * 32 + f.lane;
            found[i] = worker < WORKERS ? load_word_64(candidates + worker) : 0;
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) there = there && found[i] != ~0ull;
        if (__all_sync(0xffffffffu, there)) break;
        if (waited_enough(f.p, spins, WAIT_CANDIDATES, f.here, f.lane)) break;
    }
    __syncwarp();
    best = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) best = found[i] > best ? found[i] : best;
    best = warp_largest(best);
    // Infinities have the ordered bits 0xff800000 and 0x007fffff.
    u32 bits = (u32)(best >> 32), token = ~(u32)best;
    return bits < 0xff800000u && bits > 0x007fffffu && token < VOCAB ? token : NO_TOKEN;
}

// Whether the host has asked to stop, as worker 0 saw it at the beginning of the step.
static __device__ __forceinline__ bool asked_to_stop(finalizer& f, const u32* copy) {
    u32 word = ABSENT, spins = 0;
    while (__any_sync(0xffffffffu, (word = load_word(copy + STOP_WORD)) == ABSENT))
        if (waited_enough(f.p, spins, WAIT_STOP, f.here, 0)) return true;
    return word != 0;
}

// Tells the host of a token; by one thread of worker 0.
static __device__ __forceinline__ void tell(finalizer& f, u32 token, u32 number) {
    mega_sampling* state = (mega_sampling*)f.p.sampling;
    if (token < VOCAB && f.p.mode != 2) { // else the owner of its logit has
        u32* seen = (u32*)state->seen;
        seen[token / 32] |= 1u << token % 32;
    }
    u64* ring = (u64*)f.p.control + 8;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" :: "l"(ring + (number - 1) % RING_TOKENS), "l"((u64)number << 32 | token) : "memory");
}

static __device__ void finalize(const mega_parameters& p, mega_shared& shared, u32 base, const uint4* instructions, const float* sums, float* residual,
                                int lane, u64* trace) {
    finalizer f = {p, shared, base, kept_address(sums) + lane * 8, residual, lane, {0, 0}, 0, 0};
    u32 position = *(const u32*)p.positions, token = *(const u32*)p.tokens;
    f.number = ((const mega_sampling*)p.sampling)->chosen;
    u32* const arrivals = (u32*)p.counters;
#pragma unroll 1
    for (u32 step = 0;; ++step, ++position) {
        f.here.step = step;
        u32* copy = copy_of(p, step);
#if TRACE
        u64* stamps = trace + (size_t)WORKERS * INSTRUCTIONS * 8 + blockIdx.x * 4;
        if (step + 1 == p.steps && lane == 0) stamps[0] = global_time();
#endif
        u32 stop_request = 0;
        if (blockIdx.x == 0 && lane == 0) stop_request = *(const volatile u32*)p.control;
        // This worker's rows of the residual stream.
        const uint2 rows = shared.own[EMBED];
        const element* embedding = (const element*)p.embedding + (size_t)token * p.embedding_stride + rows.x;
#pragma unroll 1
        for (u32 i = lane; i < rows.y; i += 32) residual[i] = to_float(embedding[i]) * p.embedding_scale;
        __syncwarp();
        u64 best = 0;
        bool cleared = false;
#pragma unroll 1
        for (u32 pc = 0;; ++pc) {
            uint4 instruction = instructions[pc];
            const u32 operation = operation_of(instruction);
            f.here.instruction = pc;
            if ((operation == HEAD || operation == END) && !cleared) {
                cleared = true;
                if (blockIdx.x == 0 && lane == 0) store_word(copy + STOP_WORD, stop_request != 0);
                clear_previous(f, instructions, position);
            }
            if (operation == END) break;
#if TRACE
            u64 begin = 0;
            if (step + 1 == p.steps && operation != EMBED && operation != ATTEND && operation != COMBINE) {
                // As soon as the first chunk's sums are there.
                barrier_wait(p, FIELD(f.base, sums_full) + (f.chunk & 1) * 8, f.chunk >> 1 & 1, WAIT_SUMS, f.here);
            }
            __syncwarp();
            begin = global_time();
#endif
            if (operation == QKV) finish_query_key_value(f, instruction, copy);
            else if (operation == COMBINE) combine(f, instruction, copy, position);
            else if (operation == OUTPUT) finish_branch<true>(f, instruction, copy);
            else if (operation == GATE_UP) finish_gate_up(f, instruction, copy);
            else if (operation == DOWN) finish_branch<false>(f, instruction, copy);
            else if (operation == HEAD) best = finish_head(f, instruction);
#if TRACE
            __syncwarp();
            if (operation == COMBINE && f.parts_time > begin) begin = f.parts_time;
            if (step + 1 == p.steps && lane == 0 && operation != EMBED && operation != ATTEND) {
                u64* record = trace + ((size_t)blockIdx.x * INSTRUCTIONS + pc) * 8;
                record[4] = begin;
                record[5] = global_time();
            }
#endif
        }
        bool finished = step + 1 == p.steps;
        if (p.mode == 2) {
            barrier_arrive_warp(FIELD(f.base, logits_there), lane);
            finished = asked_to_stop(f, copy) || finished;
            barrier_wait_inside(FIELD(f.base, step_done), step & 1);
            token = load_shared(&shared.token);
        } else {
            token = exchange_candidates(f, copy, best);
            finished = asked_to_stop(f, copy) || finished;
            if (lane == 0) store_shared(&shared.token, token);
            barrier_wait_inside(FIELD(f.base, step_done), step & 1);
        }
#if TRACE
        if (step + 1 == p.steps && lane == 0) stamps[1] = global_time();
#endif
        if (p.mode != 0) {
            bool ends = token >= VOCAB;
#pragma unroll 1
            for (u32 i = 0; i < p.end_count; ++i) ends = ends || token == p.end_tokens[i];
            finished = finished || ends;
        }
        const bool stalled = load_word(arrivals + 1) != 0; // somebody waited too long
        finished = finished || stalled;
        if (lane == 0) store_shared(&shared.finished, finished);
        barrier_arrive_warp(FIELD(f.base, token_there), lane); // the consumers go on
        if (p.mode != 0) ++f.number;
        if (blockIdx.x == 0 && lane == 0 && p.mode != 0 && !stalled) tell(f, token, f.number);
        if (finished) break;
        // All that this worker read and wrote in this step comes before its arrival.
        if (lane == 0) {
            __threadfence();
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(arrivals) : "memory");
        }
    }
    if (blockIdx.x == 0 && lane == 0) {
        *(u32*)p.positions = position + 1;
        if (p.mode != 0) {
            *(u32*)p.tokens = token;
            ((mega_sampling*)p.sampling)->chosen = f.number;
        }
    }
#if TRACE
    if (lane == 0) trace[(size_t)WORKERS * INSTRUCTIONS * 8 + blockIdx.x * 4 + 2] = global_time();
#endif
}
