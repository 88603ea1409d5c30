// What the memory system can do at best: reading (by 16-byte loads, and by the bulk copy engine through rings in shared
// memory), writing, copying, and the triad a = b + s * c. The readers reduce what they read by exclusive or into a
// checksum, so that nothing can be left out and the result can be compared with the host's.
//
// Options: THREADS (of a block, a multiple of 32), UNROLL (loads in flight per thread), SLOT_BYTES and SLOTS (of each
// warp's ring).

#define WARPS (THREADS / 32)
#define TILE (THREADS * UNROLL)

// A number that looks random, the same for the same index (the finalizer of SplitMix64).
static __device__ __forceinline__ u64 scramble(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The 16 bytes at `index` of the arrays that are read.
static __device__ __forceinline__ uint4 random_16(u64 index) {
    u64 low = scramble(2 * index), high = scramble(2 * index + 1);
    return make_uint4((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
}

// 16 bytes that stay in no first-level cache; volatile, so that a second reading is not the first one's result.
static __device__ __forceinline__ uint4 load_16(const uint4* p) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
    return x;
}

static __device__ __forceinline__ u32 fold(uint4 x) { return x.x ^ x.y ^ x.z ^ x.w; }

// Adds what a block read to the checksum.
static __device__ __forceinline__ void combine(u32* checksum, u32 x) {
    __shared__ u32 partial[WARPS];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x ^= __shfl_xor_sync(0xffffffffu, x, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < WARPS; ++warp) x ^= partial[warp];
        atomicXor(checksum, x);
    }
}

// Fills an array of `count` times 16 bytes. Writing is measured with this.
extern "C" __global__ void __launch_bounds__(THREADS) bandwidth_write(uint4* out, u64 count) {
    u64 stride = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) out[i] = random_16(i);
}

// Reads `count` times 16 bytes, `rounds` times: once for memory, often for what fits into the second-level cache. Blocks
// take tiles of THREADS * UNROLL in turn, in each round others than in the round before.
extern "C" __global__ void __launch_bounds__(THREADS, 4) bandwidth_read(const uint4* in, u64 count, u32 rounds, u32* checksum) {
    u64 tiles = count / TILE;
    u32 sum = 0;
    for (u32 round = 0; round < rounds; ++round) {
        u32 block = (blockIdx.x + round) % gridDim.x;
        for (u64 tile = block; tile < tiles; tile += gridDim.x) {
            const uint4* from = in + tile * TILE + threadIdx.x;
            uint4 x[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) x[u] = load_16(from + u * THREADS);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) sum ^= fold(x[u]);
        }
        for (u64 i = tiles * TILE + block * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) sum ^= fold(load_16(in + i));
    }
    combine(checksum, sum);
}

// Copies `count` times 16 bytes, in tiles like the reader's.
extern "C" __global__ void __launch_bounds__(THREADS, 4) bandwidth_copy(uint4* __restrict__ out, const uint4* __restrict__ in, u64 count) {
    u64 tiles = count / TILE;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u64 first = tile * TILE + threadIdx.x;
        uint4 x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) x[u] = load_16(in + first + u * THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) out[first + u * THREADS] = x[u];
    }
    for (u64 i = tiles * TILE + (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) out[i] = load_16(in + i);
}

// The same with one piece a thread and every multiprocessor full of threads.
extern "C" __global__ void __launch_bounds__(THREADS) bandwidth_copy_single(uint4* __restrict__ out, const uint4* __restrict__ in, u64 count) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = load_16(in + i);
}

static __device__ __forceinline__ uint4 scale_and_add(uint4 b, float scale, uint4 c) {
    return make_uint4(__float_as_uint(__uint_as_float(b.x) + scale * __uint_as_float(c.x)),
                      __float_as_uint(__uint_as_float(b.y) + scale * __uint_as_float(c.y)),
                      __float_as_uint(__uint_as_float(b.z) + scale * __uint_as_float(c.z)),
                      __float_as_uint(__uint_as_float(b.w) + scale * __uint_as_float(c.w)));
}

