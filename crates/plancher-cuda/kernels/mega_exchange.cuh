// What the megakernel's files share: its parameters, the layout of the exchange, and every way in which a worker waits.
//
// Workers exchange activations as 32-bit words in global memory that validate themselves: a word that is all ones is not
// there yet, and no result is all ones (a conversion to 16 bits makes 0x7fff of a NaN). Words are stored and checked at equal
// width, relaxed. Of each slot there are three copies, for the steps modulo 3: what step t writes is cleared in step t + 1
// and written again in step t + 3. One counter of arrivals a step orders it all: reads of step t come before a worker's
// arrival t, which clears of step t + 1 wait for; and those come before arrival t + 1, which every worker has waited for
// before step t + 3 begins.
//
// Every wait has a bound: whoever waits too long reports for whom, once, and everybody stops waiting and ends.
//
// Options: WORKERS, LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCAB, SPLITS (of a head's positions), STAGES (of the
// ring), ROTARY_PAIRS, ROPE_INTERLEAVED, QK_NORM, QKV_BIAS, OUTPUT_BIAS, GATE_UP_BIAS, DOWN_BIAS, ACTIVATION_GELU, TABLE_PAGES,
// INSTRUCTIONS (of a worker, with the end), RESIDUAL (rows of a worker), PREFETCH_STAGES, TRACE.

#define CONSUMERS 8
#define FINALIZER CONSUMERS
#define PRODUCER (CONSUMERS + 1)
#define MEGA_THREADS ((CONSUMERS + 2) * 32)
#define STAGE_BYTES 16384
#define PAGE 32
#define GROUP (HEADS / KV_HEADS)
#define QUERY_ROWS (HEADS * HEAD_DIM)
#define KV_ROWS (KV_HEADS * HEAD_DIM)
#define QKV_ROWS (QUERY_ROWS + 2 * KV_ROWS)
#define PADDED(n) (((n) + 511) / 512 * 512)
#define HIDDEN_P PADDED(HIDDEN)
#define QUERY_P PADDED(QUERY_ROWS)
#define FEED_FORWARD_P PADDED(FEED_FORWARD)
#define PAGE_BYTES (2 * PAGE * HEAD_DIM * 2)
#define RING_TOKENS 1024

// Columns of a consumer.
#define SLICE(padded) ((padded) / CONSUMERS)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define REGION_RAW LARGER(LARGER(SLICE(HIDDEN_P) * 4, SLICE(QUERY_P) * 2), LARGER(SLICE(FEED_FORWARD_P) * 2, GROUP * HEAD_DIM * 4))
#define REGION_BYTES ((REGION_RAW + 127) / 128 * 128)

// Whether a product over so many columns has tiles of 8 rows.
#define HALF_TILES(padded) ((padded) / 128 % 8 == 0)

// Exchange, in words of two elements.
#define X_ATTENTION 0
#define QUERY_KEY_VALUE (X_ATTENTION + HIDDEN_P / 2)
#define ATTENDED (QUERY_KEY_VALUE + PADDED(QKV_ROWS) / 2)
#define X_FEED_FORWARD (ATTENDED + QUERY_P / 2)
#define GATED (X_FEED_FORWARD + HIDDEN_P / 2)
#define PARTIALS (GATED + FEED_FORWARD_P / 2)
#define PARTIAL_SUMS (PARTIALS + SPLITS * QUERY_ROWS / 2)
#define LAYER_WORDS ((PARTIAL_SUMS + SPLITS * HEADS * 2 + 63) / 64 * 64)
#define CANDIDATES (LAYERS * LAYER_WORDS + HIDDEN_P / 2)
#define STOP_WORD (CANDIDATES + WORKERS * 2)
#define COPY_WORDS ((STOP_WORD + 1 + 63) / 64 * 64)

#define ABSENT 0xffffffffu
#define RESIDUAL_SCALE 0.015625f // 2^-6: what is published of the residual stream, so that f16 has room for outliers
#define NO_TOKEN 0xffffffffu

// How far beyond a full ring the second-level cache is filled, and how many clocks apart.
#ifndef PREFETCH_STAGES
#define PREFETCH_STAGES 4
#endif
#ifndef PREFETCH_CLOCKS
#define PREFETCH_CLOCKS 1800
#endif
// Stages that may be under way: while an exchange is waited for, and elsewhere; from bit 8, how many more while little has landed.
#ifndef IN_FLIGHT_SHORT
#define IN_FLIGHT_SHORT ((PREFETCH_STAGES > 0 ? 1 : 2) | 1 << 8)
#endif
#ifndef IN_FLIGHT_LONG
#define IN_FLIGHT_LONG 4
#endif

