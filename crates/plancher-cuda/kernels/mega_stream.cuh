// The megakernel's producer: one warp that fills the worker's ring, strictly in order, with what its instructions will
// consume: stages of weights from the packed stream, and, where an instruction attends, pages of past keys and values. It runs
// on across instructions and steps as far as the ring reaches; how much may be under way at once is the consumers' say, because
// what is under way delays their exchange.

#define PAGES_PER_STAGE (STAGE_BYTES / PAGE_BYTES < 8 ? STAGE_BYTES / PAGE_BYTES : 8)

struct producer_state {
    u32 step, position, pc;
    u32 remaining; // stages of the instruction
    u32 page;      // of an instruction that attends: the next one
    bool attends, done;
    const char* source;
};

// On Hopper one thread asks for whole stages; before, every lane copies its part.
static __device__ __forceinline__ void copy_stage(u32 destination, const void* source, u32 bytes, u32 barrier, u64 policy, int lane) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 :: "r"(destination), "l"(source), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
#else
    for (u32 i = lane * 16; i < bytes; i += 512) copy_async_16_once(destination + i, (const char*)source + i, true, policy);
#endif
}

static __device__ __forceinline__ void expect_stage(u32 barrier, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
#endif
}

static __device__ __forceinline__ void finish_stage(u32 barrier) {
#if __CUDA_ARCH__ < 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(barrier) : "memory");
#endif
}

static __device__ __forceinline__ u64 keep_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// How many of the issued stages have passed their barriers, in order.
struct stage_count {
    u32 count, barriers, slot, parity;

    __device__ __forceinline__ void look(u32 issued) {
        if (count == issued || !barrier_passed(barriers + slot * 8, parity)) return;
        ++count;
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

static __device__ void produce(const mega_parameters& p, mega_shared& shared, const uint4* instructions, const mega_layer* layers,
                               const u32* table, u32 ring, int lane, u64* trace) {
#if __CUDA_ARCH__ >= 900
    if (lane != 0) return;
#endif
    const u64 once = evict_first_policy(), keep = keep_policy();
    const u32 barriers = kept_address(shared.full), empties = barriers + STAGES * 8;
    const char* first = (const char*)p.stream + (size_t)blockIdx.x * STAGE_BYTES;
    producer_state at = {0, *(const u32*)p.positions, 0, 0, 0, false, false, first};
    u32 issued = 0, slot = 0;
    stage_count landed = {0, barriers, 0, 0}, freed = {0, empties, 0, 0};
#if TRACE
    u64 blocked = 0, full_since = global_time(); // nanoseconds for which the ring was full
#endif
#if PREFETCH_STAGES > 0
    u32 prefetched = 0, last_prefetch = clock();
#endif
    while (true) {
        u32 in_flight = load_shared(&shared.in_flight);
        if (in_flight == 0) break; // told to stop
        // What comes next.
        while (at.remaining == 0 && !at.done) {
#if TRACE
            if (at.pc > 0 && at.step + 1 == p.steps) trace[((size_t)blockIdx.x * INSTRUCTIONS + at.pc - 1) * 8 + 7] = global_time();
#endif
            uint4 instruction = instructions[at.pc++];
            u32 operation = operation_of(instruction);
            at.attends = operation == ATTEND;
            if (operation == END) {
                at.pc = 0;
                at.position++;
                at.source = first;
                at.done = ++at.step == p.steps;
            } else if (at.attends) {
                u32 start = window_start(layers[layer_of(instruction)].window, at.position);
                at.page = first_own_page(start / PAGE, instruction.z);
                at.remaining = at.page * PAGE < at.position;
            } else {
                at.remaining = instruction.w;
            }
        }
        landed.look(issued);
        if (at.done) {
            if (landed.count == issued) break;
            continue;
        }
        freed.look(issued);
        if (issued - freed.count >= STAGES) {
#if PREFETCH_STAGES > 0 && __CUDA_ARCH__ >= 900
            // The ring is full: bring what comes next nearer, slowly, as far as this instruction's weights go.
            if ((int)(prefetched - issued) < 0) prefetched = issued;
            u32 now = clock();
            if (!at.attends && prefetched - issued < at.remaining && prefetched - freed.count < STAGES + PREFETCH_STAGES && now - last_prefetch >= PREFETCH_CLOCKS) {
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                             :: "l"(at.source + (size_t)(prefetched - issued) * WORKERS * STAGE_BYTES), "r"(STAGE_BYTES) : "memory");
                ++prefetched;
                last_prefetch = now;
            }
#endif
#if TRACE
            if (at.step + 1 == p.steps) blocked += global_time() - full_since;
            full_since = global_time();
#endif
            continue;
        }
#if TRACE
        full_since = global_time();
#endif
        // A few more while little has landed.
        u32 limit = min((in_flight & 0xff) + ((int)(landed.count - freed.count) < STAGES / 2 ? in_flight >> 8 : 0), (u32)STAGES - 1);
        if (issued - landed.count >= limit) continue;
        u32 destination = ring + slot * STAGE_BYTES, barrier = barriers + slot * 8;
        if (at.attends) {
            uint4 instruction = instructions[at.pc - 1];
            const mega_layer& layer = layers[layer_of(instruction)];
            // The page that was appended to in the step before must have been.
            u32 page = at.page, pages = 0, last = (at.position - 1) / PAGE;
            bool ready = true;
#pragma unroll 1
            for (; pages < PAGES_PER_STAGE && page * PAGE < at.position; ++pages, page = next_own_page(page))
                if (page == last && at.step > 0) {
                    ready = load_shared_acquire(&shared.appended[(2 * page + 2) % 8]) >= at.step;
                    fence_copies();
                }
            if (!ready) continue;
            expect_stage(barrier, pages * PAGE_BYTES);
#pragma unroll 1
            for (u32 i = 0; i < pages; ++i) {
                const char* source = (const char*)layer.cache + ((size_t)table[kept_page(at.page)] * KV_HEADS + instruction.y) * PAGE_BYTES;
                copy_stage(destination + i * PAGE_BYTES, source, PAGE_BYTES, barrier, keep, lane);
                at.page = next_own_page(at.page);
            }
            at.remaining = at.page * PAGE < at.position;
        } else {
            expect_stage(barrier, STAGE_BYTES);
            copy_stage(destination, at.source, STAGE_BYTES, barrier, once, lane);
            at.source += (size_t)WORKERS * STAGE_BYTES;
            --at.remaining;
        }
        finish_stage(barrier);
        ++issued;
        if (++slot == STAGES) slot = 0;
    }
#if TRACE
    if (lane == 0) trace[(size_t)WORKERS * INSTRUCTIONS * 8 + blockIdx.x * 4 + 3] = blocked;
#endif
    // Nothing may be under way into the shared memory of a block that ends.
    while (landed.count < issued) landed.look(issued);
}
