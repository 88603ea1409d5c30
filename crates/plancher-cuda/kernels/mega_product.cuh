// The megakernel's matrix products. The eight consumers share the columns: each takes in its slice of the input, multiplies all
// tiles of the worker with it as the stages arrive, and leaves partial sums, which the finalizer adds up in the order of the
// consumers. Weights lie in the order of `mma.sync.m16n8k16`'s A operand (512 bytes, one instruction); the input is its B operand:
// columns 0 and 1 are the high and the low part of a normed input. A tile of 8 rows has the two halves of the slice's columns in
// the two halves of the instruction's rows.

// A consumer's place in the ring: the slot's barriers (full, and STAGES barriers on, empty), its 2 KiB of the slot, its lane's part
// of them, the parity of full barriers, the end of the barriers.
struct ring_place {
    u32 barrier, weights, parity, end;
};

struct consumer {
    const mega_parameters& p;
    u32 base;    // of the block's static shared memory
    u32 region;  // its own shared memory: inputs, results of attention
    u32 sums;    // its partial sums, (2, CONSUMERS, 128) with its place
    int warp, lane;
    ring_place at;
    place here;
    u32 chunk;   // chunks of partial sums so far
#if TRACE
    u64 waited, polls; // of an instruction
#endif
};

static __device__ __forceinline__ void wait_stage(consumer& c) {
#if TRACE
    u64 begin = global_time();
#endif
    barrier_wait(c.p, c.at.barrier, c.at.parity, WAIT_STAGE, c.here);
#if TRACE
    c.waited += global_time() - begin;
#endif
}

static __device__ __forceinline__ void next_stage(consumer& c) {
    c.at.barrier += 8;
    c.at.weights += STAGE_BYTES;
    if (c.at.barrier == c.at.end) {
        c.at.barrier -= STAGES * 8;
        c.at.weights -= STAGES * STAGE_BYTES;
        c.at.parity ^= 1;
    }
}

// Lets go of the stage: it has been read.
static __device__ __forceinline__ void release_stage(consumer& c) {
    barrier_arrive_warp(c.at.barrier + STAGES * 8, c.lane);
    next_stage(c);
}

// The next stage's four instructions' worth of weights; and, if `may`, the one after's if it is there as well, which is then said.
static __device__ __forceinline__ bool fetch_stages(consumer& c, uint4 (&a)[2][4], bool may) {
    wait_stage(c);
    const u32 barrier = c.at.barrier, weights = c.at.weights;
    next_stage(c);
    const bool two = may && __all_sync(0xffffffffu, barrier_passed(c.at.barrier, c.at.parity));
#pragma unroll
    for (int f = 0; f < 4; ++f) a[0][f] = load_shared_16(weights + f * 512);
    if (two) {
#pragma unroll
        for (int f = 0; f < 4; ++f) a[1][f] = load_shared_16(c.at.weights + f * 512);
    }
    barrier_arrive_warp(barrier + STAGES * 8, c.lane);
    if (two) {
        if (c.lane == 0) barrier_arrive(c.at.barrier + STAGES * 8);
        next_stage(c);
    }
    return two;
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

// Not NaN: of that, fminf and fmaxf would make a number.
static __device__ __forceinline__ float within_half(float x) { return fabsf(x) > 65504.0f ? copysignf(65504.0f, x) : x; }

#if ELEMENT_F16
static __device__ __forceinline__ float within_range(float x) { return within_half(x); }
#else
static __device__ __forceinline__ float within_range(float x) { return x; }
#endif

// Loads words, all at once, until all of the warp's are there.
template <int LOADS>
static __device__ __forceinline__ void await_words(consumer& c, const u32* const (&addresses)[LOADS], uint4 (&raw)[LOADS], u32 kind, u32 detail) {
    u32 spins = 0;
#pragma unroll 1
    while (true) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) raw[i] = load_words(addresses[i]);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) there = there && !absent(raw[i]);
        if (__all_sync(0xffffffffu, there)) break;
#if TRACE
        ++c.polls;
#endif
        if (waited_enough(c.p, spins, kind, c.here, detail)) break;
    }
}

