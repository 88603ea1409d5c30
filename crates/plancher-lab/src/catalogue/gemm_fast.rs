//! Step 6: matrix products as fast as the vendor's, in f32 with plain FMA and in bf16 on the tensor cores.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

/// The step.
pub(super) static STEP: Step = Step {
    id: "gemm_fast",
    number: 6,
    title: "Fast matrix products",
    question: "What must be added to reach the vendor's library?",
    task: "Bring the f32 product of step 5 to the speed of cuBLAS with plain FMA instructions: registers as the tile closest to the \
           lanes, copies that are on their way while the slice before is multiplied, reads without bank conflicts. Or take \
           bf16 operands, c = a b^T with b of shape (n, k), and the tensor cores.",
    operation: Some(Operation::Gemm),
    versions: &[
        Version {
            id: "register_column",
            title: "A column of eight outputs a thread",
            file: "gemm_fast/1_register_column.cu",
            source: include_str!("../../kernels/gemm_fast/1_register_column.cu"),
            dtypes: &[Dtype::F32],
            change: "A block of 64 x 64 outputs and slices of 8 steps; a thread holds eight outputs below each other in \
                     registers.",
            prediction: Prediction {
                text: "A step takes a wavefront of `b` and, for eight rows of `a` four steps at a time, two more: three for \
                       eight FMA, a roofline of 66 % of the arithmetic where the best tile of step 5 had 50. The larger \
                       tile halves the bytes through the second-level cache. But of the instructions only half are FMA (16 \
                       wide and 8 narrow reads of shared memory, the copies, their addresses and bounds for 64 FMA), and a \
                       barrier comes every 64: half of cuBLAS.",
                limiter: Limiter::L1,
                fraction: (0.35, 0.65),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(4.0),
                top_stalls: ["mio_throttle", "barrier"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Missed: slower than the best tile of step 5, not faster: the roofline of shared memory was not the limit. \
                      Half of the instructions are not FMA and a barrier comes every 64 of them, with only two blocks to cover \
                      it. Warps wait most for the loads of the next slice from far away, which nothing starts early: neither \
                      shared memory's queue nor the barrier, as was predicted.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128"],
            deterministic: true,
        },
        Version {
            id: "register_square",
            title: "A square of 8 x 8 outputs a thread",
            file: "gemm_fast/2_register_square.cu",
            source: include_str!("../../kernels/gemm_fast/2_register_square.cu"),
            dtypes: &[Dtype::F32],
            change: "A block of 128 x 128 outputs, 64 of them in each thread's registers, so that sixteen words from shared \
                     memory feed 64 products.",
            prediction: Prediction {
                text: "512 FMA now come with 32 wide reads: 80 % of a slice's instructions are FMA, and shared memory is no \
                       roofline any more, although the plain layout makes every wide read two passes too long [the claim above \
                       says one] (rows of `a` lie 64 words apart, columns of `b` eight). What is left is waiting: 128 registers \
                       a thread leave 16 warps on a multiprocessor, and all of them wait for the copies of a slice and twice at \
                       its barriers.",
                limiter: Limiter::Compute,
                fraction: (0.5, 0.85),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(1.0),
                sectors_per_request: Some(4.0),
                top_stalls: ["long_scoreboard", "barrier"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Held: nearly twice the column of eight, because 64 products now come from sixteen words. The waiting for \
                      copies and barriers shows, since the next versions win by shortening it. But it is not what a profile \
                      has at the top: there, warps that could go on are kept waiting by others (`not_selected`), and shared \
                      memory is busier than the arithmetic, by reads that take more passes than was predicted: 1.6 a request \
                      too many, not 1.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128"],
            deterministic: true,
        },
        Version {
            id: "vectors",
            title: "16-byte accesses, `a` transposed",
            file: "gemm_fast/3_vectors.cu",
            source: include_str!("../../kernels/gemm_fast/3_vectors.cu"),
            dtypes: &[Dtype::F32],
            change: "Global loads of four words, `a` transposed on its way into shared memory, and the thread's square \
                     pulled apart into four quarters, so that the 16-byte reads of neighbouring threads lie side by side.",
            prediction: Prediction {
                text: "A quarter of the copy instructions and no bank conflicts: rows 132 words apart put the four words of \
                       a transposed piece into four different banks. The share of FMA stays at 80 %, since the checks for \
                       ragged edges come with every load; the waiting stays too. Perhaps a tenth faster.",
                limiter: Limiter::Compute,
                fraction: (0.55, 0.9),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(16.0),
                top_stalls: ["long_scoreboard", "barrier"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Held, and more than the tenth that was hoped for: fewer copy instructions also means less waiting for \
                      them. What warps wait for had been named wrongly: most of it is waiting for each other, with the \
                      schedulers never short of a warp that can go on. That the arithmetic still stands at two thirds of its \
                      limit was the first sign that something else delays the FMA (version 7).",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128", "LDG.E.128"],
            deterministic: true,
        },
        Version {
            id: "warp_tiles",
            title: "A compact tile for each warp",
            file: "gemm_fast/4_warp_tiles.cu",
            source: include_str!("../../kernels/gemm_fast/4_warp_tiles.cu"),
            dtypes: &[Dtype::F32],
            change: "The block's tile is dealt to warps in pieces of 64 x 32 instead of strips of 16 x 128: 96 words a step \
                     instead of 144 for the same 2048 products.",
            prediction: Prediction {
                text: "A third less read from shared memory, but shared memory was not the limit: at 32 reads of 512 bytes for \
                       512 FMA it is busy for a third of the time at most [wrong: 16 KB at 128 bytes a clock are 128 clocks, as \
                       many as 512 FMA take; with two clocks for each of these reads, as was measured later, it is half]. No \
                       change that can be seen; it pays when the rest has gone.",
                limiter: Limiter::Compute,
                fraction: (0.55, 0.95),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(16.0),
                top_stalls: ["long_scoreboard", "barrier"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Hardly a change, as predicted, about one per cent: shared memory was not the limit. It was nearer to it \
                      than the prediction's arithmetic says, busy for half of the time. As in the version before, warps wait \
                      for each other, not for copies and barriers, which had been named.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128", "LDG.E.128"],
            deterministic: true,
        },
        Version {
            id: "double_buffered",
            title: "The next slice on its way in registers",
            file: "gemm_fast/5_double_buffered.cu",
            source: include_str!("../../kernels/gemm_fast/5_double_buffered.cu"),
            dtypes: &[Dtype::F32],
            change: "Two stages of shared memory. The next slice is loaded into registers before this one is multiplied, \
                     and stored afterwards; one barrier a slice.",
            prediction: Prediction {
                text: "512 FMA of four warps on a scheduler are 2048 clocks, several times the way to the second-level \
                       cache: the wait for loads disappears. What remains are the issue slots: 80 % of them FMA, against \
                       about 76 % of the arithmetic that cuBLAS gets. It should be level with it.",
                limiter: Limiter::Compute,
                fraction: (0.8, 1.02),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: Some(16.0),
                top_stalls: ["not_selected", "dispatch_stall"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "At the very bottom of the range, some five per cent faster than without, and not level with cuBLAS: most \
                      of the wait was already covered by the other block. So neither copies nor the share of FMA were the limit, \
                      which sent us to look at registers (version 7). With 128 registers a few words do not fit beside 64 sums: \
                      NVRTC 13.0 spills 16 bytes a thread, 13.2 and 13.5 spill 72, and what they spill is loaded back in \
                      each slice: some seven instructions beside 512 FMA.",
            in_flight: InFlight::Uncounted,
            spill_budget: 96,
            instructions: &["FFMA", "LDS.128", "LDG.E.128"],
            deterministic: true,
        },
        Version {
            id: "pipelined",
            title: "Asynchronous copies, four stages",
            file: "gemm_fast/6_pipelined.cu",
            source: include_str!("../../kernels/gemm_fast/6_pipelined.cu"),
            dtypes: &[Dtype::F32],
            change: "`cp.async` copies to shared memory without registers in between, three slices of 16 steps ahead. `a` \
                     is not transposed: a thread reads four steps of a row at once, which is as many reads, and its copies \
                     become 16 bytes wide. Blocks that run together take tiles of eight rows of tiles, for the cache's \
                     sake.",
            prediction: Prediction {
                text: "For 16 steps a warp issues 1024 FMA, 64 wide reads, 4 copies, and some 50 instructions of addresses \
                       and loop: 90 % FMA. Eight FMA after each other use the same word of `a`, which stays in the operand \
                       cache, so that three operands from two register banks do not collide. 128 registers hold 64 sums, 32 \
                       words of `a` and 8 of `b` without a spill. At least cuBLAS; its 76 % leave room.",
                limiter: Limiter::Compute,
                fraction: (0.95, 1.2),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: None,
                top_stalls: ["not_selected", "dispatch_stall"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "The prediction failed: 90 % FMA, and no faster than 80 %. What all versions from the third on have in \
                      common is the order of their products, and with it the banks of the register file that they ask for.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128", "LDGSTS"],
            deterministic: true,
        },
        Version {
            id: "register_banks",
            title: "The banks of the register file",
            file: "gemm_fast/7_register_banks.cu",
            source: include_str!("../../kernels/gemm_fast/7_register_banks.cu"),
            dtypes: &[Dtype::F32],
            change: "The tile as before. Products are walked through back and forth, so that one factor of each is still \
                     held from the one before; results are stored word by word, which leaves the compiler free to put the \
                     sums into the bank that the other factor is not in. `a` is transposed word by word by the asynchronous \
                     copies, and the factors of the next step, across slices too, are read during this one.",
            prediction: Prediction {
                text: "[Written for a first form, with a tile of 128 x 256 and 8 x 16 outputs a thread.] Two guesses why all \
                       versions with 8 x 8 outputs stop at the same three quarters of cuBLAS, at 61 % of the arithmetic. Either \
                       wide reads take four clocks whatever is the same in them: then 64 bytes a lane for 64 FMA keep shared \
                       memory as busy as the arithmetic, and 8 x 16 outputs need 96 for 128. Or the register file, which gives \
                       one register a clock from each of two banks: by the disassembly two thirds of the FMA want two from the \
                       same bank or three. This version does both: 75 % of the reads, and 84 % of the FMA with one register from \
                       each bank instead of a third. Three quarters of the arithmetic, cuBLAS, or more.",
                limiter: Limiter::Compute,
                fraction: (0.95, 1.2),
                fraction_bf16: None,
                bank_conflicts_per_request: Some(0.0),
                sectors_per_request: None,
                top_stalls: ["not_selected", "dispatch_stall"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "What follows was found by the device script of docs/lab-gemm-log.md, in turns with cuBLAS; the lab's \
                      own record, under `measured`, came later. The first guess was wrong: \
                      wide reads in which pairs of lanes want the same take two clocks, not four. The second was right: with the \
                      tile of the versions before and as many reads, but 9 of 10 FMA with one register from each bank, a fifth \
                      to a quarter is gained, more than by the larger square. This smaller form, the best of those experiments, \
                      was not predicted but found.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["FFMA", "LDS.128", "LDGSTS"],
            deterministic: true,
        },
        Version {
            id: "wgmma",
            title: "Tensor cores: `wgmma`, the shortest way",
            file: "gemm_fast/8_wgmma.cu",
            source: include_str!("../../kernels/gemm_fast/8_wgmma.cu"),
            dtypes: &[Dtype::Bf16],
            change: "bf16 operands and the instruction of Hopper's tensor cores. One thread has the copy engine fetch boxes \
                     of both operands, laid out in shared memory as the instruction wants them; two warpgroups multiply 64 \
                     x 128 outputs each.",
            prediction: Prediction {
                text: "The tensor cores do 4096 operations a clock and multiprocessor, 1070 TFLOP/s at 1.98 GHz; the power \
                       limit of the card leaves 700 to 800 of them. A block waits for its slice (some 1000 clocks), \
                       multiplies it (512 clocks if alone), and starts over, and the registers leave room for two blocks: \
                       at most about half busy. A 128 x 128 tile also fetches only 64 FLOP a byte through the second-level \
                       cache, whose 8.5 TB/s feed 540 TFLOP/s at best. Both point to half of cuBLAS or a little more.",
                limiter: Limiter::L2,
                fraction: (0.35, 0.7),
                fraction_bf16: None,
                bank_conflicts_per_request: None,
                sectors_per_request: None,
                top_stalls: ["long_scoreboard", "gmma"],
                occupancy_limiter: OccupancyLimiter::Registers,
            },
            outcome: "Held, in the upper part of the range: the second block covers much of what does not overlap within one.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["HGMMA", "UTMALDG"],
            deterministic: true,
        },
        Version {
            id: "wgmma_ring",
            title: "A warp that only copies, two warpgroups that only multiply",
            file: "gemm_fast/9_wgmma_ring.cu",
            source: include_str!("../../kernels/gemm_fast/9_wgmma_ring.cu"),
            dtypes: &[Dtype::Bf16],
            change: "Four stages of 48 KiB, filled as soon as they are free by one thread that does nothing else; \
                     `setmaxnreg` moves registers from its warpgroup to the multiplying ones, which hold 64 x 256 sums \
                     each.",
            prediction: Prediction {
                text: "A slice keeps the tensor cores busy for 1024 clocks, and four stages are three slices of warning: the way \
                       to the memory is hidden. A tile of 128 x 256 fetches 85 FLOP a byte, and 750 TFLOP/s would need 8.8 TB/s \
                       through the second-level cache, more than the 8.5 that it streams: that is the new limit [tensor cores \
                       are what is declared]. And there is the gap at the start and end of each tile, when nothing is multiplied \
                       (1 in 40). 80 to 95 % of cuBLAS [75 to 98 is what is declared].",
                limiter: Limiter::TensorCores,
                fraction: (0.75, 0.98),
                fraction_bf16: None,
                bank_conflicts_per_request: None,
                sectors_per_request: None,
                top_stalls: ["gmma", "long_scoreboard"],
                occupancy_limiter: OccupancyLimiter::SharedMemory,
            },
            outcome: "Held as declared, with the tensor cores busiest; it ends just above the 95 % of the text. At that speed \
                      the tile draws 8.7 TB/s through the second-level cache, so the 8.5 from which the text takes its limit was \
                      none. What warps wait for was named wrongly: a profile calls most of it `barrier`, not `gmma`. No barrier of \
                      the block stands in the loop, so probably the meeting of a warpgroup's four warps at each `wgmma` counts \
                      as one.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["HGMMA", "UTMALDG", "USETMAXREG"],
            deterministic: true,
        },
        Version {
            id: "clusters",
            title: "Clusters, tiles that stay, results by the copy engine",
            file: "gemm_fast/10_clusters.cu",
            source: include_str!("../../kernels/gemm_fast/10_clusters.cu"),
            dtypes: &[Dtype::Bf16],
            change: "Two blocks form a cluster over 256 x 256 outputs and share their columns: each fetches half of `b` for \
                     both. Blocks stay and take tile after tile, in groups of rows that fit the second-level cache, while \
                     the ring runs on across tiles; results go out through shared memory by the copy engine.",
            prediction: Prediction {
                text: "A pair fetches 64 KiB for 256 x 256 x 64 products instead of 96: 128 FLOP a byte. A tile's copies \
                       start while the tile before it is stored, so a tile costs its 128 slices of 1024 clocks and about \
                       1000 for the results, under 1 %. 1024 tiles of clusters over 66 pairs are 15.5 rounds: 97 % of them \
                       useful, as in the library. The tensor cores are then limited by power, the library's too: level with \
                       it, within a few per cent.",
                limiter: Limiter::TensorCores,
                fraction: (0.97, 1.08),
                fraction_bf16: None,
                bank_conflicts_per_request: None,
                sectors_per_request: None,
                top_stalls: ["gmma", "long_scoreboard"],
                occupancy_limiter: OccupancyLimiter::SharedMemory,
            },
            outcome: "Level with the library or a little ahead of it when their launches alternate. Alone for seconds, both \
                      run at the power limit and at the same speed: then it is the energy of a product that is compared. \
                      Order of tiles, cache hints, and shifting the two warpgroups against each other changed nothing that \
                      could be measured; narrower tiles, which fill the last round better, won two per cent at 8192 and \
                      lost ten at 4096. As before, a profile calls what warps wait for `barrier`, not `gmma` as was \
                      predicted; three warps of each block that have nothing to copy add to it, since they wait at its last \
                      barrier from the beginning.",
            in_flight: InFlight::Uncounted,
            spill_budget: 0,
            instructions: &["HGMMA", "UTMALDG", "UTMASTG", "USETMAXREG"],
            deterministic: true,
        },
    ],
    points: &[
        Point { dtype: Dtype::F32, shape: Shape::cube(4096), ceiling: Ceiling::Cublas, sweep: false },
        Point { dtype: Dtype::F32, shape: Shape::cube(8192), ceiling: Ceiling::Cublas, sweep: false },
        Point { dtype: Dtype::Bf16, shape: Shape::cube(8192), ceiling: Ceiling::Cublas, sweep: false },
    ],
    plan: Criterion {
        text: "more than 70 % of cuBLAS",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::cube(4096),
            ceiling: Ceiling::Cublas,
            at_least: 0.70,
            at_most: None,
        }],
    },
    bar: Criterion {
        text: "f32 at least 95 % of cuBLAS at 4096 and 8192, bf16 not below cuBLAS at 8192",
        tests: &[
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::cube(4096),
                ceiling: Ceiling::Cublas,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::cube(8192),
                ceiling: Ceiling::Cublas,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::Bf16,
                shape: Shape::cube(8192),
                ceiling: Ceiling::Cublas,
                at_least: 1.0,
                at_most: None,
            },
        ],
    },
};
