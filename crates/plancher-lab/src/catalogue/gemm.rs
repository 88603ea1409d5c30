//! Step 5: the matrix product in f32, from the formula to a tile in shared memory, and the roofline that says where it stops.
//!
//! Figures that the predictions start from: 132 multiprocessors with 128 lanes at 1.98 GHz, an FMA counted as two operations,
//! are 66.9 TFLOP/s; cuBLAS gets about 51 of them. Shared memory and the first-level cache deliver 128 bytes a clock on each
//! multiprocessor: one access of a warp to 32 neighbouring words, which is called a wavefront here.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

/// The step.
pub(super) static STEP: Step = Step {
    id: "gemm",
    number: 5,
    title: "Matrix product in f32",
    question: "Why is the textbook tile far from the machine's arithmetic?",
    task: "Write c = a b for row-major f32 matrices a (m, k), b (k, n), c (m, n) of any size. Start with one thread for each \
           output, then let a block keep tiles of both operands in shared memory. Count, for each multiplication, what a warp \
           reads from shared memory; that count and 128 bytes a clock are the roofline under which the tile stays. Then let a \
           thread compute several outputs and count again.",
    operation: Some(Operation::Gemm),
    versions: &[
        Version {
            id: "naive",
            title: "One output a thread, warps along rows",
            file: "gemm/1_naive.cu",
            source: include_str!("../../kernels/gemm/1_naive.cu"),
            dtypes: &[Dtype::F32],
            change: "The start: the formula as it is written, a thread for each output. Neighbouring threads have neighbouring \
                     rows, so that the loads of `a` and the stores of a warp fall into 32 different rows.",
            prediction: Prediction {
                text: "Each FMA of a warp takes one load with 32 sectors in 32 cache lines, which the first-level cache looks \
                       up a few at a time, and one broadcast load. At 16 to 32 clocks for the first, against a quarter of a \
                       clock for the FMA itself, 1 to 2 % of the arithmetic remain: about 1 TFLOP/s. What keeps it from being \
                       far worse is that a sector holds eight steps of k and the next ones find it in the cache.",
                limiter: Limiter::L1,
                fraction: (0.005, 0.03),
                fraction_bf16: None,
                bank_conflicts_per_request: None,
                sectors_per_request: Some(16.5),
                top_stalls: ["lg_throttle", "long_scoreboard"],
                occupancy_limiter: OccupancyLimiter::Threads,
            },
            outcome: "Inside the range, but half of the 1 TFLOP/s that the text arrives at: 34 clocks pass for each FMA of a \
                      warp. So a load of a warp takes about as many clocks as it touches cache lines, 32 here, and the caches' \
                      help with the bytes does not change that.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA"],
            deterministic: true,
        },
        Version {
            id: "coalesced",
            title: "Warps along columns",
            file: "gemm/2_coalesced.cu",
            source: include_str!("../../kernels/gemm/2_coalesced.cu"),
            dtypes: &[Dtype::F32],
            change: "Two coordinates exchanged. A warp reads 128 neighbouring bytes of `b`, one word of `a` for all lanes, and \
                     writes 128 neighbouring bytes.",
            prediction: Prediction {
                text: "Two loads for an FMA, each a wavefront of the first-level cache: half an FMA of a warp a clock where four \
                       could be done, so at most 12.5 % of the arithmetic or 16 % of cuBLAS, and somewhat less since not every \
                       load hits. The memory is not the limit: a block row of 32 shares its lines of `b` through the caches.",
                limiter: Limiter::L1,
                fraction: (0.06, 0.16),
                fraction_bf16: None,
                bank_conflicts_per_request: None,
                sectors_per_request: Some(2.5),
                top_stalls: ["lg_throttle", "long_scoreboard"],
                occupancy_limiter: OccupancyLimiter::Threads,
            },
            outcome: "Held, at seven tenths of the roofline of two wavefronts: more than ten times the naive version for two \
                      exchanged coordinates. Before anything else, see to it which lanes touch the same line.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA"],
            deterministic: true,
        },
        Version {
            id: "tiled",
            title: "The textbook tile in shared memory",
            file: "gemm/3_tiled.cu",
            source: include_str!("../../kernels/gemm/3_tiled.cu"),
            dtypes: &[Dtype::F32],
            change: "A block fetches 32 x 32 pieces of both operands once and reads them from shared memory. Every word from far \
                     away is used 32 times: 8 FLOP for a byte that crosses the second-level cache instead of a quarter.",
            prediction: Prediction {
                text: "The roofline of shared memory: an FMA of a warp takes a wavefront for 32 words of `b` and a quarter of one \
                       for `a`, which the compiler reads four steps of k at a time. 1.25 wavefronts for an FMA are 0.8 FMA a \
                       clock of four: 20 % of the arithmetic, 26 % of cuBLAS, if a wavefront left every clock. Two barriers for \
                       each 32 steps, with only two blocks to fill the gap, leave about two thirds of it: 16 % of cuBLAS. Making \
                       the tile larger changes neither figure, since every product still reads its two factors.",
                limiter: Limiter::L1,
                fraction: (0.12, 0.22),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(4.0),
                top_stalls: ["mio_throttle", "short_scoreboard"],
                occupancy_limiter: OccupancyLimiter::Threads,
            },
            outcome: "Held, and close to the 16 % of cuBLAS in the text, though one of its figures was wrong: a wide read that \
                      all lanes share takes two clocks, not one (measured by itself). That puts the roofline at 17 % of the \
                      arithmetic, not 20, and the tile at three quarters of it instead of two thirds. A tile in shared memory \
                      alone gains less than half again over the caches.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128"],
            deterministic: true,
        },
        Version {
            id: "two_outputs",
            title: "Two outputs a thread",
            file: "gemm/4_two_outputs.cu",
            source: include_str!("../../kernels/gemm/4_two_outputs.cu"),
            dtypes: &[Dtype::F32],
            change: "The same tile with half the threads; each has two rows of one column, so that a word of `b` read from shared \
                     memory serves two products.",
            prediction: Prediction {
                text: "Two FMA take one wavefront of `b` and twice a quarter of `a`: 0.75 for an FMA instead of 1.25. The \
                       roofline rises from 20 to 33 % of the arithmetic, 44 % of cuBLAS; with the same share of it as before, \
                       27 %.",
                limiter: Limiter::L1,
                fraction: (0.20, 0.34),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(4.0),
                top_stalls: ["mio_throttle", "short_scoreboard"],
                occupancy_limiter: OccupancyLimiter::Threads,
            },
            outcome: "Held. Each word of `b` that is read serves two products, the wavefronts for an FMA fall from 1.5 to 1 \
                      (shared wide reads counted as two clocks), and the speed follows them: what is counted in shared memory is \
                      what limits.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128"],
            deterministic: true,
        },
        Version {
            id: "four_outputs",
            title: "Four outputs a thread",
            file: "gemm/5_four_outputs.cu",
            source: include_str!("../../kernels/gemm/5_four_outputs.cu"),
            dtypes: &[Dtype::F32],
            change: "A quarter of the threads, four rows each. Blocks of 256 threads also leave more of them on a multiprocessor, \
                     so that one multiplies while another waits at its barrier.",
            prediction: Prediction {
                text: "Four FMA take one wavefront of `b` and four quarters of `a`: 0.5 for an FMA, a roofline of 50 % of the \
                       arithmetic or 65 % of cuBLAS. But the tile has become the next limit: 8 FLOP a byte through the \
                       second-level cache, at its 8.5 TB/s, are 68 TFLOP/s at best, and copying 2048 words takes a thread 8 \
                       loads, 8 stores and their bounds for 128 FMA: less than half of the instructions are FMA. Half of the \
                       roofline seems likely, a third of cuBLAS.",
                limiter: Limiter::L1,
                fraction: (0.25, 0.45),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(4.0),
                top_stalls: ["mio_throttle", "short_scoreboard"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Held, a third of cuBLAS: with two clocks for a shared wide read the roofline is 33 % of the arithmetic, \
                      and four fifths of it are reached. The gain for twice the outputs is shrinking, since by the text's count \
                      half of the instructions are now copies and addresses: the tile must grow too.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128"],
            deterministic: true,
        },
    ],
    points: &[Point { dtype: Dtype::F32, shape: Shape::cube(4096), ceiling: Ceiling::Cublas, sweep: false }],
    plan: Criterion { text: "tiled: 25 to 35 % of cuBLAS; a faster tile passes too", tests: &[BEST_TILE] },
    bar: Criterion { text: "the same, explained by the roofline of shared memory", tests: &[BEST_TILE] },
};

const BEST_TILE: Test = Test {
    version: None,
    dtype: Dtype::F32,
    shape: Shape::cube(4096),
    ceiling: Ceiling::Cublas,
    at_least: 0.25,
    at_most: None,
};