static_assert(ROTARY_PAIRS % 2 == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 128 && GROUP <= 8, "attention");
static_assert(HIDDEN % 8 == 0 && FEED_FORWARD % 8 == 0, "pieces of 16 bytes");

enum operation { END, EMBED, QKV, ATTEND, COMBINE, OUTPUT, GATE_UP, DOWN, HEAD, OPERATIONS };

// What is waited for, as the host names it.
enum wait_kind { WAIT_INPUT = 1, WAIT_STAGE, WAIT_SUMS, WAIT_BUFFER, WAIT_QUERIES, WAIT_PARTIALS, WAIT_ARRIVALS, WAIT_CANDIDATES, WAIT_STOP, WAIT_SAMPLING };

struct mega_layer {
    u64 cache;  // this layer's, (blocks, KV_HEADS, 2, 32, HEAD_DIM)
    u64 rope;   // float2 (positions, ROTARY_PAIRS); 0: none
    u32 window; // 0: none
    float scale;
};

struct mega_parameters {
    u64 stream;
    u64 instructions; // (WORKERS, INSTRUCTIONS)
    u64 embedding;    // elements (VOCAB, embedding_stride)
    u64 norms;        // (LAYERS, 2, HIDDEN_P), then (HIDDEN_P)
    u64 post_norms;   // 0: layers with norms behind their branches are not run
    u64 biases;       // (LAYERS, QKV_ROWS + HIDDEN + 2 * FEED_FORWARD + HIDDEN), or 0
    u64 head_norms;   // (LAYERS, 2, HEAD_DIM), or 0
    u64 layers;       // mega_layer (LAYERS)
    u64 block_table;
    u64 exchange;     // (3, COPY_WORDS)
    u64 counters;     // arrivals, abort; scratch of sampling behind them
    u64 logits;       // (VOCAB)
    u64 sampling;     // as in sample.cu
    u64 tokens;
    u64 positions;
    u64 control;      // host memory: stop request, report, ring of tokens
    u64 trace;
    u32 steps;
    u32 embedding_stride;
    u32 end_count;
    u32 mode;         // 0: logits only; 1: the most likely token; 2: sample
    u32 end_tokens[32];
    float epsilon;
    float embedding_scale;
    u32 patience;     // polls of one wait
    u32 padding;
};

// One sequence's settings and state, as in sample.cu.
struct mega_sampling {
    u64 random;
    u64 ring;
    u64 seen;
    u32 chosen;
    u32 ring_size;
    u32 top_k;
    float temperature;
    float top_p;
    float min_p;
    float penalty;
    u32 padding;
};

// Static shared memory of a worker.
struct mega_shared {
    u64 full[STAGES];      // a stage has landed
    u64 empty[STAGES];     // and every consumer is done with it
    u64 sums_full[2];      // the partial sums of a chunk are there
    u64 sums_empty[2];     // and have been read
    u64 logits_there;      // this worker's, for a draw
    u64 step_done;         // by every consumer, with its part in a draw
    u64 token_there;       // and whether the launch ends
    u32 appended[CONSUMERS]; // steps of which each consumer's keys and values can be copied
    __align__(16) float squares[2][CONSUMERS];
    float maxima[CONSUMERS][8], sums[CONSUMERS][8]; // of attention
    uint4 heads[GROUP + 2][HEAD_DIM / 8]; // queries, then the new position's key and value
#if ROTARY_PAIRS > 0
    __align__(16) float2 rotation[2][2][ROTARY_PAIRS]; // of even and odd steps: the row of each of up to two rotary tables
#endif
    uint2 own[OPERATIONS]; // first and count of this worker's instruction of layer 0
    u64 first_rope;        // the first layer's rotary table, 0: none
    u32 in_flight;         // stages that may be under way; 0: stop
    u32 token;
    u32 finished;
};

// Dynamic shared memory of a worker.
#define SUMS_BYTES (2 * CONSUMERS * 128 * 4)
#define REGIONS_AT (STAGES * STAGE_BYTES + SUMS_BYTES)
#define INSTRUCTIONS_AT (REGIONS_AT + CONSUMERS * REGION_BYTES)
#define LAYERS_AT (INSTRUCTIONS_AT + INSTRUCTIONS * 16)
#define TABLE_AT (LAYERS_AT + LAYERS * 24)
#define RESIDUAL_AT (TABLE_AT + TABLE_PAGES * 4)

