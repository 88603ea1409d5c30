//! Programs compute what the reference computes, for models with every optional feature and for any number of workers,
//! tile height, chunk and order of execution.

mod common;

use common::{Random, Recipe};
use plancher_model::RopeLayout;
use plancher_program::{Interpreter, Order, Phase, ProgramError, Reference, RowMajor, Target, lower, schedule};
use proptest::prelude::*;

fn recipes() -> impl Strategy<Value = Recipe> {
    (any::<[bool; 6]>(), 1usize..4, 1usize..4, 1usize..50, proptest::option::of(1usize..9)).prop_map(
        |([qk_norm, post_norms, biases, interleaved, tied, no_rope], kv_heads, group, feed_forward, window)| Recipe {
            qk_norm,
            post_norms,
            biases,
            tied,
            layout: if interleaved { RopeLayout::Interleaved } else { RopeLayout::Halves },
            no_rope_every: no_rope.then_some(2),
            heads: kv_heads * group,
            kv_heads,
            feed_forward,
            window,
            ..Recipe::everything()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn interpreted_programs_agree_with_the_reference(
        recipe in recipes(),
        seed in any::<u64>(),
        workers in 1usize..12,
        tile_rows in 1usize..20,
        kv_chunk in 1usize..6,
        split in 0usize..14,
    ) {
        let (config, weights) = (recipe.config(), recipe.weights(seed));
        let layout = RowMajor { tile_rows };
        let lowered = lower(&config, &weights).expect("the recipe is whole");
        let [decode, prefill] = [Phase::Decode, Phase::Prefill].map(|phase| {
            schedule(&lowered, Target { workers, tile_rows, kv_chunk, phase }, &layout).expect("a valid target")
        });
        let mut interpreter =
            Interpreter::new(&config, &weights, &layout, &decode, &prefill).expect("the scheduler makes safe programs");
        let mut reference = Reference::new(&config, &weights).expect("the recipe is whole");
        let mut random = Random(seed);
        let tokens: Vec<u32> = (0..14).map(|_| random.below(recipe.vocab) as u32).collect();
        let expected = reference.prefill(&tokens);
        let mut logits = interpreter.prefill(&tokens[..split], Order::Random(seed));
        for &token in &tokens[split..] {
            logits.extend(interpreter.decode(token, Order::Random(seed)));
        }
        let size = expected.iter().map(|x| x * x).sum::<f32>().sqrt();
        let difference = expected.iter().zip(&logits).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
        prop_assert!(logits.len() == expected.len() && difference < 1e-5 * size, "{difference} of {size}");
    }
}

#[test]
fn the_reference_continues_where_it_was_cut_back() {
    let recipe = Recipe::everything();
    let (config, weights) = (recipe.config(), recipe.weights(3));
    let mut reference = Reference::new(&config, &weights).expect("the recipe is whole");
    let first = reference.prefill(&[1, 2, 3, 4, 5, 6, 7]);
    reference.truncate(3);
    assert_eq!(reference.position(), 3);
    let again = reference.prefill(&[4, 5, 6, 7]);
    assert_eq!(again, first[3 * recipe.vocab..], "the same tokens give the same bits");
    reference.truncate(0);
    assert_eq!(reference.prefill_last(&[1, 2, 3]), first[2 * recipe.vocab..3 * recipe.vocab]);
}

#[test]
fn the_interpreter_refuses_programs_that_do_not_belong_together() {
    let recipe = Recipe::default();
    let (config, weights) = (recipe.config(), recipe.weights(3));
    let layout = RowMajor { tile_rows: 4 };
    let lowered = lower(&config, &weights).expect("the recipe is whole");
    let program = |workers, phase| {
        schedule(&lowered, Target { workers, tile_rows: 4, kv_chunk: 4, phase }, &layout).expect("a valid target")
    };
    let (decode, prefill, wider) = (program(2, Phase::Decode), program(2, Phase::Prefill), program(3, Phase::Prefill));
    let refuse = |decode, prefill| {
        let interpreter = Interpreter::new(&config, &weights, &layout, decode, prefill);
        interpreter.err().expect("refused")
    };
    assert!(matches!(refuse(&decode, &wider), ProgramError::StreamsDiffer));
    assert!(matches!(refuse(&prefill, &decode), ProgramError::Phase { .. }));
    let mut unsafe_program = decode.clone();
    unsafe_program.workers[0].instructions[3].waits.clear();
    assert!(matches!(refuse(&unsafe_program, &prefill), ProgramError::Unsafe(_)));
}