// a = b + scale * c on `count` groups of four numbers; two are read for each one written.
extern "C" __global__ void __launch_bounds__(THREADS, 4) bandwidth_triad(
    uint4* __restrict__ a, const uint4* __restrict__ b, const uint4* __restrict__ c, float scale, u64 count) {
    u64 tiles = count / TILE;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
        for (int half = 0; half < 2; ++half) { // as many loads in flight as above, for the same registers
            u64 first = tile * TILE + half * (TILE / 2) + threadIdx.x;
            uint4 x[UNROLL / 2], y[UNROLL / 2];
#pragma unroll
            for (int u = 0; u < UNROLL / 2; ++u) {
                x[u] = load_16(b + first + u * THREADS);
                y[u] = load_16(c + first + u * THREADS);
            }
#pragma unroll
            for (int u = 0; u < UNROLL / 2; ++u) a[first + u * THREADS] = scale_and_add(x[u], scale, y[u]);
        }
    }
    for (u64 i = tiles * TILE + (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS)
        a[i] = scale_and_add(load_16(b + i), scale, load_16(c + i));
}

extern "C" __global__ void __launch_bounds__(THREADS) bandwidth_triad_single(
    uint4* __restrict__ a, const uint4* __restrict__ b, const uint4* __restrict__ c, float scale, u64 count) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) a[i] = scale_and_add(load_16(b + i), scale, load_16(c + i));
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void start_slot(u32 slot, u32 barrier, const unsigned char* from, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(slot), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

static __device__ __forceinline__ u32 slot_size(u64 left) { return left < SLOT_BYTES ? (u32)left : SLOT_BYTES; }

// Waits until a slot has landed. Each try waits for a while by itself; after some seconds in vain the kernel is ended.
static __device__ __forceinline__ void wait_slot(u32 barrier, u32 parity) {
#pragma unroll 1
    for (u32 tries = 0; tries < (1u << 24); ++tries) {
        u32 landed;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(landed) : "r"(barrier), "r"(parity) : "memory");
        if (landed) return;
    }
    __trap();
}

// Reads `bytes`, a multiple of 16, `rounds` times by bulk copies: each warp has a ring of SLOTS slots of SLOT_BYTES in
// shared memory, and the pieces of the array go round among the warps.
extern "C" __global__ void __launch_bounds__(THREADS, 1) bandwidth_read_bulk(const unsigned char* in, u64 bytes, u32 rounds, u32* checksum) {
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ u64 barriers[WARPS][SLOTS];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 own = shared_address(ring) + warp * (SLOTS * SLOT_BYTES), own_barriers = shared_address(&barriers[warp][0]);
    u64 stride = (u64)gridDim.x * WARPS, pieces = (bytes + SLOT_BYTES - 1) / SLOT_BYTES, total = pieces * rounds;
    u64 at = (u64)blockIdx.x * WARPS + warp; // pieces before the one that is read, over all rounds
    u64 ahead = at;                          // the same of the one that is asked for
    u64 piece = at % pieces, piece_ahead = piece;
    auto advance = [&](u64& count, u64& position) {
        count += stride;
        position += stride;
        while (position >= pieces) position -= pieces;
    };
    auto ask = [&](u32 slot) {
        u64 offset = piece_ahead * SLOT_BYTES;
        if (lane == 0) start_slot(own + slot * SLOT_BYTES, own_barriers + 8 * slot, in + offset, slot_size(bytes - offset));
        advance(ahead, piece_ahead);
    };
    if (lane == 0) {
        for (int s = 0; s < SLOTS; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(own_barriers + 8 * s) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#pragma unroll 1
    for (u32 s = 0; s < SLOTS && ahead < total; ++s) ask(s);
    u32 sum = 0, parity = 0, s = 0;
    while (at < total) {
        wait_slot(own_barriers + 8 * s, parity);
        u32 size = slot_size(bytes - piece * SLOT_BYTES);
#pragma unroll 4
        for (u32 offset = lane * 16; offset < size; offset += 512) sum ^= fold(load_shared_16(own + s * SLOT_BYTES + offset));
        __syncwarp();
        if (ahead < total) ask(s);
        advance(at, piece);
        if (++s == SLOTS) { s = 0; parity ^= 1; }
    }
    combine(checksum, sum);
}
#endif