// One's slice of the residual stream times the norm's weights, as high and low parts, and the sum of its squares. `embedded`: the
// row of the embedding (elements), else words of the exchange.
template <bool EMBEDDED>
static __device__ __forceinline__ float normed_input(consumer& c, const void* source, const float* norm) {
    constexpr int PIECES_OF_SLICE = SLICE(HIDDEN_P) / 8, LOADS = (PIECES_OF_SLICE + 31) / 32;
    uint4 raw[LOADS];
    float4 weights[LOADS][2];
    const int first = c.warp * SLICE(HIDDEN_P);
    const u32* addresses[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        // A lane without a piece takes one that is there.
        int k = first + min(i * 32 + c.lane, PIECES_OF_SLICE - 1) * 8;
        addresses[i] = (const u32*)source + (k < HIDDEN ? k : 0) / 2;
        weights[i][0] = __ldg((const float4*)(norm + k)); // zeros beyond the hidden size
        weights[i][1] = __ldg((const float4*)(norm + k) + 1);
    }
    if (EMBEDDED)
#pragma unroll
        for (int i = 0; i < LOADS; ++i) raw[i] = __ldg((const uint4*)addresses[i]);
    else
        await_words(c, addresses, raw, WAIT_INPUT, (u32)((const u32*)source - (const u32*)c.p.exchange) + first / 2);
    float squares = 0.0f;
    const float scale = EMBEDDED ? c.p.embedding_scale * RESIDUAL_SCALE : 1.0f;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int piece = i * 32 + c.lane;
        const bool counts = piece < PIECES_OF_SLICE && (HIDDEN == HIDDEN_P || first + piece * 8 < HIDDEN);
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
            squares += counts ? a * a + b * b : 0.0f;
            a = within_range(a * w[2 * j]);
            b = within_range(b * w[2 * j + 1]);
            high[j] = pack_elements(a, b);
            float2 rounded = unpack_elements(high[j]);
            low[j] = pack_elements(a - rounded.x, b - rounded.y);
        }
        if (piece < PIECES_OF_SLICE) {
            const u32 address = c.region + piece / 4 * 128 + piece % 4 * 16;
            store_shared_16(address, make_uint4(high[0], high[1], high[2], high[3]));
            store_shared_16(address + 64, make_uint4(low[0], low[1], low[2], low[3]));
        }
    }
    __syncwarp();
    return warp_sum(squares);
}

// One's slice of `LENGTH` elements as they are.
template <int LENGTH>
static __device__ __forceinline__ void plain_input(consumer& c, const u32* source) {
    constexpr int PIECES_OF_SLICE = SLICE(PADDED(LENGTH)) / 8, LOADS = (PIECES_OF_SLICE + 31) / 32;
    uint4 raw[LOADS];
    const int first = c.warp * SLICE(PADDED(LENGTH));
    const u32* addresses[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int k = first + min(i * 32 + c.lane, PIECES_OF_SLICE - 1) * 8;
        addresses[i] = source + (k < LENGTH ? k : 0) / 2;
    }
    await_words(c, addresses, raw, WAIT_INPUT, (u32)(source - (const u32*)c.p.exchange) + first / 2);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int piece = i * 32 + c.lane;
        if (LENGTH < PADDED(LENGTH) && first + piece * 8 >= LENGTH) raw[i] = make_uint4(0, 0, 0, 0);
        if (piece < PIECES_OF_SLICE) store_shared_16(c.region + piece * 16, raw[i]);
    }
    __syncwarp();
}

// The input's part for a stage: 16 bytes at `address` and `step` on; lanes without a column keep what they have.
static __device__ __forceinline__ void load_input_if(uint4 (&x)[2], u32 address, u32 step, int condition) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %10, 0;\n@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%8];\n"
                 "@p ld.shared.v4.u32 {%4, %5, %6, %7}, [%9];\n}"
                 : "+r"(x[0].x), "+r"(x[0].y), "+r"(x[0].z), "+r"(x[0].w), "+r"(x[1].x), "+r"(x[1].y), "+r"(x[1].z), "+r"(x[1].w)
                 : "r"(address), "r"(address + step), "r"(condition) : "memory");
}

// Waits until the buffer of the next chunk of partial sums is free.
static __device__ __forceinline__ void wait_sums(consumer& c) {
    barrier_wait(c.p, FIELD(c.base, sums_empty) + (c.chunk & 1) * 8, (c.chunk >> 1 & 1) ^ 1, WAIT_BUFFER, c.here);
}

