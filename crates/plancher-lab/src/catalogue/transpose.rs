//! Step 2: transpose. Reading one way and writing the other, and what shared memory's banks make of it.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

const BOTH: &[Dtype] = &[Dtype::F32, Dtype::Bf16];
const SQUARE: Shape = Shape::square(16_384);
const ODD: Shape = Shape::Matrix { rows: 8191, columns: 8193 };
const ODD_TALL: Shape = Shape::Matrix { rows: 16_381, columns: 4099 };

/// The step.
pub(super) static STEP: Step = Step {
    id: "transpose",
    number: 2,
    title: "Transpose",
    question: "What does it cost to read one way and write the other, and what must lie in shared memory how?",
    task: "Write `out (columns, rows)` from `in (rows, columns)`, for elements of 4 bytes and of 2 (`ELEMENT` and \
           `ELEMENT_BYTES` say which). Not one byte is computed, so the copy of as many bytes is the ceiling. Memory \
           comes in sectors of 32 bytes, and a warp's request should use the whole of each sector that it touches, \
           on both sides. Rows may begin at any element: try 8191 x 8193.",
    operation: Some(Operation::Transpose),
    versions: &[NAIVE, SHARED, PADDED, SWIZZLED, WIDE, SHIFTED, SHIFTED_PAIRS],
    points: &[
        timed(Dtype::F32, SQUARE),
        timed(Dtype::Bf16, SQUARE),
        timed(Dtype::F32, ODD),
        timed(Dtype::Bf16, ODD),
        timed(Dtype::F32, ODD_TALL),
        timed(Dtype::Bf16, ODD_TALL),
    ],
    plan: Criterion {
        text: "1x, 4x, 5x from naive to shared memory to padded; the ratio belongs to older cards and is printed",
        tests: &[],
    },
    bar: Criterion {
        text: "at least 95 % of the copy ceiling in f32 and bf16, 90 % on odd shapes",
        tests: &[
            test(Dtype::F32, SQUARE, 0.95),
            test(Dtype::Bf16, SQUARE, 0.95),
            test(Dtype::F32, ODD, 0.90),
            test(Dtype::Bf16, ODD, 0.90),
            test(Dtype::F32, ODD_TALL, 0.90),
            test(Dtype::Bf16, ODD_TALL, 0.90),
        ],
    },
};

const fn timed(dtype: Dtype, shape: Shape) -> Point {
    Point { dtype, shape, ceiling: Ceiling::Copy, sweep: false }
}

const fn test(dtype: Dtype, shape: Shape, at_least: f64) -> Test {
    Test { version: None, dtype, shape, ceiling: Ceiling::Copy, at_least, at_most: None }
}

