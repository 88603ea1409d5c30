// SAXPY through rings of shared memory that the bulk copy engine fills (Hopper and later): each warp has a ring of slots, asks
// for whole kilobytes of x and y by one instruction, waits at the slot's barrier, computes and stores, and asks for the slot
// again. Bytes in flight are then a matter of the ring's size: they cost neither registers nor threads.
//
// lab: threads = 256
// lab: blocks_per_sm = 1
// lab: shared = 131072
// lab: requires = sm_90

#define WARPS 8
#define SLOTS 4
#define SLOT_FLOATS 512 // of x, and as many of y

typedef unsigned long long u64;

static __device__ __forceinline__ void fetch(unsigned slot, unsigned barrier, const float* x, const float* y, unsigned floats) {
    unsigned bytes = floats * 4;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(2 * bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(slot), "l"(x), "r"(bytes), "r"(barrier) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(slot + SLOT_FLOATS * 4), "l"(y), "r"(bytes), "r"(barrier) : "memory");
}

// A copy that does not come ends the kernel.
static __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
    unsigned landed = 0;
#pragma unroll 1
    for (unsigned turn = 0; !landed; ++turn) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(landed) : "r"(barrier), "r"(parity) : "memory");
        if (turn == 1u << 24) __trap();
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) saxpy(float a, const float* x, float* y, u64 n) {
    extern __shared__ __align__(128) float rings[];
    __shared__ u64 barriers[WARPS * SLOTS];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u64 threads = (u64)gridDim.x * 256, thread = (u64)blockIdx.x * 256 + threadIdx.x;
    if ((((u64)x | (u64)y) & 15) != 0) { // the engine copies from multiples of 16 bytes only
        for (u64 i = thread; i < n; i += threads) y[i] = a * x[i] + y[i];
        return;
    }
    u64 whole = n / 4 * 4; // and multiples of 16 bytes at a time
    if (thread < n - whole) y[whole + thread] = a * x[whole + thread] + y[whole + thread];

    float* ring = rings + warp * (SLOTS * 2 * SLOT_FLOATS);
    unsigned ring_at = (unsigned)__cvta_generic_to_shared(ring);
    unsigned barriers_at = (unsigned)__cvta_generic_to_shared(barriers + warp * SLOTS);
    if (lane == 0) {
        for (int s = 0; s < SLOTS; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_at + 8 * s) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    u64 stride = (u64)gridDim.x * WARPS * SLOT_FLOATS, at = ((u64)blockIdx.x * WARPS + warp) * SLOT_FLOATS, ahead = at;
    auto ask = [&](unsigned s) {
        unsigned floats = whole - ahead < SLOT_FLOATS ? (unsigned)(whole - ahead) : SLOT_FLOATS;
        if (lane == 0) fetch(ring_at + s * (8 * SLOT_FLOATS), barriers_at + 8 * s, x + ahead, y + ahead, floats);
        ahead += stride;
    };
#pragma unroll 1
    for (unsigned s = 0; s < SLOTS && ahead < whole; ++s) ask(s);
    unsigned s = 0, parity = 0;
#pragma unroll 1
    while (at < whole) {
        wait(barriers_at + 8 * s, parity);
        const float4* u = (const float4*)(ring + s * (2 * SLOT_FLOATS));
        const float4* v = u + SLOT_FLOATS / 4;
        float4* to = (float4*)(y + at);
        if (whole - at >= SLOT_FLOATS) {
#pragma unroll
            for (int k = lane; k < SLOT_FLOATS / 4; k += 32)
                __stcs(to + k, make_float4(a * u[k].x + v[k].x, a * u[k].y + v[k].y, a * u[k].z + v[k].z, a * u[k].w + v[k].w));
        } else {
            for (unsigned k = lane; k < (whole - at) / 4; k += 32)
                to[k] = make_float4(a * u[k].x + v[k].x, a * u[k].y + v[k].y, a * u[k].z + v[k].z, a * u[k].w + v[k].w);
        }
        __syncwarp(); // all lanes have read the slot
        if (ahead < whole) ask(s);
        at += stride;
        if (++s == SLOTS) {
            s = 0;
            parity ^= 1;
        }
    }
}