// `tiles` tiles of 16 rows and, if `half`, one of 8, over a slice of `columns`, whose high and low parts (if `normed`, with the sum of
// their squares) are in this consumer's region. The first chunk's buffer is free, and `a` is the first stage's weights: both were waited for before the input,
// as every further stage's are behind the instructions that multiply the one before. One loop for all products: code that does not fit the instruction
// cache costs more than its branches.
static __device__ __forceinline__ void multiply(consumer& c, uint4 (&a)[2][4], bool two, int tiles, bool half, int columns, bool normed, float squares) {
    const int n = c.lane >> 2, j = c.lane & 3;
    const u32 block_bytes = normed ? 128 : 64; // of 32 columns
    const int units = columns / 64; // stages of a tile
    const int all = tiles + half, parts = normed ? 2 : 1;
    const u32 whole_x = c.region + n * 64 + j * 16, half_x = c.region + (n & 1) * (columns / 64 * block_bytes) + (n >> 1) * 64 + j * 16;
    bool is_half = tiles == 0;
    int tile = 0, unit = is_half ? units / 2 : units;
    u32 x = is_half ? half_x : whole_x;
    int active = n < (is_half ? 2 * parts : parts);
    uint4 b[2][2];
    b[0][0] = b[0][1] = b[1][0] = b[1][1] = make_uint4(0, 0, 0, 0);
    u32 out = 0;
    float s[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
    load_input_if(b[0], x, block_bytes, active);
    if (two) load_input_if(b[1], x + 2 * block_bytes, block_bytes, active);
#pragma unroll 1
    while (true) {
#pragma unroll
        for (int f = 0; f < 4; ++f) {
            const uint4& pair = b[0][f / 2];
            multiply_accumulate(s[f], a[0][f].x, a[0][f].y, a[0][f].z, a[0][f].w, f & 1 ? pair.z : pair.x, f & 1 ? pair.w : pair.y);
        }
        x += 2 * block_bytes;
        --unit;
        if (two) {
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                const uint4& pair = b[1][f / 2];
                multiply_accumulate(s[f], a[1][f].x, a[1][f].y, a[1][f].z, a[1][f].w, f & 1 ? pair.z : pair.x, f & 1 ? pair.w : pair.y);
            }
            x += 2 * block_bytes;
            --unit;
        }
        const bool ends = unit == 0, was_half = is_half, more = !ends || tile + 1 < all;
        if (ends) {
            is_half = tile + 1 == tiles;
            x = is_half ? half_x : whole_x;
            active = n < (is_half ? 2 * parts : parts);
            unit = is_half ? units / 2 : units;
        }
        if (more) {
            two = fetch_stages(c, a, unit > 1);
            load_input_if(b[0], x, block_bytes, active);
            if (two) load_input_if(b[1], x + 2 * block_bytes, block_bytes, active);
        }
        if (!ends) continue;
        const u32 buffer = c.chunk & 1;
        if (tile % 8 == 0) {
            if (tile > 0) wait_sums(c);
            out = c.sums + buffer * (CONSUMERS * 128 * 4) + n * 4;
            if (c.lane == 0) store_shared_float(FIELD(c.base, squares) + (buffer * CONSUMERS + c.warp) * 4, squares);
        }
        float upper_high = (s[0][0] + s[1][0]) + (s[2][0] + s[3][0]), upper_low = (s[0][1] + s[1][1]) + (s[2][1] + s[3][1]);
        float lower_high = (s[0][2] + s[1][2]) + (s[2][2] + s[3][2]), lower_low = (s[0][3] + s[1][3]) + (s[2][3] + s[3][3]);
        if (was_half) {
            // Columns: high parts of both halves, then low parts.
            float sum = upper_high + lower_low;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            if (j == 0) store_shared_float(out, sum);
        } else if (j == 0) {
            store_shared_float(out, upper_high + upper_low);
            store_shared_float(out + 32, lower_high + lower_low);
        }
        out += 64;
        if (tile % 8 == 7 || !more) {
            barrier_arrive_warp(FIELD(c.base, sums_full) + buffer * 8, c.lane);
            ++c.chunk;
        }
        if (!more) break;
        ++tile;
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
    }
}
