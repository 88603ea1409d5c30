//! What must hold for any model, machine and pass: the floor never rises when something improves, bytes add up over
//! layers, one device is no tensor parallelism, no draft is no speculation.

use plancher_floor::{
    Acceptance, Attention, Class, Draft, Experts, Format, Hardware, LayerShape, ModelShape, Peaks, Regime, Setting,
    Shard, Weight, floor, speculation,
};
use proptest::prelude::*;

/// A small decoder, dense or with experts, with or without a window.
fn model() -> impl Strategy<Value = ModelShape> {
    let sizes = (1u64..=8, 0u64..=2, 1u64..=16, 1u64..=64);
    (sizes, 1usize..=6, proptest::option::of(1u64..2000), proptest::option::of((2u64..=16, 1u64..=2)), any::<bool>())
        .prop_map(|((kv_heads, grouping, width, features), n_layers, window, experts, tied)| {
            let (n_heads, head_dim) = (kv_heads << grouping, 8 * width);
            let (hidden, features) = (n_heads * head_dim, 16 * features);
            let matrix = |class, rows, columns, shard| Weight::matrix(class, rows, columns, Format::Bf16, shard);
            let mut weights = vec![
                matrix(Class::AttentionWeights, hidden, hidden, Shard::Heads(n_heads)),
                matrix(Class::AttentionWeights, 2 * kv_heads * head_dim, hidden, Shard::KvHeads(kv_heads)),
                matrix(Class::AttentionWeights, hidden, hidden, Shard::Heads(n_heads)),
                Weight::vector(hidden, Format::F32),
            ];
            let mlp = |class| matrix(class, 3 * features, hidden, Shard::Features(features));
            match experts {
                Some((total, active)) => {
                    weights.push(mlp(Class::RoutedExperts).of_experts(Experts { total, active }));
                    weights.push(matrix(Class::Router, total, hidden, Shard::Replicated));
                }
                None => weights.push(mlp(Class::Mlp)),
            }
            let attention = Attention::Heads { n_heads, n_kv_heads: kv_heads, head_dim, value_dim: head_dim, window };
            let mut outside = vec![matrix(Class::Head, 1000, hidden, Shard::Vocabulary(1000))];
            if !tied {
                outside.push(matrix(Class::Embedding, 1000, hidden, Shard::Vocabulary(1000)));
            }
            ModelShape {
                name: "any".to_owned(),
                hidden_size: hidden,
                vocab_size: 1000,
                context_length: None,
                layers: vec![LayerShape { attention, weights }; n_layers],
                outside,
                predictor: None,
                notes: Vec::new(),
            }
        })
}

fn machine() -> impl Strategy<Value = Hardware> {
    (1e9..1e13f64, 1e10..1e16f64, 1.0..4.0f64, 1.0..4.0f64).prop_map(|(bandwidth, bf16, fp8, fp4)| Hardware {
        peaks: Peaks {
            f32: Some(bf16 / 8.0),
            bf16: Some(bf16),
            fp8: Some(bf16 * fp8),
            int8: None,
            fp4: Some(bf16 * fp8 * fp4),
        },
        ..Hardware::from_bandwidth("any", bandwidth, "test").expect("plausible")
    })
}

fn regime() -> impl Strategy<Value = Regime> {
    prop_oneof![
        (1u64..300, 1u64..10_000).prop_map(|(batch, context)| Regime::decode(batch, context)),
        (1u64..8, 1u64..3000, any::<bool>()).prop_map(|(batch, prompt, all_logits)| Regime::Prefill {
            batch,
            prompt,
            all_logits
        }),
    ]
}

/// Formats from wide to narrow.
const NARROWING: [Format; 5] = [Format::F32, Format::Bf16, Format::Fp8, Format::Q4_K, Format::Mxfp4];

/// Not larger, but for the last bits of a sum of floats.
fn not_above(a: f64, b: f64) -> bool {
    a <= b * (1.0 + 1e-12)
}