const NAIVE: Version = Version {
    id: "naive",
    title: "Straight from row to column",
    file: "transpose/1_naive.cu",
    source: include_str!("../../kernels/transpose/1_naive.cu"),
    dtypes: BOTH,
    change: "The start: each thread reads elements in order and puts them where they belong.",
    prediction: Prediction {
        text: "A warp's load is 32 neighbours, 4 sectors. Its store goes to 32 rows of the output: 32 sectors, each \
               for one element. 2^28 elements make 2^28 writes of sectors, and at the 170 billion a second that the \
               second-level cache can take they last 1.6 ms, where the copy of 2^30 bytes takes 0.5. In bf16 the \
               copy has half the bytes and the stores are as many. The cache puts the pieces of a sector together \
               again, so memory itself sees no more than the copy.",
        limiter: Limiter::L2,
        fraction: (0.20, 0.50),
        fraction_bf16: Some((0.10, 0.30)),
        bank_conflicts_per_request: None,
        sectors_per_request: Some(32.0),
        top_stalls: ["long_scoreboard", "lg_throttle"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Missed: 2.6 times the 1.6 ms that were predicted. Memory moves more than for the copy, against what was \
              said: a fifth in f32, a seventh in bf16, as if some sectors left the cache before all of their \
              elements had come and had to be fetched again. But that is not what counts, and neither is the \
              second-level cache's own rate. The way from the multiprocessors to it \
              takes a packet for each scattered element, and is full at 64 billion sectors a second, three eighths \
              of what was reckoned with. The bf16 matrix has as many elements, and takes nearly as long.",
    in_flight: InFlight::Uncounted,
    spill_budget: 0,
    instructions: &[],
    deterministic: true,
};

const SHARED: Version = Version {
    id: "shared",
    title: "A tile in shared memory",
    file: "transpose/2_shared.cu",
    source: include_str!("../../kernels/transpose/2_shared.cu"),
    dtypes: BOTH,
    change: "A block brings a tile of 32 x 32 into shared memory and, after a barrier, writes its columns as rows: \
             whole sectors on both sides. What was scattered over memory is now scattered over shared memory.",
    prediction: Prediction {
        text: "A row of the tile is 32 words of 4 bytes, one in each bank; so all 32 words of a column lie in one \
               bank, and reading it takes 32 passes, 31 too many. 2^28 elements are 2^28 passes: over 132 \
               multiprocessors at 1.9 GHz 1.07 ms, twice the copy's time. In bf16 a row is 16 words, a column lies \
               in two banks: 16 passes, for half the bytes. The plan's fourfold gain is that of cards whose caches \
               did not yet put scattered stores together.",
        limiter: Limiter::L1,
        fraction: (0.35, 0.60),
        fraction_bf16: Some((0.35, 0.60)),
        bank_conflicts_per_request: Some(15.5),
        sectors_per_request: Some(4.0),
        top_stalls: ["mio_throttle", "short_scoreboard"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Held: 31 further passes for each read of a column in f32, 15 in bf16, and shared memory is busy all \
              the time. (In bf16 warps wait for memory about as long as for shared memory.) The gain over the \
              first version is about what the plan says of older cards, for another reason: there it was memory's \
              sectors that were saved, here it is packets.",
    in_flight: InFlight::Uncounted,
    spill_budget: 0,
    instructions: &["LDS", "STS"],
    deterministic: true,
};

const PADDED: Version = Version {
    id: "padded",
    title: "Rows of an odd number of words",
    file: "transpose/3_padded.cu",
    source: include_str!("../../kernels/transpose/3_padded.cu"),
    dtypes: BOTH,
    change: "One unused word behind each row of the tile, which makes it 33 words (in bf16 17). Element r of a \
             column then lies 33 r words on, which is r modulo the 32 banks: one pass. 17 r does as well, since 17 \
             and 32 have no common divisor.",
    prediction: Prediction {
        text: "No conflict is left. A thread has four loads out, 16 bytes in f32: 32 KB in flight a multiprocessor \
               while it loads, but nothing while the tile is turned. In bf16 half of that, with the same \
               instructions for half the bytes: 64 bytes a request are 2 sectors.",
        limiter: Limiter::Memory,
        fraction: (0.75, 0.95),
        fraction_bf16: Some((0.50, 0.85)),
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "As fast as predicted, and no conflict is left. But memory is not the limit that it was said to be: \
              Nsight Compute found the second-level cache eight points busier in f32 and twenty in bf16, where the \
              instructions, for two bytes each, are as busy: it is what is said now. Now odd shapes cost: where a warp's 128 bytes begin \
              inside a line, each request goes to two lines, and f32 loses a third.",
    in_flight: InFlight::PerThread(16),
    spill_budget: 0,
    instructions: &["LDS", "STS"],
    deterministic: true,
};

const SWIZZLED: Version = Version {
    id: "swizzled",
    title: "Vectors all the way, in swizzled pieces",
    file: "transpose/4_swizzled.cu",
    source: include_str!("../../kernels/transpose/4_swizzled.cu"),
    dtypes: BOTH,
    change: "16 bytes a load, a store and a passage through shared memory. A thread loads four rows of a small block \
             and turns it round in registers (in bf16 by permuting bytes), so that shared memory takes vectors of \
             the output. Padding would break their alignment; instead piece p of row c is stored at p xor (c / \
             vector), and the eight vectors that move at once always lie in different banks. Tiles are 64 x 64 and \
             follow each other down the columns, so that the blocks that run at one time write long pieces of few \
             rows.",
    prediction: Prediction {
        text: "f32: 8 vectors a thread, 16 KB a block, 10 blocks by registers: up to 160 KB in flight. bf16: 4 vectors, \
               8 KB, 12 blocks of 128 threads: 96 KB. A quarter (an eighth) of the requests of the padded version. A \
               vector of 32 lanes takes four passes, as 512 bytes must: no conflicts. Only the copy's own limits are \
               left. Tiles side by side, as this version had them at first, gave 0.95 and 0.89; down the columns an \
               experiment gave 0.96 and 0.92.",
        limiter: Limiter::L2,
        fraction: (0.94, 1.0),
        fraction_bf16: Some((0.88, 0.95)),
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Registers,
    },
    outcome: "Held: walking down the columns is worth what the experiment said, in bf16 too. There rows of 128 bytes are still \
              short: the next version gains four per cent by nothing but longer ones.",
    in_flight: InFlight::PerThread(128),
    spill_budget: 0,
    instructions: &["LDG.E.128", "LDS.128", "STG.E.128"],
    deterministic: true,
};

const WIDE: Version = Version {
    id: "wide",
    title: "Tiles of 128 x 128 in bf16",
    file: "transpose/5_wide.cu",
    source: include_str!("../../kernels/transpose/5_wide.cu"),
    dtypes: &[Dtype::Bf16],
    change: "The same in tiles of 128 x 128 for 256 threads, in bf16 only: rows of a tile are 256 bytes instead of 128, \
             which is what the version before has in f32. Rows of the turned tile have sixteen pieces and eight places \
             for them to start, so that the 8-byte stores of half a warp would meet in twos: in every second 64 rows \
             the halves of a piece change places.",
    prediction: Prediction {
        text: "Nothing but the length of the pieces changes: 16 vectors a thread, 33 KB and 6 blocks a multiprocessor, \
               192 KB in flight [5 by registers, as is declared: 160 KB]. An experiment gave 0.96 of the copy; with 66 KB of shared memory, and so 3 blocks, \
               this same kernel had 0.94.",
        limiter: Limiter::L2,
        fraction: (0.94, 0.99),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(16.0),
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Registers,
    },
    outcome: "Held, once a multiprocessor had five blocks of it: the same kernel with twice the shared memory, of which \
              half was never used, took 3 % longer. Without the halves that change \
              places, as it was at first, it had 1.7 conflicts a request, which could not be seen in the time.",
    in_flight: InFlight::PerThread(256),
    spill_budget: 0,
    instructions: &["LDG.E.128", "LDS.128", "STG.E.128"],
    deterministic: true,
};

const SHIFTED: Version = Version {
    id: "shifted",
    title: "Any shape: rows as they lie, by the copy engine both ways",
    file: "transpose/6_shifted.cu",
    source: include_str!("../../kernels/transpose/6_shifted.cu"),
    dtypes: &[Dtype::F32],
    change: "With 8193 columns no two rows begin alike, and vectors are out. The bulk copy engine of Hopper fetches \
             each row of a tile of 128 x 128 from the multiple of 16 bytes before its first element on, and leaves it \
             in shared memory shifted as it was; threads turn the tile through registers; and the engine writes the \
             output, 512 bytes of a row at a time, from the row's first whole sector on, for which seven rows more \
             than 128 are fetched: no sector is written in two parts. Where the matrix ends, pieces are shorter; its \
             columns are shared out evenly.",
    prediction: Prediction {
        text: "Of a row that is read, 5 lines are touched where 4 would do, and 17 sectors in place of 16; of one that \
               is written, 5 lines in place of 4 and not one sector more; and 5 % of the rows are read twice, out of \
               the second-level cache. Reads that begin inside a line have cost 3 to 4 % in an experiment with rows \
               of this length, writes 2. An experiment gave 0.95 of the copy where everything is aligned, 0.91 at \
               16383 x 16385, and 0.89 and 0.86 at the two smaller odd shapes, where tiles of 64 KB leave the last \
               blocks alone for longer.",
        limiter: Limiter::L2,
        fraction: (0.92, 0.97),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: None,
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Threads,
    },
    outcome: "Held. On odd shapes `swizzled` loses more than a quarter, this one half of that; what is left \
              was taken apart by shapes in which only one side is odd: reads that begin inside a line cost most of it, \
              although not one byte more comes from memory, and parts of sectors nearly nothing (whole sectors are \
              worth 0.2 to 2 %). The memory log has the experiments, and what would have to be tried: blocks of a \
              cluster that fetch the lines between them once.",
    in_flight: InFlight::PerBlock(69_120),
    spill_budget: 0,
    instructions: &["UBLKCP", "LDS", "STS"],
    deterministic: true,
};

const SHIFTED_PAIRS: Version = Version {
    id: "shifted_pairs",
    title: "Any shape, elements of two bytes",
    file: "transpose/7_shifted_pairs.cu",
    source: include_str!("../../kernels/transpose/7_shifted_pairs.cu"),
    dtypes: &[Dtype::Bf16],
    change: "The same for bf16, whose elements become pairs on the way through the registers; tiles are 128 columns by \
             192 rows, so that rows are read by 256 bytes and written by 384.",
    prediction: Prediction {
        text: "Of a row that is read, 3 lines are touched where 2 would do, and 9 sectors in place of 8; of one that is \
               written, 4 in place of 3, without a sector more; 8 % of the rows are read twice. That is more than in \
               f32, for tiles of fewer bytes a row. An experiment gave 0.81 to 0.88 of the copy on odd shapes.",
        limiter: Limiter::L2,
        fraction: (0.88, 0.95),
        fraction_bf16: None,
        bank_conflicts_per_request: None,
        sectors_per_request: None,
        top_stalls: ["long_scoreboard", "barrier"],
        occupancy_limiter: OccupancyLimiter::Registers,
    },
    outcome: "Held. Pairs and bulk stores made half again of what single elements reach on odd shapes; the lines that \
              two tiles share weigh twice what they do in f32, whose rows have twice the bytes.",
    // In the form of f32: 207 rows of 128 elements.
    in_flight: InFlight::PerBlock(105_984),
    spill_budget: 0,
    instructions: &["UBLKCP", "LDS", "STS"],
    deterministic: true,
};
