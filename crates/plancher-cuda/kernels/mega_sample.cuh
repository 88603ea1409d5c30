// Choosing a token inside the persistent kernel: the very token that `sample.cu` draws from the same logits, seed and
// history, found by all workers together, so that each of them knows it. This text is put in front of `mega.cu`.
//
// Masses of probability are whole numbers there and here, so neither the number of workers nor the order of their sums
// changes anything. What costs time is a meeting of all workers (about 1 us), so their number is kept small:
//   the largest logit                                                        1
//   top-k or top-p: a histogram of how far logits lie below the largest one  1, up to 4 while the border is not found
//   ... of which at most 256 tokens are left: a list of them; the rest is done by each worker alone, for all settings   1
//   ... of which more are left: only if several tokens lie exactly at the border   1
//   without a list: each worker's share of the mass                          1, or 2 with a penalty
// So 1 meeting for the penalty alone, 2 for a temperature, 3 for usual values of top-k and top-p.
//
// Use, after each token's logits, by the consumers (the 256 threads with the lowest numbers) of every one of the WORKERS:
//   token = mega_sample<BARRIER>(workspace, scratch, settings, logits, first, count, give_up)
// `workspace` lies in shared memory that is free meanwhile. `first` and `count` are the worker's own rows of the head, none
// at all allowed, those of a later worker behind those of an earlier one; the worker has written these logits before a
// barrier that the 256 have passed. `give_up(spins)` says whether to stop waiting; BARRIER is the barrier of the 256.
// The result is a token, MEGA_SAMPLE_NONE where no logit is a finite number, or MEGA_SAMPLE_STOPPED where it gave up.
// The token is then in the bitmap of those that occurred, and `settings->random` is up to date; `chosen`, the ring, the
// token and the position are the caller's. A later token's logits may be written when all workers have this one.
// `scratch`: 128 + 3 * (10256 + 16 * WORKERS) bytes of global memory, aligned to 16, zeroed by the host before each launch.
//
// Options: VOCAB, WORKERS.

#define MEGA_SAMPLE_NONE 0xffffffffu
#define MEGA_SAMPLE_STOPPED 0xfffffffeu

namespace mega_choice {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int BIN_BITS = 9;
constexpr int BINS = 1 << BIN_BITS;
constexpr int LISTED = THREADS; // one token of the list a thread

// A worker's part of something, and the tokens that it has.
struct share {
    u64 part;
    u32 first, count;
};

// What workers tell each other before a meeting. Three of them take turns: one is read, one written, one cleared.
struct meeting {
    u64 mass[BINS];
    u32 count[BINS];
    u32 listed, padding[3];
    // Everything up to here is zero when the turn begins.
    uint4 list[LISTED]; // token, key, bits of the logit
    share shares[WORKERS];
};
constexpr int CLEARED = 8 * BINS + 4 * BINS + 16;
static_assert(sizeof(meeting) == CLEARED + 16 * LISTED + 16 * WORKERS && CLEARED % 16 == 0, "no holes");

// A place in the order of tokens: the border of what a cut keeps, or what is left of it.
struct place {
    u32 found; // 0: the target is not reached
    u32 bin;
    u64 before, weight;       // of what lies before the bin, and of the bin
    u32 tokens_before, tokens; // the same, counted
};

// What is walked through in the order of tokens, see `weight_of`.
struct walk {
    bool drawn;   // else those with the border's key
    bool counted; // each weighs 1, else its mass
    u32 key;
    u64 target; // where it is not drawn
};

struct histogram {
    u32 low[BINS], high[BINS]; // mass: additions of 32 bits are quicker, and the one that overflows knows it
    u32 count[BINS];
};

struct shortlist {
    u64 order[LISTED];  // key << 32 | token
    u64 weight[LISTED];
    u32 token[LISTED];
};

// The settings, and how far this token is.
struct request {
    u64 random;
    u32* seen;
    u32 meetings; // of all workers so far, since the launch began
    u32 stopped;  // the wait for one was given up
    u32 top_k;
    float inverse_temperature;
    float top_p;
    float log_min_p; // minus infinity: all
    float penalty;
};

} // namespace mega_choice

