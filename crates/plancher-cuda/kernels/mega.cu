// The megakernel: a whole decode loop in one launch. Each worker, the one block of a multiprocessor, interprets its list of
// instructions over its packed stream of weights, token after token: eight warps consume, one finalizes, one produces.
// `mega_exchange.cuh` says how workers meet.

#define SAMPLING_AT 256 // in the counters: the scratch of sampling

// The next token by `sampling`'s settings, from all workers' logits; by the consumers. Not inlined: what it needs must not
// weigh on the loop over instructions.
static __device__ __noinline__ u32 draw(const mega_parameters& p, const mega_shared& shared, u32 step, u32 instruction) {
    // The partial sums' room is free: they have become logits.
    mega_sample_workspace* workspace = (mega_sample_workspace*)(worker_memory + STAGES * STAGE_BYTES);
    return mega_sample<3>(
        workspace, (u8*)p.counters + SAMPLING_AT, (mega_sampling*)p.sampling, (const float*)p.logits, shared.own[HEAD].x,
        shared.own[HEAD].y,
        [&](u32 spins) { return (spins & 255) == 0 && give_up(p, spins, WAIT_SAMPLING, step, instruction, 0); });
}

// A step's rows of the rotary tables; by one warp.
static __device__ __forceinline__ void load_rotation(mega_shared& shared, const mega_layer* layers, u64 first, u32 position, u32 step, int lane) {
#if ROTARY_PAIRS > 0
    u64 second = first;
#pragma unroll 1
    for (int i = 0; i < LAYERS; ++i)
        if (layers[i].rope != 0 && layers[i].rope != first) second = layers[i].rope;
#pragma unroll 1
    for (int i = lane; i < ROTARY_PAIRS; i += 32) {
        if (first != 0) shared.rotation[step & 1][0][i] = __ldg((const float2*)first + (size_t)position * ROTARY_PAIRS + i);
        if (second != first) shared.rotation[step & 1][1][i] = __ldg((const float2*)second + (size_t)position * ROTARY_PAIRS + i);
    }
#endif
}

// What the next step needs of a consumer, once it has nothing more to attend to: its keys and values can be copied, the rotary rows
// are there. With the head, where there are rows of it: then nobody waits for this.
static __device__ __noinline__ void ready_next_step(const mega_parameters& p, mega_shared& shared, u32 step, u32 position, int warp, int lane) {
    __threadfence();
    fence_copies();
    __syncwarp();
    if (lane == 0) store_shared_release(&shared.appended[warp], step + 1);
    if (warp == CONSUMERS - 1 && step + 1 < p.steps) load_rotation(shared, worker_layers(), shared.first_rope, position + 1, step + 1, lane);
}

static __device__ __forceinline__ void consume(const mega_parameters& p, mega_shared& shared, u32 base, int warp, int lane, u64* trace) {
    const u32 ring = kept_address(worker_memory), barriers = FIELD(base, full);
    consumer c = {p, base, ring + REGIONS_AT + warp * REGION_BYTES, ring + STAGES * STAGE_BYTES + warp * 128 * 4, warp, lane,
                  {barriers, ring + warp * (STAGE_BYTES / CONSUMERS) + lane * 16, 0, barriers + STAGES * 8}, {0, 0}, 0};
    u32 position = *(const u32*)p.positions, token = *(const u32*)p.tokens;
    const float* norms = (const float*)p.norms;
#pragma unroll 1
    for (u32 step = 0;; ++step, ++position) {
        u32* copy = copy_of(p, step);
        c.here.step = step;
        bool ready = false; // for the next step
#pragma unroll 1
        for (u32 pc = 0;; ++pc) {
            const uint4 instruction = load_shared_16(ring + INSTRUCTIONS_AT + pc * 16);
            const u32 operation = operation_of(instruction), layer = layer_of(instruction);
            if (operation == END) {
                if (!ready) ready_next_step(p, shared, step, position, warp, lane);
                break;
            }
            if (operation == EMBED || operation == COMBINE) continue;
            c.here.instruction = pc;
            // What is under way delays an exchange: while one is waited for, little is. Where layers are long, the stream needs
            // more from gate and up on; where a layer is little more than the ring, only while down is multiplied.
            const bool streams = operation == HEAD || (operation == DOWN && PREFETCH_STAGES == 0) || (operation == ATTEND && position >= 4096);
            if (warp == 0 && lane == 0) store_shared_word(FIELD(base, in_flight), streams ? IN_FLIGHT_LONG : IN_FLIGHT_SHORT);
#if TRACE
            u64* record = trace + ((size_t)blockIdx.x * INSTRUCTIONS + pc) * 8;
            const bool traced = step + 1 == p.steps && warp == 0 && lane == 0;
            if (traced) record[0] = global_time();
            c.waited = c.polls = 0;
#endif
            if (operation == ATTEND) {
#if TRACE
                c.at = attend(p, base, c.region, c.at, warp, lane, step, pc, instruction, position, traced ? record : nullptr);
                if (traced) record[2] = global_time();
#else
                c.at = attend(p, base, c.region, c.at, warp, lane, step, pc, instruction, position, nullptr);
#endif
                continue;
            }
            const u32* slots = copy + layer * LAYER_WORDS;
            const int columns = operation == OUTPUT ? SLICE(QUERY_P) : operation == DOWN ? SLICE(FEED_FORWARD_P) : SLICE(HIDDEN_P);
            bool normed = true;
            float squares = 0.0f;
            bool half;
            const int tiles = tiles_of(operation, instruction.z, &half);
            uint4 weights[2][4];
            wait_sums(c);
            const bool two = fetch_stages(c, weights, columns / (tiles == 0 ? 128 : 64) > 1);
            if (operation == OUTPUT) {
                plain_input<QUERY_ROWS>(c, slots + ATTENDED);
                normed = false;
            } else if (operation == DOWN) {
                plain_input<FEED_FORWARD>(c, slots + GATED);
                normed = false;
            } else if (operation == QKV && layer == 0) {
                squares = normed_input<true>(c, (const element*)p.embedding + (size_t)token * p.embedding_stride, norms);
            } else {
                const u32* source = slots + (operation == GATE_UP ? X_FEED_FORWARD : X_ATTENTION);
                squares = normed_input<false>(c, source, norms + (layer * 2 + (operation == GATE_UP)) * HIDDEN_P);
            }
#if TRACE
            if (traced) record[1] = global_time();
#endif
            if (operation == (PREFETCH_STAGES > 0 ? DOWN : GATE_UP) && warp == 0 && lane == 0) store_shared_word(FIELD(base, in_flight), IN_FLIGHT_LONG);
            if (operation == HEAD) {
                ready_next_step(p, shared, step, position, warp, lane);
                ready = true;
            }
            multiply(c, weights, two, tiles, half, columns, normed, squares);
#if TRACE
            if (traced) record[2] = global_time(), record[3] = c.waited, record[6] = c.polls;
#endif
        }
        if (p.mode == 2) {
            barrier_wait_inside(FIELD(base, logits_there), step & 1);
            token = draw(p, shared, step, c.here.instruction);
            if (warp == 0 && lane == 0) store_shared(&shared.token, token);
        }
        barrier_arrive_warp(FIELD(base, step_done), lane);
        barrier_wait_inside(FIELD(base, token_there), step & 1);
        // From a barrier on the compiler knows the lanes together, as it does not behind a wait: what is the same for all of them stays
        // in few registers.
        block_barrier<1, CONSUMERS * 32>();
        token = load_shared(&shared.token);
        if (load_shared(&shared.finished) != 0) break;
    }
    if (warp == 0 && lane == 0) store_shared(&shared.in_flight, 0u); // the producer may go
}

