//! What a schedule promises whatever the model and the number of workers: balanced streams that cover every matrix
//! once, the same for both phases, and the weights in them.

mod common;

use std::collections::HashMap;

use common::Recipe;
use plancher_program::{
    Lowered, Operation, PackProgress, Phase, Program, ProgramError, RowMajor, Target, TileLayout, lower, pack_worker,
    schedule,
};
use proptest::prelude::*;

const TILE_ROWS: usize = 4;

fn target(workers: usize, phase: Phase) -> Target {
    Target { workers, tile_rows: TILE_ROWS, kv_chunk: 3, phase }
}

fn programs(lowered: &Lowered, workers: usize) -> [Program; 2] {
    [Phase::Decode, Phase::Prefill].map(|phase| {
        schedule(lowered, target(workers, phase), &RowMajor { tile_rows: TILE_ROWS }).expect("a valid target")
    })
}

/// What balancing may be off by, however many layers there are: two of the largest units of sharing, which are pairs
/// of tiles for gate and up.
fn tolerance(program: &Program) -> usize {
    let segments = program.workers.iter().flat_map(|worker| &worker.segments);
    4 * segments.map(|segment| segment.bytes / segment.tiles.len()).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_balanced_and_the_same_in_both_phases(
        workers in 1usize..=256,
        layers in 0usize..6,
        heads in 1usize..4,
        group in 1usize..4,
        feed_forward in 1usize..200,
        hidden in 1usize..70,
        vocab in 1usize..300,
    ) {
        let recipe = Recipe {
            layers, hidden, heads: heads * group, kv_heads: heads, feed_forward, vocab, contents: false,
            ..Recipe::default()
        };
        let lowered = lower(&recipe.config(), &recipe.weights(0)).expect("the recipe is whole");
        let [decode, prefill] = programs(&lowered, workers);
        let total: usize = decode.workers.iter().map(|worker| worker.stream_bytes).sum();
        for (worker, (d, p)) in decode.workers.iter().zip(&prefill.workers).enumerate() {
            prop_assert_eq!(&d.segments, &p.segments);
            prop_assert!(
                (d.stream_bytes as f64 - total as f64 / workers as f64).abs() <= tolerance(&decode) as f64,
                "worker {} has {} of {} bytes", worker, d.stream_bytes, total
            );
        }
    }
}

#[test]
fn rounding_to_tiles_does_not_add_up_on_one_worker() {
    // 5 tiles for 2 workers in every product: one of them gets 3, and it must not always be the same.
    let recipe = Recipe {
        layers: 40,
        hidden: 20,
        heads: 1,
        kv_heads: 1,
        head_dim: 20,
        feed_forward: 20,
        vocab: 20,
        rotary_dim: 20,
        contents: false,
        ..Recipe::default()
    };
    let lowered = lower(&recipe.config(), &recipe.weights(0)).expect("the recipe is whole");
    let [program, _] = programs(&lowered, 2);
    let [a, b] = [0, 1].map(|worker| program.workers[worker].stream_bytes);
    assert!(a.abs_diff(b) <= tolerance(&program), "{a} and {b} bytes");
    for instruction in &program.workers[0].instructions {
        if let Operation::Down { segments, .. } = &instruction.operation {
            let tiles: usize = program.workers[0].segments[segments.clone()].iter().map(|s| s.tiles.len()).sum();
            assert!((2..=3).contains(&tiles), "{tiles} of 5 tiles in one product");
        }
    }
}

#[test]
fn one_worker_waits_for_nobody() {
    let recipe = Recipe { contents: false, ..Recipe::default() };
    let lowered = lower(&recipe.config(), &recipe.weights(0)).expect("the recipe is whole");
    for program in programs(&lowered, 1) {
        assert!(program.counters.is_empty());
        assert!(program.workers[0].instructions.iter().all(|i| i.waits.is_empty() && i.signals.is_empty()));
    }
}

#[test]
fn decode_has_five_hops_a_layer_and_prefill_eight() {
    let recipe = Recipe { layers: 7, contents: false, ..Recipe::default() };
    let lowered = lower(&recipe.config(), &recipe.weights(0)).expect("the recipe is whole");
    let [decode, prefill] = programs(&lowered, 3);
    assert_eq!(decode.counters.len(), 5 * 7);
    assert_eq!(prefill.counters.len(), 8 * 7 + 1, "and one before the head, whose norm is shared");
}