// What a worker needs for a token, in shared memory.
struct mega_sample_workspace {
    mega_choice::request request;
    union {
        mega_choice::histogram histogram;
        mega_choice::shortlist list;
    };
    mega_choice::place found;
    u64 warps[mega_choice::WARPS];
    u32 token;
};
static_assert(sizeof(mega_sample_workspace) <= 8192, "the room for partial sums");

namespace mega_choice {

// Barrier `BARRIER` of the block, for the 256 threads.
template <int BARRIER>
static __device__ __forceinline__ void meet_in_block() {
    asm volatile("bar.sync %0, 256;" :: "n"(BARRIER) : "memory");
}

static __device__ __forceinline__ void arrive(u32* counter) {
    asm volatile("fence.acq_rel.gpu;\nred.release.gpu.global.add.u32 [%0], 1;" :: "l"(counter) : "memory");
}

static __device__ __forceinline__ u32 arrived(const u32* counter) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(counter) : "memory");
    return x;
}

// What this block wrote may come from the first-level cache.
static __device__ __forceinline__ float load_own(const float* p) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ u64 larger(u64 a, u64 b) { return a > b ? a : b; }

// How far below the largest logit, in steps of 2^-26 and at most 2^32 - 1: for NaN and minus infinity, too.
static __device__ __forceinline__ u32 key_of(float x, float largest) {
    float distance = (largest - x) * 67108864.0f;
    return distance < 4294967040.0f ? (u32)distance : 0xffffffffu;
}

// Of probability; 2^40 is that of the largest logit.
static __device__ __forceinline__ u64 mass_of(float x, float largest, float inverse_temperature) {
    float mass = exponential2((x - largest) * inverse_temperature * 1.4426950408889634f) * 1099511627776.0f;
    return mass > 0.0f ? (u64)(mass + 0.5f) : 0; // not for NaN
}

// The mass that top-p has to reach.
static __device__ __forceinline__ u64 top_p_target(float top_p, u64 total) {
    u64 target = (u64)ceil((double)top_p * (double)total);
    return target > 0 ? target : 1;
}

// SplitMix64, as the engine's generator; the upper 53 bits.
static __device__ __forceinline__ u64 next_random(u64* state) {
    *state += 0x9E3779B97F4A7C15ull;
    u64 z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) >> 11;
}

// The choice of one token. A member that returns false gave up waiting.
template <int BARRIER, typename GiveUp>
struct chooser {
    mega_sample_workspace* work;
    request* state;
    u8* scratch;
    const float* logits;
    int first, count; // this worker's rows
    GiveUp give_up;
    float largest;
    u32 kept_key, kept_token; // the last token that is kept, in the order of keys, then of tokens
    u32 token;                // the result

    __device__ __forceinline__ meeting* turn(u32 number) const { return (meeting*)(scratch + 128) + number % 3; }
    // The one that is written; after the meeting it is `heard`.
    __device__ __forceinline__ meeting* told() const { return turn(state->meetings); }
    __device__ __forceinline__ const meeting* heard() const { return turn(state->meetings + 2); }