proptest! {
    #[test]
    fn the_floor_never_rises_when_the_machine_improves(
        shape in model(), machine in machine(), regime in regime(), better in 1.0..10.0f64,
    ) {
        let seconds = |machine: &Hardware| floor(&shape, machine, regime, Setting::default()).unwrap().seconds();
        let wider = Hardware { bandwidth: machine.bandwidth * better, ..machine.clone() };
        let mut faster = machine.clone();
        faster.peaks.bf16 = faster.peaks.bf16.map(|peak| peak * better);
        prop_assert!(not_above(seconds(&wider), seconds(&machine)));
        prop_assert!(not_above(seconds(&faster), seconds(&machine)));
    }

    #[test]
    fn the_floor_never_rises_when_weights_or_kv_become_narrower(
        shape in model(), machine in machine(), regime in regime(),
    ) {
        let of = |weights, kv| {
            let shape = shape.clone().with_weights(Some(weights), None);
            floor(&shape, &machine, regime, Setting { kv, ..Setting::default() }).unwrap()
        };
        for pair in NARROWING.windows(2) {
            prop_assert!(not_above(of(pair[1], Format::Bf16).seconds(), of(pair[0], Format::Bf16).seconds()));
            prop_assert!(not_above(of(Format::Bf16, pair[1]).seconds(), of(Format::Bf16, pair[0]).seconds()));
            prop_assert!(of(pair[1], Format::Bf16).bytes() <= of(pair[0], Format::Bf16).bytes());
        }
    }

    #[test]
    fn bytes_and_flop_are_additive_over_layers(shape in model(), machine in machine(), regime in regime()) {
        let of = |shape: &ModelShape| floor(shape, &machine, regime, Setting::default()).unwrap();
        let one_layer_less = ModelShape { layers: shape.layers[1..].to_vec(), ..shape.clone() };
        let only_it = ModelShape { layers: shape.layers[..1].to_vec(), ..shape.clone() };
        let none = ModelShape { layers: Vec::new(), ..shape.clone() };
        prop_assert_eq!(of(&shape).bytes() + of(&none).bytes(), of(&one_layer_less).bytes() + of(&only_it).bytes());
        prop_assert_eq!(of(&shape).flops() + of(&none).flops(), of(&one_layer_less).flops() + of(&only_it).flops());
    }

    #[test]
    fn the_single_maximum_is_a_lower_bound(shape in model(), machine in machine(), regime in regime()) {
        let floor = floor(&shape, &machine, regime, Setting::default()).unwrap();
        prop_assert!(not_above(floor.overlapped_seconds(), floor.seconds()));
        prop_assert_eq!(floor.weight_bytes_read() + floor.kv_bytes(), floor.bytes());
    }

    #[test]
    fn one_device_is_no_tensor_parallelism_and_two_never_move_less_than_half(
        shape in model(), machine in machine(), regime in regime(),
    ) {
        let linked = Hardware {
            link: Some(plancher_floor::Link { bandwidth: 1e11, latency: 1e-6, source: "test".to_owned() }),
            ..machine
        };
        let of = |tensor_parallel| floor(&shape, &linked, regime, Setting { tensor_parallel, ..Setting::default() });
        let plain = floor(&shape, &linked, regime, Setting::default()).unwrap();
        prop_assert_eq!(&of(1).unwrap(), &plain);
        prop_assert!(plain.communication.is_empty());
        // Odd head counts cannot be divided: that is an error, not a number.
        let heads_divide = matches!(shape.layers[0].attention, Attention::Heads { n_heads, n_kv_heads, .. }
            if n_heads % 2 == 0 && (n_kv_heads == 1 || n_kv_heads % 2 == 0));
        match of(2) {
            Ok(two) => {
                prop_assert!(heads_divide);
                prop_assert!(2 * two.bytes() + 8 >= plain.bytes() && two.bytes() <= plain.bytes() + 8);
                prop_assert_eq!(two.communication.len(), 2);
            }
            Err(error) => prop_assert!(!heads_divide, "{}", error),
        }
    }

    #[test]
    fn no_draft_is_no_speculation_and_acceptance_only_helps(
        shape in model(), machine in machine(), batch in 1u64..64, context in 1u64..4000, a in 0.0..1.0f64, k in 1u64..8,
    ) {
        let of = |k, acceptance| {
            let acceptance = Acceptance::Constant(acceptance);
            speculation(&shape, &machine, Setting::default(), batch, context, &Draft::Medusa, k, &acceptance).unwrap()
        };
        let none = of(0, a);
        prop_assert!((none.tokens_per_pass - 1.0).abs() < 1e-12 && (none.speedup - 1.0).abs() < 1e-12);
        prop_assert!(not_above(of(k, a).speedup, of(k, 1.0).speedup));
        prop_assert!((of(k, 1.0).tokens_per_pass - (k + 1) as f64).abs() < 1e-9);
    }

    #[test]
    fn a_longer_context_or_larger_batch_never_costs_less(
        shape in model(), machine in machine(), batch in 1u64..100, context in 1u64..5000,
    ) {
        let seconds = |batch, context| {
            floor(&shape, &machine, Regime::decode(batch, context), Setting::default()).unwrap().seconds()
        };
        prop_assert!(not_above(seconds(batch, context), seconds(batch + 1, context)));
        prop_assert!(not_above(seconds(batch, context), seconds(batch, context + 1)));
    }
}