extern __shared__ __align__(1024) char worker_memory[];

static __device__ __forceinline__ mega_layer* worker_layers() { return (mega_layer*)(worker_memory + LAYERS_AT); }

static __device__ __forceinline__ u64 first_rope_of(const mega_layer* layers) {
#pragma unroll 1
    for (int i = 0; i < LAYERS; ++i)
        if (layers[i].rope != 0) return layers[i].rope;
    return 0;
}

static __device__ __forceinline__ u32 load_word(const u32* p) {
    u32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ uint2 load_words_2(const u32* p) {
    uint2 x;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ uint4 load_words(const u32* p) {
    uint4 x;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ void store_word(u32* p, u32 x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

static __device__ __forceinline__ u64 load_word_64(const u64* p) {
    u64 x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ void store_word_64(u64* p, u64 x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(p), "l"(x) : "memory");
}

static __device__ __forceinline__ u32 load_acquire(const u32* p) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ bool absent(uint4 x) {
    return x.x == ABSENT || x.y == ABSENT || x.z == ABSENT || x.w == ABSENT;
}

// A result that could be read as "not there".
static __device__ __forceinline__ u32 present(u32 x) { return x == ABSENT ? 0x7fff7fffu : x; }

static __device__ __forceinline__ u32* copy_of(const mega_parameters& p, u32 step) {
    return (u32*)p.exchange + (size_t)(step % 3) * COPY_WORDS;
}

// The slow path of a wait: whether to stop waiting. The first to find its patience at an end reports.
static __device__ __noinline__ bool give_up(const mega_parameters& p, u32 spins, u32 kind, u32 step, u32 instruction, u32 detail) {
    u32* counters = (u32*)p.counters;
    if (load_word(counters + 1) != 0) return true;
    // Inside a block one waits for somebody who waits outside: that one has the first word.
    if (spins / (kind == WAIT_STAGE || kind == WAIT_SUMS || kind == WAIT_BUFFER ? 4 : 1) < p.patience) return false;
    if (atomicExch(counters + 1, 1u) == 0) {
        volatile u32* report = (volatile u32*)p.control + 4;
        report[0] = blockIdx.x;
        report[1] = threadIdx.x / 32;
        report[2] = kind;
        report[3] = step;
        report[4] = instruction;
        report[5] = detail;
        report[6] = spins;
        report[7] = 0;
        __threadfence_system();
        ((volatile u32*)p.control)[2] = 1;
        __threadfence_system();
    }
    return true;
}

// Where a warp is, for reports.
struct place {
    u32 step, instruction;
};

// True once one must stop waiting. To be asked at every poll, by all lanes of a warp together.
static __device__ __forceinline__ bool waited_enough(const mega_parameters& p, u32& spins, u32 kind, const place& at, u32 detail) {
    return (++spins & 255) == 0 && __any_sync(0xffffffffu, give_up(p, spins, kind, at.step, at.instruction, detail));
}

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// A warp's arrival, after all that its lanes did.
static __device__ __forceinline__ void barrier_arrive_warp(u32 barrier, int lane) {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
}

static __device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    return passed;
}

// As barrier_passed, but sleeps a while where the hardware can.
static __device__ __forceinline__ bool barrier_try(u32 barrier, u32 parity) {
#if __CUDA_ARCH__ >= 900
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    return passed;
#else
    return barrier_passed(barrier, parity);
#endif
}

// Waits of a warp are its lanes' together: a vote keeps them on one path. Lanes that leave a wait one by one would go on one by one.

// The slow path: what is waited for is not there yet.
static __device__ __noinline__ void barrier_wait_on(const mega_parameters& p, u32 barrier, u32 parity, u32 kind, u32 step, u32 instruction) {
    u32 spins = 0;
    while (!__all_sync(0xffffffffu, barrier_try(barrier, parity)))
        if ((++spins & 255) == 0 && __any_sync(0xffffffffu, give_up(p, spins, kind, step, instruction, 0))) break;
}

static __device__ __forceinline__ void barrier_wait(const mega_parameters& p, u32 barrier, u32 parity, u32 kind, const place& at) {
    if (!__all_sync(0xffffffffu, barrier_try(barrier, parity))) barrier_wait_on(p, barrier, parity, kind, at.step, at.instruction);
}

// Waits for other warps of the block, all of whose own waits have bounds: one here would end a step in the middle.
static __device__ __forceinline__ void barrier_wait_inside(u32 barrier, u32 parity) {
    while (!__all_sync(0xffffffffu, barrier_try(barrier, parity))) {}
}

// The same address, of which the compiler no longer knows where it comes from: it would work it out anew at every use.
static __device__ __forceinline__ u32 kept_address(const void* shared) {
    u32 address = shared_address(shared);
    asm volatile("" : "+r"(address));
    return address;
}

// A field of the block's static shared memory, whose kept address is `base`.
#define FIELD(base, field) ((base) + (u32)(u64)&((mega_shared*)0)->field)

static __device__ __forceinline__ void store_shared_word(u32 address, u32 x) {
    asm volatile("st.shared.u32 [%0], %1;" :: "r"(address), "r"(x) : "memory");
}

static __device__ __forceinline__ void store_shared_float(u32 address, float x) { store_shared_word(address, __float_as_uint(x)); }

static __device__ __forceinline__ float load_shared_float(u32 address) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ u64 load_shared_64(u32 address) {
    u64 x;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(x) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ float2 load_shared_pair(u32 address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ float4 load_shared_floats(u32 address) {
    uint4 x = load_shared_16(address);
    return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w));
}

static __device__ __forceinline__ void store_shared_16(u32 address, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

static __device__ __forceinline__ void store_shared_floats(u32 address, float4 x) {
    store_shared_16(address, make_uint4(__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(x.z), __float_as_uint(x.w)));
}

template <int ID, int THREADS_OF_IT>
static __device__ __forceinline__ void block_barrier() {
    asm volatile("bar.sync %0, %1;" :: "n"(ID), "n"(THREADS_OF_IT) : "memory");
}

static __device__ __forceinline__ void store_shared(u32* p, u32 x) { *(volatile u32*)p = x; }
static __device__ __forceinline__ u32 load_shared(const u32* p) { return *(const volatile u32*)p; }

// Publishes what this thread and those it has synchronised with wrote, within the block.
static __device__ __forceinline__ void store_shared_release(u32* p, u32 x) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" :: "r"(shared_address(p)), "r"(x) : "memory");
}

static __device__ __forceinline__ u32 load_shared_acquire(const u32* p) {
    u32 x;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(x) : "r"(shared_address(p)) : "memory");
    return x;
}

// Between accesses of threads and background copies of the same memory.
static __device__ __forceinline__ void fence_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

static __device__ __forceinline__ u64 global_time() {
    u64 x;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(x) :: "memory");
    return x;
}

// Instructions: word 0 is the operation and, from bit 8, the layer; then first, count, stages.
static __device__ __forceinline__ u32 operation_of(const uint4& instruction) { return instruction.x & 0xff; }
static __device__ __forceinline__ u32 layer_of(const uint4& instruction) { return instruction.x >> 8 & 0xffff; }

// Whole tiles of 16 rows (or of 8 gate and 8 up rows), and whether a tile of 8 follows.
static __device__ __forceinline__ int tiles_of(u32 operation, u32 count, bool* half) {
    *half = false;
    if (operation == GATE_UP) return (count + 7) / 8;
    bool halves = operation == OUTPUT ? HALF_TILES(QUERY_P) : operation == DOWN ? HALF_TILES(FEED_FORWARD_P) : HALF_TILES(HIDDEN_P);
    if (!halves) return (count + 15) / 16;
    u32 units = (count + 7) / 8;
    *half = units & 1;
    return units / 2;
}

// Attention: page p of a head belongs to split p / 8 % SPLITS.
static __device__ __forceinline__ u32 first_own_page(u32 first, u32 split) {
    u32 group = first / 8, owner = group % SPLITS;
    return owner == split ? first : (group + (split + SPLITS - owner) % SPLITS) * 8;
}

static __device__ __forceinline__ u32 next_own_page(u32 page) { return (page + 1) % 8 == 0 ? page + 1 + 8 * (SPLITS - 1) : page + 1; }

// The first position that is attended to.
static __device__ __forceinline__ u32 window_start(u32 window, u32 position) { return window > 0 && position + 1 > window ? position + 1 - window : 0; }

// Splits that have positions. With one there is nothing to combine.
static __device__ __forceinline__ u32 active_splits(u32 position) { return min((u32)SPLITS, position / 256 + 1); }

// The place of a page in the part of the block table that a worker keeps.
static __device__ __forceinline__ u32 kept_page(u32 page) { return page / 8 / SPLITS * 8 + page % 8; }