    // Waits until all workers have told what they had to tell.
    __device__ bool meet() {
        // All have read the next turn's place before they came to the last meeting.
        uint4* next = (uint4*)turn(state->meetings + 1);
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < CLEARED / 16; i += WORKERS * THREADS)
            next[i] = make_uint4(0, 0, 0, 0);
        meet_in_block<BARRIER>();
        if (threadIdx.x == 0) {
            u32* counter = (u32*)scratch;
            u32 target = ++state->meetings * (u32)WORKERS, spins = 0;
            arrive(counter);
            while ((i32)(arrived(counter) - target) < 0) {
                if (give_up(++spins)) {
                    state->stopped = 1;
                    break;
                }
            }
        }
        meet_in_block<BARRIER>();
        return !state->stopped;
    }

    // The sum over the threads before this one; `total` is that over all.
    template <typename T>
    __device__ T sum_before(T x, T* total) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        T inclusive = x;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            T other = __shfl_up_sync(0xffffffffu, inclusive, offset);
            if (lane >= offset) inclusive += other;
        }
        if (lane == 31) work->warps[warp] = inclusive;
        meet_in_block<BARRIER>();
        T before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before += (T)work->warps[w];
            all += (T)work->warps[w];
        }
        meet_in_block<BARRIER>();
        *total = all;
        return before + inclusive - x;
    }

    __device__ u64 largest_of(u64 x) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, offset));
        if (threadIdx.x % 32 == 0) work->warps[threadIdx.x / 32] = x;
        meet_in_block<BARRIER>();
