//! Step 1: SAXPY. How many bytes must be on their way for the memory to be busy, and five ways to have them there.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

/// The step.
pub(super) static STEP: Step = Step {
    id: "saxpy",
    number: 1,
    title: "SAXPY",
    question: "How close to the memory's bandwidth does the simplest loop come, and what does it take to get the \
               rest?",
    task: "Write `y <- a x + y` for n numbers. An element costs 12 bytes of memory traffic and two operations, so \
           only the memory counts, and the one question is whether enough bytes are on their way at any moment: the \
           bandwidth times the time that a load takes, 4.6 TB/s times 0.8 us, which is 3.7 MB for an H200 or 28 KB \
           for each of its multiprocessors. Every n and every alignment must come out right.",
    operation: Some(Operation::Saxpy),
    versions: &[SCALAR, GRID_STRIDE, VECTORS, UNROLLED, BULK_RING],
    points: &[
        timed(1 << 28, false),
        timed(1 << 12, true),
        timed(1 << 14, true),
        timed(1 << 16, true),
        timed(1 << 18, true),
        timed(1 << 20, true),
        timed(1 << 22, true),
        timed(1 << 24, true),
        timed(1 << 26, true),
        timed(1 << 30, true),
    ],
    plan: Criterion { text: "more than 80 % of the bandwidth", tests: &[test(Ceiling::DataSheet, 0.80)] },
    bar: Criterion { text: "at least 95 % of the triad ceiling at 2^28", tests: &[test(Ceiling::Triad, 0.95)] },
};

const fn timed(elements: u64, sweep: bool) -> Point {
    Point { dtype: Dtype::F32, shape: Shape::Vector(elements), ceiling: Ceiling::Triad, sweep }
}

const fn test(ceiling: Ceiling, at_least: f64) -> Test {
    Test { version: None, dtype: Dtype::F32, shape: Shape::Vector(1 << 28), ceiling, at_least, at_most: None }
}

