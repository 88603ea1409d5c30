// The megakernel's matrix products. The eight consumers share the columns: each takes in its slice of the input, multiplies all
// tiles of the worker with it as the stages arrive, and leaves partial sums, which the finalizer adds up in the order of the
// consumers. Weights lie in the order of `mma.sync.m16n8k16`'s A operand (512 bytes, one instruction); the input is its B operand:
// columns 0 and 1 are the high and the low part of a normed input. A tile of 8 rows has the two halves of the slice's columns in
// the two halves of the instruction's rows.

// A consumer's place in the ring.
struct ring_place {
    u32 slot, parity, used;
};

struct consumer {
    const mega_parameters& p;
    mega_shared& shared;
    u32 ring;    // of this consumer's 2 KiB of slot 0
    u32 region;  // its shared memory for inputs, as the instructions address it
    char* region_pointer;
    float* sums; // partial sums, (2, CONSUMERS, 128)
    int warp, lane;
    ring_place at;
    place here;
    u32 chunk;   // chunks of partial sums so far
#if TRACE
    u64 waited, polls;
#endif
};

static __device__ __forceinline__ void wait_stage(consumer& c) {
    u32 barrier = shared_address(c.shared.full) + c.at.slot * 8;
    if (barrier_try(barrier, c.at.parity)) return;
#if TRACE
    u64 begin = global_time();
#endif
    u32 spins = 0;
    while (!barrier_try(barrier, c.at.parity))
        if (waited_enough(c.p, spins, WAIT_STAGE, c.here, c.at.slot)) break;
#if TRACE
    c.waited += global_time() - begin;
#endif
}

static __device__ __forceinline__ void release_stage(consumer& c) {
    __syncwarp();
    ++c.at.used;
    if (c.lane == 0) store_shared(&c.shared.used[c.warp], c.at.used);
    if (++c.at.slot == STAGES) {
        c.at.slot = 0;
        c.at.parity ^= 1;
    }
}

static __device__ __forceinline__ float from_half(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

static __device__ __forceinline__ u32 pack_halves(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

#if ELEMENT_F16
static __device__ __forceinline__ float within_range(float x) { return fminf(fmaxf(x, -65504.0f), 65504.0f); }
#else
static __device__ __forceinline__ float within_range(float x) { return x; }
#endif

// One's slice of the residual stream times the norm's weights, as high and low parts, and the sum of its squares. `embedded`: the
// row of the embedding (elements), else words of the exchange.
template <bool EMBEDDED>
static __device__ __forceinline__ void normed_input(consumer& c, const void* source, const float* norm) {
    constexpr int PIECES_OF_SLICE = SLICE(HIDDEN_P) / 8, LOADS = (PIECES_OF_SLICE + 31) / 32;
    uint4 raw[LOADS];
    float4 weights[LOADS][2];
    const int first = c.warp * SLICE(HIDDEN_P);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int piece = i * 32 + c.lane, k = first + piece * 8;
        raw[i] = make_uint4(0, 0, 0, 0);
        weights[i][0] = weights[i][1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (piece < PIECES_OF_SLICE && k < HIDDEN) {
            weights[i][0] = __ldg((const float4*)(norm + k));
            weights[i][1] = __ldg((const float4*)(norm + k) + 1);
        }
    }
    u32 spins = 0;
    while (true) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            int piece = i * 32 + c.lane, k = first + piece * 8;
            if (piece < PIECES_OF_SLICE && k < HIDDEN)
                raw[i] = EMBEDDED ? __ldg((const uint4*)source + k / 8) : load_words((const u32*)source + k / 2);
        }
        if (EMBEDDED) break;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) there = there && !absent(raw[i]);
        if (there) break;
#if TRACE
        ++c.polls;
#endif
        if (waited_enough(c.p, spins, WAIT_INPUT, c.here, (u32)((const u32*)source - (const u32*)c.p.exchange) + first / 2)) break;
    }
    __syncwarp();
    float squares = 0.0f;
    const float scale = EMBEDDED ? c.p.embedding_scale * RESIDUAL_SCALE : 1.0f;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int piece = i * 32 + c.lane;
        const u32 words[4] = {raw[i].x, raw[i].y, raw[i].z, raw[i].w};
        const float* w = (const float*)weights[i];
        u32 high[4], low[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float a, b;
            if (EMBEDDED) {
                a = to_float((element)words[j]) * scale;
                b = to_float((element)(words[j] >> 16)) * scale;
            } else {
                a = from_half((u16)words[j]);
                b = from_half((u16)(words[j] >> 16));
            }
            squares += a * a + b * b;
            a = within_range(a * w[2 * j]);
            b = within_range(b * w[2 * j + 1]);
            high[j] = pack_elements(a, b);
            float2 rounded = unpack_elements(high[j]);
            low[j] = pack_elements(a - rounded.x, b - rounded.y);
        }
        if (piece < PIECES_OF_SLICE) {
            uint4* place = (uint4*)(c.region_pointer + piece / 4 * 128 + piece % 4 * 16);
            place[0] = make_uint4(high[0], high[1], high[2], high[3]);
            place[4] = make_uint4(low[0], low[1], low[2], low[3]);
        }
    }
    squares = warp_sum(squares);
    if (c.lane == 0) c.shared.squares[c.chunk & 1][c.warp] = squares;
    __syncwarp();
}

