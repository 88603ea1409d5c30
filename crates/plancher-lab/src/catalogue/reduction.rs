//! Step 3: reduction. Six classic versions, each of which removes what held the one before, and one with the same bits
//! everywhere.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

const LARGE: Shape = Shape::Vector(1 << 30);

/// The step.
pub(super) static STEP: Step = Step {
    id: "reduction",
    number: 3,
    title: "Reduction",
    question: "How are many numbers added by many threads that wait for each other as little as possible?",
    task: "Write the sum of n numbers: each block writes one sum to `sums[blockIdx.x]`, and the kernel is launched \
           again on the sums until one is left. Four bytes an element and one addition: a sum should take as long as \
           reading does. All that can go wrong is that threads wait, for each other at barriers or for memory with \
           too little under way.",
    operation: Some(Operation::Reduction),
    versions: &[DIVERGENT, INTERLEAVED, SEQUENTIAL, FIRST_ADD, WARP_SHUFFLE, TWO_LEVEL, DETERMINISTIC],
    points: &[Point { dtype: Dtype::F32, shape: LARGE, ceiling: Ceiling::Read, sweep: false }],
    plan: Criterion { text: "more than 85 % of the bandwidth", tests: &[test(None, Ceiling::DataSheet, 0.85)] },
    bar: Criterion {
        text: "at least 95 % of the read ceiling at 2^30, the deterministic version 90 %",
        tests: &[test(None, Ceiling::Read, 0.95), test(Some("deterministic"), Ceiling::Read, 0.90)],
    },
};

const fn test(version: Option<&'static str>, ceiling: Ceiling, at_least: f64) -> Test {
    Test { version, dtype: Dtype::F32, shape: LARGE, ceiling, at_least, at_most: None }
}