extern "C" __global__ void __launch_bounds__(MEGA_THREADS, 1) mega(const __grid_constant__ mega_parameters p) {
    __shared__ __align__(16) mega_shared shared;
    // Kept in registers: reading them anew takes longer.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = __shfl_sync(0xffffffffu, threadIdx.x % 32, threadIdx.x % 32);
    const u32 base = kept_address(&shared);
    uint4* instructions = (uint4*)(worker_memory + INSTRUCTIONS_AT);
    mega_layer* layers = (mega_layer*)(worker_memory + LAYERS_AT);
    u32* table = (u32*)(worker_memory + TABLE_AT);
    float* residual = (float*)(worker_memory + RESIDUAL_AT);
    u64* trace = (u64*)p.trace;

    const uint4* program = (const uint4*)p.instructions + (size_t)blockIdx.x * INSTRUCTIONS;
#pragma unroll 1
    for (int i = threadIdx.x; i < INSTRUCTIONS; i += MEGA_THREADS) instructions[i] = program[i];
#pragma unroll 1
    for (int i = threadIdx.x; i < LAYERS; i += MEGA_THREADS) layers[i] = ((const mega_layer*)p.layers)[i];
    if (threadIdx.x < OPERATIONS) shared.own[threadIdx.x] = make_uint2(0, 0);
    if (threadIdx.x < CONSUMERS) shared.appended[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(shared_address(&shared.full[i]), __CUDA_ARCH__ >= 900 ? 1 : 32);
            barrier_init(shared_address(&shared.empty[i]), CONSUMERS);
        }
        for (int i = 0; i < 2; ++i) {
            barrier_init(shared_address(&shared.sums_full[i]), CONSUMERS);
            barrier_init(shared_address(&shared.sums_empty[i]), 1);
        }
        barrier_init(shared_address(&shared.logits_there), 1);
        barrier_init(shared_address(&shared.step_done), CONSUMERS);
        barrier_init(shared_address(&shared.token_there), 1);
        shared.in_flight = IN_FLIGHT_SHORT;
        shared.token = shared.finished = 0;
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
    // Rows of this worker, the same in every layer; and its pages of the block table: its splits are all the same one.
    u32 split = 0;
    bool attends = false;
#pragma unroll 1
    for (int i = 0; operation_of(instructions[i]) != END; ++i) {
        uint4 instruction = instructions[i];
        u32 operation = operation_of(instruction);
        if (layer_of(instruction) != 0 && operation != HEAD) continue;
        if (operation == ATTEND) {
            split = instruction.z;
            attends = true;
        } else if (threadIdx.x == 0) {
            shared.own[operation] = make_uint2(instruction.y, instruction.z);
        }
    }
    if (attends) {
        const u32 pages = min((*(const u32*)p.positions + p.steps + PAGE - 1) / PAGE, (u32)(TABLE_PAGES * SPLITS));
#pragma unroll 1
        for (u32 page = threadIdx.x; page < pages; page += MEGA_THREADS)
            if (page / 8 % SPLITS == split && kept_page(page) < TABLE_PAGES) table[kept_page(page)] = ((const u32*)p.block_table)[page];
    }
    if (warp == 0) {
        const u64 first_rope = first_rope_of(layers);
        if (lane == 0) shared.first_rope = first_rope;
        load_rotation(shared, layers, first_rope, *(const u32*)p.positions, 0, lane);
    }
    __syncthreads();
    fence_copies(); // what kernels before this one wrote is read by background copies

    if (warp == PRODUCER) produce(p, shared, instructions, layers, table, shared_address(worker_memory), lane, trace);
    else if (warp == FINALIZER) finalize(p, shared, base, instructions, (const float*)(worker_memory + STAGES * STAGE_BYTES), residual, lane, trace);
    else consume(p, shared, base, warp, lane, trace);
}