#pragma unroll
        for (int w = 0; w < WARPS; ++w) x = larger(x, work->warps[w]);
        meet_in_block<BARRIER>();
        return x;
    }

    // Calls `visit(logit, token)` for this thread's tokens of `rows` from `from` on: consecutive ones, in their order.
    template <bool OWN, typename Visit>
    __device__ __forceinline__ void each(int from, int rows, Visit visit) const {
        int per_thread = (rows + THREADS - 1) / THREADS, begin = threadIdx.x * per_thread, end = min(begin + per_thread, rows);
#pragma unroll 1
        for (int i = begin; i < end; i += 4) {
            float x[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* p = logits + from + min(i + j, end - 1);
                x[j] = OWN ? load_own(p) : load_fresh(p);
            }
            if (state->penalty != 1.0f) {
                u32 seen[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) seen[j] = load_fresh(state->seen + (from + min(i + j, end - 1)) / 32);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (!(seen[j] >> (from + i + j) % 32 & 1)) continue;
                    float scaled = x[j] > 0.0f ? x[j] / state->penalty : x[j] * state->penalty;
                    // A finite logit stays finite whatever the penalty.
                    x[j] = fabsf(x[j]) < __int_as_float(0x7f800000) ? fminf(fmaxf(scaled, -3.4028234664e38f), 3.4028234664e38f)
                                                                    : scaled;
                }
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (i + j < end) visit(x[j], from + i + j);
            }
        }
    }

    __device__ __forceinline__ bool keeps(u32 key, int at) const {
        return key < kept_key || (key == kept_key && (u32)at <= kept_token);
    }

    // Keeps nothing beyond this token.
    __device__ __forceinline__ void keep(u32 key, u32 at) {
        if (key < kept_key || (key == kept_key && at < kept_token)) kept_key = key, kept_token = at;
    }

    // What is walked through in the order of tokens: those with the border's key, counted or by their mass, or, for the
    // draw, everything that is kept, by its mass at the temperature.
    __device__ __forceinline__ u64 weight_of(const walk& tokens, float x, int at) const {
        u32 key = key_of(x, largest);
        bool counts = keeps(key, at) && (tokens.drawn ? !(x < largest + state->log_min_p) : key == tokens.key);
        if (!counts || tokens.counted) return counts;
        return mass_of(x, largest, tokens.drawn ? state->inverse_temperature : 1.0f);
    }

    // The token at which these weights reach the target, which is drawn where `random` counts.
    __device__ bool token_at(const walk& tokens, u64* random, u32* at) {
        u64 own = 0, all, total;
        each<true>(first, count, [&](float x, int token) { own += weight_of(tokens, x, token); });
        sum_before(own, &all);
        if (threadIdx.x == 0) told()->shares[blockIdx.x] = {all, (u32)first, (u32)count};
        if (!meet()) return false;
        // Which worker has it: it is looked for in this one's logits, by every worker.
        if (threadIdx.x == 0) work->found.found = 0, work->token = MEGA_SAMPLE_NONE;
        const share* shares = heard()->shares;
        constexpr int PER_THREAD = (WORKERS + THREADS - 1) / THREADS;
        u64 parts[PER_THREAD];
        own = 0;
#pragma unroll
        for (int j = 0; j < PER_THREAD; ++j) {
            int worker = (int)threadIdx.x * PER_THREAD + j;
            parts[j] = worker < WORKERS ? load_fresh(&shares[worker].part) : 0;
            own += parts[j];
        }
        u64 before = sum_before(own, &total);
        u64 target = tokens.drawn ? __umul64hi(next_random(random) << 11, total) + 1 : tokens.target;
        if (before < target && before + own >= target) {
#pragma unroll
            for (int j = 0; j < PER_THREAD; ++j) {
                if (before < target && before + parts[j] >= target) work->found = {1, threadIdx.x * PER_THREAD + j, before, 0, 0, 0};
                before += parts[j];
            }
        }
        meet_in_block<BARRIER>();
        if (work->found.found) {
            const share* owner = shares + work->found.bin;
            int from = (int)load_fresh(&owner->first), rows = (int)load_fresh(&owner->count);
            own = 0;
            each<false>(from, rows, [&](float x, int token) { own += weight_of(tokens, x, token); });
            before = sum_before(own, &total) + work->found.before;
            if (before < target && before + own >= target) {
                each<false>(from, rows, [&](float x, int token) {
                    u64 after = before + weight_of(tokens, x, token);
                    if (before < target && after >= target) work->token = (u32)token;
                    before = after;
                });
            }
        }
        meet_in_block<BARRIER>();
        *at = work->token;
        return true;
    }

    // Where the weights of the bins that all workers told reach the target, after those `before`; the target of masses
    // is that of top-p where `target` is 0. For all threads.
    __device__ void find_bin(bool by_mass, const place& before, u64* target) {
        const meeting* bins = heard();
        u64 weight[2];
        u32 tokens[2], all_tokens;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            tokens[j] = load_fresh(bins->count + 2 * threadIdx.x + j);
            weight[j] = by_mass ? load_fresh(bins->mass + 2 * threadIdx.x + j) : tokens[j];
        }
        if (threadIdx.x == 0) work->found.found = 0;
        u64 own = weight[0] + weight[1], total, sum = before.before + sum_before(own, &total);
        u32 tokens_sum = before.tokens_before + sum_before(tokens[0] + tokens[1], &all_tokens);
        if (by_mass && *target == 0) *target = top_p_target(state->top_p, total);
        if (sum < *target && sum + own >= *target) {
            bool second = sum + weight[0] < *target;
            work->found = {1, 2 * threadIdx.x + second, second ? sum + weight[0] : sum, second ? weight[1] : weight[0],
                           second ? tokens_sum + tokens[0] : tokens_sum, second ? tokens[1] : tokens[0]};
        }
        meet_in_block<BARRIER>();
    }

    // What finding the border of a cut came to.
    enum outcome {
        STOPPED,
        CUT,    // only what is to be kept is
        LIST,   // few tokens are kept, and the border is among them
        SEVERAL // several tokens have the border's key, and only some of them are to be kept
    };

    // Looks for the fewest of the most likely tokens whose weights together reach `target`: counted (top-k), or by mass at
    // temperature 1 (top-p; its target is found here). All are kept where they do not reach it. For SEVERAL, `target` is
    // what is left of it for those with the key `border`.
    __device__ outcome find_border(bool by_mass, u64* target, u32* border) {
        u32 prefix = 0;
        place found = {0, 0, 0, 0, 0, 0};
#pragma unroll 1
        for (int shift = 32 - BIN_BITS, bits = BIN_BITS;;) {
            for (int bin = threadIdx.x; bin < BINS; bin += THREADS)
                work->histogram.low[bin] = work->histogram.high[bin] = work->histogram.count[bin] = 0;
            meet_in_block<BARRIER>();
            each<true>(first, count, [&](float x, int at) {
                u32 key = key_of(x, largest);
                if (!keeps(key, at) || (u64)key >> (shift + bits) != (u64)prefix >> (shift + bits)) return;
                u32 bin = key >> shift & ((1u << bits) - 1);
                atomicAdd(&work->histogram.count[bin], 1u);
                u64 mass = by_mass ? mass_of(x, largest, 1.0f) : 0;
                if (mass == 0) return;
                u32 low = (u32)mass, old = atomicAdd(&work->histogram.low[bin], low);
                atomicAdd(&work->histogram.high[bin], (u32)(mass >> 32) + (old + low < low));
            });
            meet_in_block<BARRIER>();
            meeting* turn = told();
            for (int bin = threadIdx.x; bin < BINS; bin += THREADS) {
                u32 tokens = work->histogram.count[bin];
                if (tokens == 0) continue;
                atomicAdd(&turn->count[bin], tokens);
                u64 mass = (u64)work->histogram.high[bin] << 32 | work->histogram.low[bin];
                if (mass > 0) atomicAdd(&turn->mass[bin], mass);
            }
            if (!meet()) return STOPPED;
            find_bin(by_mass, found, target);
            found = work->found;
            if (!found.found) return CUT;
            prefix |= found.bin << shift;
            bool few = found.tokens_before + found.tokens <= LISTED;
            // Or the border is the bin's own end.
            if (few || found.tokens == 1 || (!by_mass && found.before + found.weight == *target)) {
                keep(prefix | ((1u << shift) - 1), MEGA_SAMPLE_NONE);
                return few ? LIST : CUT;
            }
            if (shift == 0) break;
            bits = min(BIN_BITS, shift);
            shift -= bits;
        }
        *border = prefix;
        *target -= found.before;
        return SEVERAL;
    }

    // The rank at which weights, one of each thread, in the order of `rank`, reach `target(total)`; LISTED where they do not.
    template <typename Target>
    __device__ u32 rank_at(u32 rank, u64 weight, Target target_of) {
        work->list.weight[rank] = weight;
        if (threadIdx.x == 0) work->found.bin = LISTED;
        meet_in_block<BARRIER>();
        u64 total, own = work->list.weight[threadIdx.x], before = sum_before(own, &total), target = target_of(total);
        if (before < target && before + own >= target) work->found.bin = threadIdx.x;
        meet_in_block<BARRIER>();
        u32 at = work->found.bin;
        meet_in_block<BARRIER>();
        return at;
    }

    // All that is left to do, where at most LISTED tokens are: the cut that found this out (`by_mass`: top-p), top-p if
    // that was top-k, and the draw.
    __device__ bool choose_from_list(bool by_mass, u64 target, u64* random) {
        meeting* turn = told();
        each<true>(first, count, [&](float x, int at) {
            u32 key = key_of(x, largest);
            if (!keeps(key, at)) return;
            u32 place = atomicAdd(&turn->listed, 1u);
            if (place < LISTED) turn->list[place] = make_uint4((u32)at, key, __float_as_uint(x), 0);
        });
        if (!meet()) return false;
        const meeting* bins = heard();
        u32 listed = load_fresh(&bins->listed), thread = threadIdx.x;
        bool exists = thread < listed;
        const u32* entry = (const u32*)(bins->list + thread);
        u32 own = exists ? load_fresh(entry) : 0, key = exists ? load_fresh(entry + 1) : 0;
        float x = exists ? __uint_as_float(load_fresh(entry + 2)) : 0.0f;
        u64 order = (u64)key << 32 | own;
        work->list.order[thread] = order;
        meet_in_block<BARRIER>();
        // Those that do not exist come last in both orders.
        u32 rank = exists ? 0 : thread, rank_of_token = rank;
        if (exists) {
#pragma unroll 4
            for (u32 i = 0; i < listed; ++i) {
                u64 other = work->list.order[i];
                rank += other < order;
                rank_of_token += (u32)other < own;
            }
        }
        bool kept = exists;
        if (!by_mass) kept = kept && rank < target;
        if (by_mass || state->top_p < 1.0f) {
            u64 mass = kept ? mass_of(x, largest, 1.0f) : 0;
            u32 last = rank_at(rank, mass, [&](u64 total) { return by_mass ? target : top_p_target(state->top_p, total); });
            kept = kept && rank <= last;
        }
        work->list.token[rank_of_token] = own;
        u64 mass = kept && x >= largest + state->log_min_p ? mass_of(x, largest, state->inverse_temperature) : 0;
        u32 drawn = rank_at(rank_of_token, mass, [&](u64 total) { return __umul64hi(next_random(random) << 11, total) + 1; });
        token = drawn < LISTED ? work->list.token[drawn] : MEGA_SAMPLE_NONE;
        return true;
    }

    __device__ bool choose(u64* random) {
        u64 best = 0;
        each<true>(first, count, [&](float x, int at) { best = larger(best, (u64)ordered_bits(x) << 32 | (u32)~at); });
        best = largest_of(best);
        if (threadIdx.x == 0) told()->shares[blockIdx.x].part = best;
        if (!meet()) return false;
        best = 0;
        for (int worker = threadIdx.x; worker < WORKERS; worker += THREADS)
            best = larger(best, load_fresh(&heard()->shares[worker].part));
        best = largest_of(best);
        u32 bits = (u32)(best >> 32);
        largest = __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
        token = bits < 0xff800000u && bits > 0x007fffffu ? ~(u32)best : MEGA_SAMPLE_NONE;
        if (token == MEGA_SAMPLE_NONE || !(state->inverse_temperature < __int_as_float(0x7f800000))) return true;

        kept_key = kept_token = 0xffffffffu;
        // Top-k, top-p, the draw: in one loop, since the code is large and runs once a token.
#pragma unroll 1
        for (int stage = 0; stage < 3; ++stage) {
            walk tokens = {stage == 2, stage == 0, 0, stage == 0 ? state->top_k : 0};
            if (!tokens.drawn) {
                if (stage == 0 ? tokens.target == 0 || tokens.target >= VOCAB : !(state->top_p < 1.0f)) continue;
                outcome found = find_border(stage == 1, &tokens.target, &tokens.key);
                if (found == STOPPED) return false;
                if (found == LIST) return choose_from_list(stage == 1, tokens.target, random);
                if (found == CUT) continue;
            }
            u32 at;
            if (!token_at(tokens, random, &at)) return false;
            if (!tokens.drawn) keep(tokens.key, at);
            token = at;
        }
        // The others may still be reading what the bitmap says of the owner's tokens.
        return state->penalty == 1.0f || meet();
    }
};

} // namespace mega_choice

