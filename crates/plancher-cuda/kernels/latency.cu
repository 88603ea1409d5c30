// What it costs to go on: from one kernel of a graph to the next, from one block to all others (a grid barrier), from one
// block to another and back (a flag). Every wait has a bound; when one is reached, the kernel says so in `status` and
// ends.

// So many polls take seconds; a wait takes about a microsecond.
#define MOST_POLLS (1u << 22)

static __device__ __forceinline__ u32 load_relaxed(const u32* p) {
    u32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ u32 load_acquire(const u32* p) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ void store_relaxed(u32* p, u32 x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

static __device__ __forceinline__ void store_release(u32* p, u32 x) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// A kernel that does nothing but what dependent launch asks of every kernel.
extern "C" __global__ void latency_empty() {
    launch_dependents();
    wait_for_previous();
}

// `rounds` barriers of all blocks on one counter, which starts at 0. Needs all blocks to run at once.
extern "C" __global__ void latency_grid_barrier(u32* counter, u32 rounds, u32* status) {
    bool alone = false;
    for (u32 round = 1; round <= rounds && !alone; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
            u32 polls = 0;
            while (load_acquire(counter) < round * gridDim.x) {
                if (++polls > MOST_POLLS) { store_relaxed(status, 1); alone = true; break; }
            }
        }
        alone = __syncthreads_or(alone);
    }
}

// `rounds` times from block 0 to block 1 and back, over two words 128 bytes apart that start at 0. With `ordered` a word
// also publishes what was written before it (release and acquire), else it is only itself (relaxed).
extern "C" __global__ void latency_flag(u32* words, u32 rounds, u32 ordered, u32* status) {
    if (threadIdx.x != 0 || blockIdx.x > 1) return;
    u32* own = words + 32 * blockIdx.x;
    const u32* other = words + 32 * (1 - blockIdx.x);
    for (u32 round = 1; round <= rounds; ++round) {
        // Block 0 speaks first.
        for (int turn = 0; turn < 2; ++turn) {
            if (turn == (int)blockIdx.x) {
                if (ordered) store_release(own, round); else store_relaxed(own, round);
                continue;
            }
            u32 polls = 0;
            while ((ordered ? load_acquire(other) : load_relaxed(other)) < round) {
                if (++polls > MOST_POLLS) { store_relaxed(status, 1); return; }
            }
        }
    }
}
