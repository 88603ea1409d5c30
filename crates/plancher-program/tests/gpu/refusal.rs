//! Models and devices for which there is no plan, and that nothing else comes of them.

use plancher_model::{Activation, FeedForward, ModelConfig, RopeLayout};
use plancher_program::gpu::{H200_STREAM, LEAST_STAGES, Plan, PlanError, Summary, Target};
use proptest::prelude::*;

use crate::common::Recipe;
use crate::{recipe, target};

#[test]
fn what_the_kernel_cannot_do_is_refused_in_one_line() {
    let refuse = |config: &ModelConfig, target: Target| Plan::new(config, target).expect_err("refused").to_string();
    let good = recipe(2, 2, 2, 8, 64, 64);
    let with = |change: &dyn Fn(&mut ModelConfig)| {
        let mut config = good.config();
        change(&mut config);
        refuse(&config, target(8))
    };
    let messages = [
        with(&|config| config.layers[1].n_heads = 2),
        with(&|config| config.layers[1].qk_norm = true),
        with(&|config| {
            config.layers[1].feed_forward = FeedForward::Dense { size: 64, activation: Activation::GeluTanh };
        }),
        with(&|config| {
            config.ropes.push(config.ropes[0].clone());
            config.ropes[1].layout = RopeLayout::Interleaved;
            config.layers[1].rope = Some(1);
        }),
        with(&|config| config.layers[0].rope = Some(7)),
        with(&|config| config.layers.clear()),
        with(&|config| config.hidden_size = 60),
        with(&|config| config.hidden_size = usize::MAX / 8 * 8),
        with(&|config| config.vocab_size = 0),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 264)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 12)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.n_heads = usize::MAX)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.n_kv_heads = 3)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 136)),
        with(&|config| config.layers.iter_mut().for_each(|layer| (layer.n_heads, layer.n_kv_heads) = (18, 2))),
        with(&|config| config.ropes[0].inverse_frequencies.truncate(3)),
        {
            let mut config = recipe(3, 2, 2, 8, 64, 64).config();
            config.ropes = vec![config.ropes[0].clone(); 3];
            config.layers.iter_mut().enumerate().for_each(|(index, layer)| layer.rope = Some(index));
            refuse(&config, target(8))
        },
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.post_norms = true)),
        refuse(&good.config(), Target { shared_memory: 48 << 10, ..target(8) }),
        refuse(&Recipe { layers: 4000, ..good.clone() }.config(), Target { shared_memory: 100 << 10, ..target(8) }),
        refuse(&good.config(), Target { multiprocessors: 0, ..target(8) }),
        refuse(&good.config(), Target { multiprocessors: usize::MAX, ..target(8) }),
        refuse(&good.config(), Target { positions: 0, ..target(8) }),
    ];
    insta::assert_snapshot!(messages.join("\n"));
    // One stage less than the smallest ring is too little; what the message asks for is enough.
    let error = Plan::new(&good.config(), Target { shared_memory: 48 << 10, ..target(8) }).expect_err("too small");
    let PlanError::SharedMemory { needed, .. } = error else { panic!("{error}") };
    let plan = Plan::new(&good.config(), Target { shared_memory: needed, ..target(8) }).expect("enough");
    assert_eq!(plan.ring.stages, LEAST_STAGES);
    assert!(Plan::new(&good.config(), Target { shared_memory: needed - 1, ..target(8) }).is_err());
}

#[test]
fn more_layers_than_can_be_checked_are_refused_before_their_lists_are_made() {
    let target = Target { multiprocessors: 512, shared_memory: 512 << 10, ..target(1) };
    let config = recipe(3000, 64, 1, 64, 2048, 8192).config();
    let error = Plan::new(&config, target).expect_err("half a million instructions and more");
    assert!(matches!(error, PlanError::Size { field: "num_hidden_layers", value: 3000, .. }), "{error}");
}

/// Mostly multiples of `unit`, else what files and callers could claim.
fn size(unit: usize, most: usize) -> impl Strategy<Value = usize> {
    let edges = prop_oneof![Just(0), Just(usize::MAX), (0u32..64).prop_map(|bits| 1 << bits), 0..unit * most];
    prop_oneof![12 => (1..=most).prop_map(move |n| n * unit), 1 => edges]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sizes_make_a_plan_that_fits_or_a_line(
        layers in 0usize..5,
        hidden in size(8, 300), kv_heads in size(1, 40), group in size(1, 12), head_dim in size(8, 20),
        feed_forward in size(8, 300), vocab in size(1, 3000), multiprocessors in size(1, 200),
        shared_memory in 60_000usize..300_000, positions in size(1, 100_000),
    ) {
        let heads = kv_heads.saturating_mul(group);
        let mut config = recipe(layers, 1, 1, 8, 8, 8).config();
        (config.hidden_size, config.vocab_size) = (hidden, vocab);
        for layer in &mut config.layers {
            (layer.n_heads, layer.n_kv_heads, layer.head_dim, layer.rope) = (heads, kv_heads, head_dim, None);
            layer.feed_forward = FeedForward::Dense { size: feed_forward, activation: Activation::Silu };
        }
        let target = Target { multiprocessors, shared_memory, positions, ..target(1) };
        match Plan::unrestricted(&config, target) {
            Ok(plan) => {
                prop_assert!(plan.ring.shared_bytes() <= shared_memory && plan.ring.stages >= LEAST_STAGES);
                let summary = Summary::new(&plan, H200_STREAM);
                prop_assert!(summary.stream_bytes >= summary.matrix_bytes);
                prop_assert!(summary.estimate.token_us.idle > 0.0);
            }
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}
