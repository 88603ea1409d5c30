// The end of a step: choosing each sequence's next token, and telling the host.
//
// What is chosen is what the engine's sampler chooses: repetition penalty, top-k, top-p (at temperature 1), min-p,
// temperature, draw; ties go to the smaller token. Masses of probability are whole numbers (2^40 stands for the most
// likely token), so that sums do not depend on the order in which threads add: the same logits and seed give the same
// token. A cluster of SPLITS blocks serves a sequence. Thresholds are found by histograms of 2048 bins, three rounds of
// them, over how far a logit lies below the largest one, in steps of 2^-26: logits closer than that count as equal.
//
// Options: VOCAB, SPLITS (1: no cluster).

#if __CUDA_ARCH__ < 900 // no clusters
#undef SPLITS
#define SPLITS 1
#endif
#define THREADS 1024
#define WARPS (THREADS / 32)
#define BINS 2048
#define SHARE ((VOCAB + SPLITS - 1) / SPLITS) // tokens of a block
#define PER_THREAD ((SHARE + THREADS - 1) / THREADS)
#define UNIT 1099511627776.0f // 2^40
#define NO_TOKEN 0xffffffffu

// One sequence's settings and state, as the host writes them.
struct sampling {
    u64 random;     // state of the generator
    u64 ring;       // the host's view of u64 [ring_size]: sequence number from 1 << 32 | token
    u64 seen;       // bitmap of the tokens that occurred
    u32 chosen;     // tokens chosen so far
    u32 ring_size;
    u32 top_k;      // 0: all
    float temperature; // 0: the most likely token
    float top_p;
    float min_p;
    float penalty;
    u32 padding;
};

struct selection {
    u32 key;   // the last one that is kept
    u32 token; // of those with this key, the last one that is kept
};

// What the chosen token means for the next step; by one thread.
static __device__ void finish(sampling* state, u32* tokens, u32* positions, u32 token, u32 advance) {
    int sequence = (int)blockIdx.y;
    tokens[sequence] = token;
    positions[sequence] = load_fresh(positions + sequence) + advance;
    u32 number = load_fresh(&state->chosen) + 1;
    state->chosen = number;
    if (token < VOCAB) {
        u32* seen = (u32*)state->seen;
        seen[token / 32] = load_fresh(seen + token / 32) | 1u << token % 32;
    }
    u64* ring = (u64*)state->ring;
    asm volatile("st.volatile.global.u64 [%0], %1;" :: "l"(ring + (number - 1) % state->ring_size), "l"((u64)number << 32 | token) : "memory");
}

__device__ __forceinline__ u64 larger(u64 a, u64 b) { return a > b ? a : b; }

template <typename T>
__device__ __forceinline__ T warp_inclusive_sum(T x, int lane) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        T other = __shfl_up_sync(0xffffffffu, x, offset);
        if (lane >= offset) x += other;
    }
    return x;
}

// The largest of the head's candidates: greedy without penalty.
extern "C" __global__ void __launch_bounds__(256) choose_greedy(
    sampling* states,      // (batch)
    u32* tokens,           // (batch)
    u32* positions,        // (batch)
    const u64* candidates, // (batch, count)
    int count, u32 advance) {
    __shared__ u64 best_of[8];
    launch_dependents();
    wait_for_previous();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sequence = (int)blockIdx.y;
    u64 best = 0;
    for (int i = threadIdx.x; i < count; i += 256) best = larger(best, load_fresh(candidates + sequence * count + i));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) best = larger(best, __shfl_xor_sync(0xffffffffu, best, offset));
    if (lane == 0) best_of[warp] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) best = larger(best, best_of[i]);
        // Infinities have the ordered bits 0xff800000 and 0x007fffff.
        u32 bits = (u32)(best >> 32);
        u32 token = bits < 0xff800000u && bits > 0x007fffffu ? ~(u32)best : NO_TOKEN;
        finish(states + sequence, tokens, positions, token, advance);
    }
}

// A block's part of a sequence's logits, and what its threads share.
struct workspace {
    u64 bins[BINS];
    u64 warp_sums[WARPS];
    u64 block_sum[2];
    u64 best;
    u32 found_bin;
    u64 before;
};

__device__ __forceinline__ void cluster_sync() {
#if SPLITS > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

__device__ __forceinline__ u64 read_block(const u64* place, int block) {
#if SPLITS > 1
    u32 remote;
    u64 x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(block));
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(x) : "r"(remote) : "memory");
    return x;
#else
    return *place;
#endif
}

// Sum over the block, in every thread.
static __device__ u64 block_sum(workspace& work, u64 x) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = warp_inclusive_sum(x, lane);
    if (lane == 31) work.warp_sums[warp] = sum;
    __syncthreads();
    u64 total = warp_inclusive_sum(work.warp_sums[lane], lane);
    total = __shfl_sync(0xffffffffu, total, 31);
    __syncthreads();
    return total;
}