const SCALAR: Version = Version {
    id: "scalar",
    title: "One element a thread",
    file: "saxpy/1_scalar.cu",
    source: include_str!("../../kernels/saxpy/1_scalar.cu"),
    dtypes: &[Dtype::F32],
    change: "The start: as many threads as elements. A warp's threads take neighbours, so that nothing that comes \
             from memory is wasted.",
    prediction: Prediction {
        text: "A multiprocessor holds 2048 threads, each with 4 bytes of x and 4 of y under way: 16 KB in flight. A \
               pure reader wants 28 KB and more, and was seen to get 3.3 TB/s from 16. But a third of this traffic \
               are stores, for which nobody waits: reads at 3.3 TB/s would make 5 TB/s in all. What is lost is the \
               part of a thread's life in which it has no load out: being started, adding, storing, leaving.",
        limiter: Limiter::Memory,
        fraction: (0.80, 0.97),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: Some(4.0),
        top_stalls: ["long_scoreboard", "drain"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Just below what was predicted: of the threads that fit, a quarter were being started or leaving at any \
              moment, and their loads were missing. Warps wait for memory nine times out of ten, as was said. That \
              memory's bandwidth limits it did not hold: Nsight Compute found the second-level cache eight points \
              busier, and neither at its limit: the cache is what is said now.",
    in_flight: InFlight::PerThread(8),
    spill_budget: 0,
    instructions: &["LDG.E", "STG.E"],
    deterministic: true,
};

const GRID_STRIDE: Version = Version {
    id: "grid_stride",
    title: "A grid that fits, in strides",
    file: "saxpy/2_grid_stride.cu",
    source: include_str!("../../kernels/saxpy/2_grid_stride.cu"),
    dtypes: &[Dtype::F32],
    change: "As many blocks as fit are started once and walk through the arrays in strides of the whole grid. This \
             saves the starting of a million blocks. It does not add a byte in flight: one turn's store stands \
             before the next turn's loads, and the compiler may not exchange them while x and y might overlap.",
    prediction: Prediction {
        text: "The same 2048 threads with 8 bytes each: 16 KB in flight. Each turn is a round trip to memory, 0.8 us \
               under load, for 12 bytes of traffic: 2048 x 132 x 12 bytes / 0.8 us = 4.1 TB/s if nothing else delays \
               a turn.",
        limiter: Limiter::Memory,
        fraction: (0.75, 0.95),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: Some(4.0),
        top_stalls: ["long_scoreboard", "lg_throttle"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "A few per cent better than a block for each 256 elements, and for the reason given: occupancy goes \
              from three quarters to nearly all, the bytes in flight with it, and not a byte more. As before, \
              memory had been named and Nsight Compute found the second-level cache six points busier, which is \
              what is said now.",
    in_flight: InFlight::PerThread(8),
    spill_budget: 0,
    instructions: &["LDG.E", "STG.E"],
    deterministic: true,
};

const VECTORS: Version = Version {
    id: "vectors",
    title: "16-byte vectors",
    file: "saxpy/3_vectors.cu",
    source: include_str!("../../kernels/saxpy/3_vectors.cu"),
    dtypes: &[Dtype::F32],
    change: "Four neighbouring elements a load: a quarter of the instructions, and four times the bytes in flight \
             from the same threads. Vectors want addresses that are multiples of 16 bytes; what is not goes one \
             element at a time.",
    prediction: Prediction {
        text: "2048 threads x 32 bytes = 64 KB in flight, twice what the full rate wants [2.3 times the 28 KB of the \
               step's arithmetic]. What is left is the memory's own turning between reads and writes.",
        limiter: Limiter::Memory,
        fraction: (0.95, 1.02),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "drain"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "The whole step is here. One vector of each array a thread, blocks that come and go, no hints: nothing \
              that was tried afterwards can be told to be faster.",
    in_flight: InFlight::PerThread(32),
    spill_budget: 0,
    instructions: &["LDG.E.128", "STG.E.128"],
    deterministic: true,
};

const UNROLLED: Version = Version {
    id: "unrolled",
    title: "Several vectors a thread",
    file: "saxpy/4_unrolled.cu",
    source: include_str!("../../kernels/saxpy/4_unrolled.cu"),
    dtypes: &[Dtype::F32],
    change: "Two vectors of each array a thread, all four loads started before the first sum, in blocks of 128 \
             threads.",
    prediction: Prediction {
        text: "[Of a first form: 256 threads, all loads and stores marked evict first.] 2048 threads x 64 bytes = \
               128 KB in flight, of which 48 are enough [28 by the step's arithmetic; at 48 reading was seen to gain \
               its last per cents]: no more to be had from loads. Half as many blocks to start, and lines that leave \
               the cache early, may be worth a per cent.",
        limiter: Limiter::Memory,
        fraction: (0.96, 1.03),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "drain"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "No gain, and no loss that can be told from noise: more bytes in flight than enough are worth nothing. \
              What was predicted was a first form, of 256 threads, with loads and stores marked as used once (evict \
              first), and for that form it was wrong: the mark costs eleven per cent here, since the lines of y are \
              read to be written, and are thrown out between the two. Without it, blocks of 256 threads lose two per \
              cent, four vectors as well; blocks of 128, which are here now, lose nothing.",
    in_flight: InFlight::PerThread(64),
    spill_budget: 0,
    instructions: &["LDG.E.128", "STG.E.128"],
    deterministic: true,
};

const BULK_RING: Version = Version {
    id: "bulk_ring",
    title: "Rings that the copy engine fills",
    file: "saxpy/5_bulk_ring.cu",
    source: include_str!("../../kernels/saxpy/5_bulk_ring.cu"),
    dtypes: &[Dtype::F32],
    change: "Threads no longer load. Each warp owns a ring of four slots in shared memory and asks the bulk copy \
             engine of Hopper for 2 KB of x and 2 KB of y at a time; a barrier in shared memory counts the bytes \
             that have landed. While it works on one slot, three are on their way.",
    prediction: Prediction {
        text: "8 warps x 4 slots x 4 KB = 128 KB in flight with an eighth of the threads. Each byte takes one more \
               way, through shared memory: 1.5 passes of 128 bytes for each 128 of traffic [1.33: 8 bytes in and 8 \
               out for 12], far from its limit. Reading alone gained nothing from rings before, so neither should \
               this.",
        limiter: Limiter::Memory,
        fraction: (0.90, 1.02),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "short_scoreboard"],
        occupancy_limiter: OccupancyLimiter::SharedMemory,
    },
    outcome: "Four per cent behind plain vectors, with an eighth of the threads. Sizes and numbers of slots and \
              warps hardly matter. Where a copy is a copy, the engine's long runs are no help: what is read and \
              written at once wants the short ones of many small blocks. A ring pays where threads and registers are \
              needed for something else.",
    in_flight: InFlight::PerBlock(131_072),
    spill_budget: 0,
    instructions: &["UBLKCP", "LDS.128"],
    deterministic: true,
};