#[test]
fn packed_streams_hold_every_row_once() {
    let recipe = Recipe::everything();
    let weights = recipe.weights(7);
    let lowered = lower(&recipe.config(), &weights).expect("the recipe is whole");
    for workers in [1, 2, 3, 7, 64] {
        let layout = RowMajor { tile_rows: TILE_ROWS };
        let [program, _] = programs(&lowered, workers);
        let progress = PackProgress::new(&program);
        let mut streams: Vec<_> = program.workers.iter().map(|worker| vec![0xff; worker.stream_bytes]).collect();
        std::thread::scope(|scope| {
            for (worker, out) in streams.iter_mut().enumerate() {
                let (program, weights, progress) = (&program, &weights, &progress);
                scope.spawn(move || pack_worker(program, worker, weights, &layout, out, progress).expect("packs"));
            }
        });
        assert_eq!(progress.packed_bytes(), streams.iter().map(Vec::len).sum::<usize>());

        let mut seen = HashMap::new();
        for (worker, stream) in program.workers.iter().zip(&streams) {
            for segment in &worker.segments {
                let view = weights.get(segment.tensor).expect("stored");
                let tile_bytes = layout.tile_bytes(segment.dtype, segment.columns).expect("fits");
                for row in segment.output_rows(TILE_ROWS) {
                    let (tile, within) = (row / TILE_ROWS - segment.tiles.start, row % TILE_ROWS);
                    let at = segment.offset + tile * tile_bytes;
                    let (mut packed, mut stored) = (vec![0.0; segment.columns], vec![0.0; segment.columns]);
                    layout.unpack_row(segment.dtype, &stream[at..at + tile_bytes], within, &mut packed);
                    view.dequantize_row(row, &mut stored);
                    assert_eq!(packed, stored, "row {row} of {}", segment.tensor);
                    *seen.entry((segment.tensor, row)).or_insert(0) += 1;
                }
            }
        }
        let rows: usize = program
            .workers
            .iter()
            .flat_map(|w| &w.segments)
            .map(|s| (s.tensor, s.rows))
            .collect::<HashMap<_, _>>()
            .values()
            .sum();
        assert_eq!(seen.len(), rows);
        assert!(seen.values().all(|&n| n == 1));
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let recipe = Recipe { contents: false, ..Recipe::default() };
    let weights = recipe.weights(0);
    let lowered = lower(&recipe.config(), &weights).expect("the recipe is whole");
    let layout = RowMajor { tile_rows: TILE_ROWS };
    let refuse = |target| schedule(&lowered, target, &layout).expect_err("out of range").to_string();
    let good = target(2, Phase::Decode);
    assert_eq!(refuse(Target { workers: 0, ..good }), "target field `workers` is `0`: must be between 1 and 256");
    assert_eq!(refuse(Target { workers: 257, ..good }), "target field `workers` is `257`: must be between 1 and 256");
    assert_eq!(refuse(Target { kv_chunk: 0, ..good }), "target field `kv_chunk` is `0`: must not be zero");
    assert!(refuse(Target { tile_rows: 5, ..good }).contains("`tile_rows` is `5`"));

    let mut config = recipe.config();
    config.layers[1].n_kv_heads = 3;
    let error = lower(&config, &weights).expect_err("3 does not divide 4");
    assert_eq!(error.to_string(), "configuration field `layer 1 n_kv_heads` is `3`: must divide n_heads");
    config.layers[1].n_kv_heads = 1;
    let error = lower(&config, &weights).expect_err("the keys are stored for 2 heads");
    assert_eq!(error.to_string(), "tensor `layer 1 Key` has shape (16, 32), expected (8, 32)");
    config.layers[1].n_kv_heads = 2;
    config.layers[0].qk_norm = true;
    let error = lower(&config, &weights).expect_err("there is no query norm");
    assert!(matches!(error, ProgramError::MissingTensor { .. }));
    config.layers[0].qk_norm = false;
    config.layers[0].head_dim = usize::MAX / 2;
    assert!(lower(&config, &weights).is_err());
}