// Sum over the cluster, in every thread; `before` is that of the blocks before this one.
static __device__ u64 cluster_sum(workspace& work, u64 x, u64* before) {
    u64 own = block_sum(work, x), total = 0;
    if (threadIdx.x == 0) work.block_sum[0] = own;
    cluster_sync();
    *before = 0;
    for (int block = 0; block < SPLITS; ++block) {
        u64 sum = read_block(&work.block_sum[0], block);
        if (block < (int)blockIdx.x) *before += sum;
        total += sum;
    }
    cluster_sync();
    return total;
}

// Logits of one thread: tokens `first_token() + i`, consecutive, so that sums over threads are in the order of tokens.
struct logits_view {
    const float* logits;
    const u32* seen;
    float penalty;

    __device__ __forceinline__ int first_token() const { return (int)blockIdx.x * SHARE + (int)threadIdx.x * PER_THREAD; }
    __device__ __forceinline__ bool exists(int i) const {
        return (int)threadIdx.x * PER_THREAD + i < SHARE && first_token() + i < VOCAB;
    }
    __device__ __forceinline__ float value(int i) const {
        if (!exists(i)) return minus_infinity();
        int token = first_token() + i;
        float x = load_fresh(logits + token);
        if (penalty != 1.0f && load_fresh(seen + token / 32) >> token % 32 & 1) {
            float scaled = x > 0.0f ? x / penalty : x * penalty;
            // A finite logit stays finite whatever the penalty.
            x = fabsf(x) < __int_as_float(0x7f800000) ? fminf(fmaxf(scaled, -3.4028234664e38f), 3.4028234664e38f) : scaled;
        }
        return x;
    }
};

// How far below the largest logit, in steps of 2^-26 and at most 2^32 - 1: for NaN and minus infinity, too.
__device__ __forceinline__ u32 key_of(float x, float largest) {
    float distance = (largest - x) * 67108864.0f;
    return distance < 4294967040.0f ? (u32)distance : 0xffffffffu;
}

__device__ __forceinline__ u64 mass_of(float x, float largest, float inverse_temperature) {
    float mass = exponential2((x - largest) * inverse_temperature * 1.4426950408889634f) * UNIT;
    return mass > 0.0f ? (u64)(mass + 0.5f) : 0; // not for NaN
}

__device__ __forceinline__ bool keeps(const selection& last, u32 key, int token) {
    return key < last.key || (key == last.key && (u32)token <= last.token);
}

// The token at which the weights of tokens, in their order, reach `target` (at least 1). `weight(x, key, token)`.
template <typename Weight>
static __device__ u32 token_at(workspace& work, const logits_view& view, float largest, u64 target, Weight weight) {
    u64 own = 0;
#pragma unroll 1
    for (int i = 0; i < PER_THREAD; ++i) {
        float x = view.value(i);
        if (view.exists(i)) own += weight(x, key_of(x, largest), view.first_token() + i);
    }
    u64 blocks_before;
    cluster_sum(work, own, &blocks_before);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 inclusive = warp_inclusive_sum(own, lane);
    if (lane == 31) work.warp_sums[warp] = inclusive;
    if (threadIdx.x == 0) work.best = NO_TOKEN;
    __syncthreads();
    u64 sum = blocks_before + inclusive - own;
    for (int w = 0; w < warp; ++w) sum += work.warp_sums[w];
    if (sum < target && sum + own >= target) {
        for (int i = 0; i < PER_THREAD; ++i) {
            float x = view.value(i);
            if (view.exists(i)) sum += weight(x, key_of(x, largest), view.first_token() + i);
            if (sum >= target) {
                work.best = (u32)(view.first_token() + i);
                break;
            }
        }
    }
    cluster_sync();
    u64 token = NO_TOKEN;
    for (int block = 0; block < SPLITS; ++block) {
        u64 found = read_block(&work.best, block);
        if (found < token) token = found;
    }
    cluster_sync();
    return (u32)token;
}