template <int BARRIER, typename GiveUp>
static __device__ __forceinline__ u32 mega_sample(
    mega_sample_workspace* workspace, u8* scratch, mega_sampling* settings, const float* logits, int first, int count,
    GiveUp give_up) {
    mega_choice::request* state = &workspace->request;
    if (threadIdx.x == 0) {
        // Others may have come to the next meeting, but not all.
        u32 arrived = load_fresh((const u32*)scratch);
        state->random = load_fresh(&settings->random);
        state->seen = (u32*)settings->seen;
        state->meetings = arrived / WORKERS;
        state->stopped = 0;
        state->top_k = settings->top_k;
        state->inverse_temperature = 1.0f / settings->temperature;
        state->top_p = settings->top_p;
        state->log_min_p = settings->min_p > 0.0f ? logf(settings->min_p) : minus_infinity();
        state->penalty = settings->penalty;
    }
    mega_choice::meet_in_block<BARRIER>();
    u64 random = state->random;
    mega_choice::chooser<BARRIER, GiveUp> chooser = {workspace, state, scratch, logits, first, count, give_up};
    if (!chooser.choose(&random)) return MEGA_SAMPLE_STOPPED;
    u32 token = chooser.token;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) settings->random = random;
        // Whoever reads this bit from now on is choosing the next token.
        if ((u32)(token - first) < (u32)count) atomicOr(state->seen + token / 32, 1u << token % 32);
    }
    // Then the workspace is free.
    mega_choice::meet_in_block<BARRIER>();
    return token;
}