// One's slice of `LENGTH` elements as they are.
template <int LENGTH>
static __device__ __forceinline__ void plain_input(consumer& c, const u32* source) {
    constexpr int PIECES_OF_SLICE = SLICE(PADDED(LENGTH)) / 8, LOADS = (PIECES_OF_SLICE + 31) / 32;
    uint4 raw[LOADS];
    const int first = c.warp * SLICE(PADDED(LENGTH));
#pragma unroll
    for (int i = 0; i < LOADS; ++i) raw[i] = make_uint4(0, 0, 0, 0);
    u32 spins = 0;
    while (true) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            int piece = i * 32 + c.lane, k = first + piece * 8;
            if (piece < PIECES_OF_SLICE && k < LENGTH) raw[i] = load_words(source + k / 2);
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) there = there && !absent(raw[i]);
        if (there) break;
#if TRACE
        ++c.polls;
#endif
        if (waited_enough(c.p, spins, WAIT_INPUT, c.here, (u32)(source - (const u32*)c.p.exchange) + first / 2)) break;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int piece = i * 32 + c.lane;
        if (piece < PIECES_OF_SLICE) ((uint4*)c.region_pointer)[piece] = raw[i];
    }
    __syncwarp();
}

static __device__ __forceinline__ void load_shared_16_if(uint4& x, u32 address, int condition) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "r"(address), "r"(condition) : "memory");
}

// Stages that are multiplied at a time: two where every tile is an even number of them.
#define EVEN_STAGES(padded) ((padded) / 128 % 16 == 0)
#if EVEN_STAGES(HIDDEN_P) && EVEN_STAGES(QUERY_P) && EVEN_STAGES(FEED_FORWARD_P)
#define STAGES_AT_ONCE 2
#else
#define STAGES_AT_ONCE 1
#endif

// `tiles` tiles of 16 rows and, if `half`, one of 8, over a slice of `columns`, whose high and low parts (if `normed`) are in this
// consumer's region. One loop for all products: code that does not fit the instruction cache costs more than its branches.
static __device__ __forceinline__ void multiply(consumer& c, int tiles, bool half, int columns, bool normed) {
    const int n = c.lane >> 2, j = c.lane & 3;
    const u32 block_bytes = normed ? 128 : 64; // of 32 columns
    const u32 whole = c.region + n * 64 + j * 16;
    const u32 halves = c.region + (n & 1) * (columns / 64 * block_bytes) + (n >> 1) * 64 + j * 16;
    const int units = columns / 64 / STAGES_AT_ONCE; // a stage is 64 columns of 16 rows
    const int rows_at = tiles + half;
    uint4 b[2 * STAGES_AT_ONCE];
#pragma unroll
    for (int i = 0; i < 2 * STAGES_AT_ONCE; ++i) b[i] = make_uint4(0, 0, 0, 0);
    float* out = nullptr;
#pragma unroll 1
    for (int tile = 0; tile < rows_at; ++tile) {
        const bool is_half = tile == tiles;
        const int active = n < (normed ? 2 : 1) * (is_half ? 2 : 1);
        u32 x = is_half ? halves : whole;
        float s[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
        if (tile % 8 == 0) {
            const u32 buffer = c.chunk & 1;
            barrier_wait(c.p, shared_address(&c.shared.sums_empty[buffer]), (c.chunk >> 1 & 1) ^ 1, WAIT_BUFFER, c.here);
            out = c.sums + (buffer * CONSUMERS + c.warp) * 128;
        }
#pragma unroll 1
        for (int unit = is_half ? units / 2 : units; unit > 0; --unit) {
            uint4 a[4];
#pragma unroll
            for (int i = 0; i < 2 * STAGES_AT_ONCE; ++i) load_shared_16_if(b[i], x + i * block_bytes, active);
#pragma unroll
            for (int stage = 0; stage < STAGES_AT_ONCE; ++stage) {
                wait_stage(c);
                const u32 weights = c.ring + c.at.slot * STAGE_BYTES + c.lane * 16;
#pragma unroll
                for (int f = 0; f < 4; ++f) a[f] = load_shared_16(weights + f * 512);
#pragma unroll
                for (int f = 0; f < 4; ++f) {
                    const uint4& pair = b[stage * 2 + f / 2];
                    multiply_accumulate(s[f], a[f].x, a[f].y, a[f].z, a[f].w, f & 1 ? pair.z : pair.x, f & 1 ? pair.w : pair.y);
                }
                release_stage(c);
            }
            x += 2 * STAGES_AT_ONCE * block_bytes;
        }
        float upper_high = (s[0][0] + s[1][0]) + (s[2][0] + s[3][0]), upper_low = (s[0][1] + s[1][1]) + (s[2][1] + s[3][1]);
        float lower_high = (s[0][2] + s[1][2]) + (s[2][2] + s[3][2]), lower_low = (s[0][3] + s[1][3]) + (s[2][3] + s[3][3]);
        if (is_half) {
            // Columns: high parts of both halves, then low parts.
            float sum = upper_high + lower_low;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            if (j == 0) out[n] = sum;
        } else if (j == 0) {
            out[n] = upper_high + upper_low;
            out[8 + n] = lower_high + lower_low;
        }
        out += 16;
        if (tile % 8 == 7 || tile == rows_at - 1) {
            __syncwarp();
            if (c.lane == 0) barrier_arrive(shared_address(&c.shared.sums_full[c.chunk & 1]));
            ++c.chunk;
        }
    }
}