// The last of the most likely tokens whose weights together reach `target`; all where they do not.
template <typename Weight>
static __device__ selection select(
    workspace& work, const logits_view& view, float largest, u64 target, const selection& kept, Weight weight) {
    u32 prefix = 0;
    u64 before = 0; // weight of the keys below the prefix
#pragma unroll 1
    for (int round = 0; round < 3; ++round) {
        int shift = round == 0 ? 21 : round == 1 ? 10 : 0, bits = round == 2 ? 10 : 11;
        for (int bin = threadIdx.x; bin < BINS; bin += THREADS) work.bins[bin] = 0;
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < PER_THREAD; ++i) {
            float x = view.value(i);
            u32 key = key_of(x, largest);
            if (!view.exists(i) || !keeps(kept, key, view.first_token() + i)) continue;
            if (round > 0 && key >> (shift + bits) != prefix >> (shift + bits)) continue;
            u64 w = weight(x);
            if (w > 0) atomicAdd(&work.bins[key >> shift & ((1u << bits) - 1)], w);
        }
        cluster_sync();
        // Every block finds the same bin: two bins a thread.
        u64 mine[2];
        for (int j = 0; j < 2; ++j) {
            mine[j] = 0;
            for (int block = 0; block < SPLITS; ++block) mine[j] += read_block(&work.bins[threadIdx.x * 2 + j], block);
        }
        cluster_sync();
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u64 own = mine[0] + mine[1], inclusive = warp_inclusive_sum(own, lane);
        if (lane == 31) work.warp_sums[warp] = inclusive;
        if (threadIdx.x == 0) work.found_bin = BINS;
        __syncthreads();
        u64 sum = before + inclusive - own;
        for (int w = 0; w < warp; ++w) sum += work.warp_sums[w];
        if (sum < target && sum + own >= target) {
            bool second = sum + mine[0] < target;
            work.found_bin = threadIdx.x * 2 + second;
            work.before = second ? sum + mine[0] : sum;
        }
        __syncthreads();
        u32 bin = work.found_bin;
        if (bin == BINS) return kept;
        before = work.before;
        prefix |= bin << shift;
        __syncthreads();
    }
    // Those with this key, in the order of tokens.
    selection last = {prefix, 0};
    last.token = token_at(work, view, largest, target - before, [&](float x, u32 key, int token) {
        return key == prefix && keeps(kept, key, token) ? weight(x) : (u64)0;
    });
    return last;
}

// SplitMix64, as the engine's generator; the upper 53 bits.
static __device__ u64 next_random(u64* state) {
    *state += 0x9E3779B97F4A7C15ull;
    u64 z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) >> 11;
}

extern "C" __global__ void __launch_bounds__(THREADS) choose(
    sampling* states,    // (batch)
    u32* tokens,         // (batch)
    u32* positions,      // (batch)
    const float* logits, // (batch, VOCAB)
    u32 advance) {
    __shared__ workspace work;
    launch_dependents();
    wait_for_previous();
    int sequence = (int)blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    sampling* state = states + sequence;
    logits_view view = {logits + (long long)sequence * VOCAB, (const u32*)state->seen, state->penalty};

    u64 best = 0;
    for (int i = 0; i < PER_THREAD; ++i) {
        float x = view.value(i);
        if (view.exists(i)) best = larger(best, (u64)ordered_bits(x) << 32 | (u32)~(view.first_token() + i));
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) best = larger(best, __shfl_xor_sync(0xffffffffu, best, offset));
    if (lane == 0) work.warp_sums[warp] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < WARPS; ++w) best = larger(best, work.warp_sums[w]);
        work.best = best;
    }
    cluster_sync();
    best = 0;
    for (int block = 0; block < SPLITS; ++block) best = larger(best, read_block(&work.best, block));
    cluster_sync();

    u32 bits = (u32)(best >> 32), token = ~(u32)best;
    float largest = __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
    float inverse_temperature = 1.0f / state->temperature;
    bool finite = bits < 0xff800000u && bits > 0x007fffffu;
    if (!finite) {
        token = NO_TOKEN;
    } else if (inverse_temperature < __int_as_float(0x7f800000)) {
        selection kept = {0xffffffffu, 0xffffffffu};
        if (state->top_k > 0 && state->top_k < VOCAB)
            kept = select(work, view, largest, state->top_k, kept, [](float) { return (u64)1; });
        if (state->top_p < 1.0f) {
            u64 own = 0, unused;
            for (int i = 0; i < PER_THREAD; ++i) {
                float x = view.value(i);
                if (view.exists(i) && keeps(kept, key_of(x, largest), view.first_token() + i)) own += mass_of(x, largest, 1.0f);
            }
            u64 total = cluster_sum(work, own, &unused);
            u64 target = (u64)ceil((double)state->top_p * (double)total);
            kept = select(work, view, largest, target > 0 ? target : 1, kept, [&](float x) { return mass_of(x, largest, 1.0f); });
        }
        float threshold = state->min_p > 0.0f ? largest + logf(state->min_p) : minus_infinity();
        auto drawn = [&](float x, u32 key, int at) {
            return x >= threshold && keeps(kept, key, at) ? mass_of(x, largest, inverse_temperature) : (u64)0;
        };
        u64 own = 0, unused;
        for (int i = 0; i < PER_THREAD; ++i) {
            float x = view.value(i);
            if (view.exists(i)) own += drawn(x, key_of(x, largest), view.first_token() + i);
        }
        u64 total = cluster_sum(work, own, &unused);
        u64 random = load_fresh(&state->random);
        u64 target = __umul64hi(next_random(&random) << 11, total) + 1;
        token = token_at(work, view, largest, target, drawn);
        if (blockIdx.x == 0 && threadIdx.x == 0) state->random = random;
    }
    // Every block has read the state and this block's memory.
    cluster_sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) finish(state, tokens, positions, token, advance);
}