const DIVERGENT: Version = Version {
    id: "interleaved_divergent",
    title: "Pairs at growing distance, scattered threads",
    file: "reduction/1_interleaved_divergent.cu",
    source: include_str!("../../kernels/reduction/1_interleaved_divergent.cu"),
    dtypes: &[Dtype::F32],
    change: "The start: a block of 256 threads brings 256 elements into shared memory and adds pairs at distance 1, \
             2, 4, ..., 128. Thread t takes part if t is a multiple of twice the distance, so that up to distance 16 \
             all eight warps work, with half, a quarter, an eighth of their lanes, and then 4, 2 and 1 of them for \
             the sake of one lane: 47 warp steps.",
    prediction: Prediction {
        text: "A block has 1 KB in flight for one round trip, 0.7 us, and then eight steps with a barrier each, in \
               which it asks for nothing: another 0.4 us at least. Eight blocks fit: 8 KB each 1.1 us on 132 \
               multiprocessors are 1 TB/s, if the steps' instructions do not delay each other; with eight warps in \
               every step [in five of the eight] they do.",
        limiter: Limiter::Compute,
        fraction: (0.10, 0.30),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["barrier", "short_scoreboard"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "As fast as predicted, a fifth of what reading takes; but both reasons given were wrong, and are said \
              otherwise now. Nsight Compute found the first-level cache and shared memory busiest and the issue of \
              instructions, which had been named, seven points behind: every step of the tree is loads and stores of \
              shared memory, whatever its lanes do. And warps wait most for the first load from memory, then for \
              shared memory, and only then at barriers.",
    in_flight: InFlight::PerThread(4),
    spill_budget: 0,
    instructions: &["LDS", "BAR"],
    deterministic: true,
};

const INTERLEAVED: Version = Version {
    id: "interleaved",
    title: "The same pairs for the first threads",
    file: "reduction/2_interleaved.cu",
    source: include_str!("../../kernels/reduction/2_interleaved.cu"),
    dtypes: &[Dtype::F32],
    change: "Pair number t goes to thread t. The lanes of a warp now do the same and whole warps drop out: 4, 2 and \
             then 1 of 8 work, 12 warp steps instead of 47. The price: neighbouring threads work 2, 4, 8, ... words \
             apart and meet in the same banks.",
    prediction: Prediction {
        text: "A third of the warp steps are left [a quarter, 12 of 47]. At distance 1 a bank is asked for 2 words \
               at once, at distance 8 for 16 [for 8: 16 lanes meet in two banks, and more than 8 never do], at 16 \
               and more for as many as there are pairs: fewer instructions, more passes. A little better than \
               before, with the same barriers and the same 8 KB in flight.",
        limiter: Limiter::L1,
        fraction: (0.15, 0.32),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: Some(4.0),
        top_stalls: ["barrier", "short_scoreboard"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Inside the range, and yet the other way round: it was to be a little better than the divergent \
              version, as in many a textbook, and is a fifth slower. On this machine divergence was cheap (idle \
              lanes cost no passes through shared memory); two to eight words from one bank are not. Shared memory \
              is the limit, and warps wait for it, as was said.",
    in_flight: InFlight::PerThread(4),
    spill_budget: 0,
    instructions: &["LDS", "BAR"],
    deterministic: true,
};

const SEQUENTIAL: Version = Version {
    id: "sequential",
    title: "Pairs at shrinking distance",
    file: "reduction/3_sequential.cu",
    source: include_str!("../../kernels/reduction/3_sequential.cu"),
    dtypes: &[Dtype::F32],
    change: "Distance 128, 64, ..., 1: the active threads are the first ones and touch neighbouring words. Neither \
             divergence nor bank conflicts are left, and still half of the threads do nothing but load.",
    prediction: Prediction {
        text: "The passes through shared memory were never the main thing: the load's round trip and eight barriers \
               are. 8 KB each microsecond and multiprocessor stay 1 TB/s or a little more.",
        limiter: Limiter::Compute,
        fraction: (0.18, 0.35),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["barrier", "long_scoreboard"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Over a quarter faster than the version before, and only the pattern of the pairs has changed: so the \
              passes through shared memory do count, against what was predicted. It is hardly ahead of the divergent \
              version, which had no conflicts either: what both have left is eight trips through shared memory with \
              a barrier each, and the empty time around them. Nsight Compute found shared memory busiest, not the \
              issue of instructions.",
    in_flight: InFlight::PerThread(4),
    spill_budget: 0,
    instructions: &["LDS", "BAR"],
    deterministic: true,
};

const FIRST_ADD: Version = Version {
    id: "first_add",
    title: "A first addition while loading",
    file: "reduction/4_first_add.cu",
    source: include_str!("../../kernels/reduction/4_first_add.cu"),
    dtypes: &[Dtype::F32],
    change: "Each thread loads two elements and adds them: half as many blocks, twice the bytes in flight, the same \
             tree.",
    prediction: Prediction {
        text: "2 KB a block in the time of 1: twice the rate of the version before, less what the memory takes \
               longer under load.",
        limiter: Limiter::Compute,
        fraction: (0.35, 0.65),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["barrier", "long_scoreboard"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Nearly twice the version before, as predicted: the tree's cost is the same and carries twice the \
              bytes. The limiter was named wrongly once more: shared memory is busier than the issue of \
              instructions.",
    in_flight: InFlight::PerThread(8),
    spill_budget: 0,
    instructions: &["LDS", "BAR"],
    deterministic: true,
};

const WARP_SHUFFLE: Version = Version {
    id: "warp_shuffle",
    title: "Trees in registers",
    file: "reduction/5_warp_shuffle.cu",
    source: include_str!("../../kernels/reduction/5_warp_shuffle.cu"),
    dtypes: &[Dtype::F32],
    change: "A warp adds its 32 values by five shuffles, from register to register. Eight sums go through shared \
             memory; one barrier is left of eight.",
    prediction: Prediction {
        text: "Ten shuffles of some 25 clocks and one barrier, 0.2 us behind the load's 0.7 instead of 0.4 and more: \
               16 KB each 0.9 us on 132 multiprocessors, 2.4 TB/s and upwards.",
        limiter: Limiter::Memory,
        fraction: (0.50, 0.90),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "At the lower end of what was predicted. The tree is cheap now, and what is left is that a block asks \
              for 2 KB once and then for nothing until it has ended: warps wait for memory, and memory waits for \
              blocks. So memory's bandwidth, which had been named, is not the limit: half of it is used, and the \
              busiest unit that Nsight Compute found, the second-level cache, which is what is said now, stands at \
              two thirds.",
    in_flight: InFlight::PerThread(8),
    spill_budget: 0,
    instructions: &["SHFL.DOWN"],
    deterministic: true,
};

const TWO_LEVEL: Version = Version {
    id: "two_level",
    title: "Sums in registers, one tree a block",
    file: "reduction/6_two_level.cu",
    source: include_str!("../../kernels/reduction/6_two_level.cu"),
    dtypes: &[Dtype::F32],
    change: "Four blocks a multiprocessor walk through the whole array, each thread with eight 16-byte loads out and \
             a sum of its own. The tree is climbed once a block, not once for each 256 elements; a second launch \
             adds the blocks' sums.",
    prediction: Prediction {
        text: "1024 threads x 128 bytes = 128 KB in flight, all the time. 2^30 elements are 131072 turns of 8192, \
               and one tree in each of 528 blocks: nothing but reading is left, and the second launch, some 3 us of \
               930.",
        limiter: Limiter::Memory,
        fraction: (0.96, 1.01),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "wait"],
        occupancy_limiter: OccupancyLimiter::Registers,
    },
    outcome: "As fast as reading, to a per cent or two. Memory is busy for all but a few per cent of the time, and \
              the trees are lost in the noise.",
    in_flight: InFlight::PerThread(128),
    spill_budget: 0,
    instructions: &["LDG.E.EF.128"],
    deterministic: true,
};

const DETERMINISTIC: Version = Version {
    id: "deterministic",
    title: "The same bits on every card",
    file: "reduction/7_deterministic.cu",
    source: include_str!("../../kernels/reduction/7_deterministic.cu"),
    dtypes: &[Dtype::F32],
    change: "No version here adds by atomics, so each repeats its own bits. But the order of the two-level sum \
             depends on how many blocks the card holds, and on where the array begins. Here a block has 32768 \
             elements and a thread the same 128 of them, whatever the card and the alignment: the sum is a function \
             of the numbers.",
    prediction: Prediction {
        text: "The same loads, in blocks of 128 KB: four rounds of eight vectors, then the tree. A block's last \
               microsecond asks for nothing, but three others [four: five blocks fit] on the multiprocessor do. \
               Three launches instead of two. A few per cent less.",
        limiter: Limiter::Memory,
        fraction: (0.92, 1.0),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "wait"],
        occupancy_limiter: OccupancyLimiter::Registers,
    },
    outcome: "Inside the range, but not the few per cent less that the text expects: a little faster than the grid \
              that fits. Probably blocks that come and go spread over the memory more evenly than a fixed grid's \
              stride does, which is worth more than the trees cost. A sum that is the same everywhere is free.",
    in_flight: InFlight::PerThread(128),
    spill_budget: 0,
    instructions: &["LDG.E.EF.128"],
    deterministic: true,
};
