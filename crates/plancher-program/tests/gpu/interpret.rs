//! The packed GPU program, run by the interpreter: it computes what transformers and the reference compute, and
//! the same bits whoever runs when.

use crate::common::golden::{Golden, PROMPTS, largest, models, open, relative_error, root};
use crate::common::gpu::{append, interpreter, plan, target};
use crate::common::{Random, Recipe};
use plancher_model::{Activation, Model, RopeLayout};
use plancher_program::Reference;
use plancher_program::gpu::{Element, Interpreter, LEAST_STAGES, STAGE_BYTES, Schedule, Target};
use proptest::prelude::*;

/// Multiprocessors: fewer than rows want, about as many, and more.
const DEVICES: [usize; 3] = [5, 16, 132];

/// The logits of a prompt, which must agree with those of transformers.
fn golden_logits(golden: &Golden, prompt: usize, interpreter: &mut Interpreter<'_>, limit: f64) -> Vec<f32> {
    interpreter.truncate(0);
    let logits = append(interpreter, &golden.tokens(&format!("prompt.{prompt}")), Schedule::RoundRobin);
    let error = relative_error(&logits, &golden.floats(&format!("logits.{prompt}")));
    assert!(error < limit, "prompt {prompt}: {error}");
    logits
}

/// The continuation of a prompt, all in one run, so that every copy of every slot is used again and again.
fn check_continuation(model: &Model, golden: &Golden, prompt: usize, interpreter: &mut Interpreter<'_>) {
    let mut tokens = golden.tokens(&format!("prompt.{prompt}"));
    let expected = golden.tokens(&format!("greedy.{prompt}"));
    interpreter.truncate(tokens.len() - 1);
    let last = tokens[tokens.len() - 1];
    let run = interpreter.greedy(last, expected.len(), &[], Schedule::RoundRobin, &mut |_| false);
    let chosen = run.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(chosen.len(), expected.len());
    // After another token than transformers', everything may differ.
    if let Some(step) = chosen.iter().zip(&expected).position(|(chosen, expected)| chosen != expected) {
        tokens.extend(&expected[..step]);
        let mut reference = Reference::new(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
        let exact = reference.prefill_last(&tokens);
        interpreter.truncate(tokens.len() - 1);
        let logits = append(interpreter, &tokens[tokens.len() - 1..], Schedule::RoundRobin);
        let difference = logits.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let gap = golden.floats(&format!("gap.{prompt}"))[step];
        assert!(gap < 2.0 * difference, "prompt {prompt}, step {step}: gap {gap}, difference {difference}");
    }
}

#[test]
fn golden_checkpoints_agree_with_transformers() {
    for name in models() {
        println!("{name}");
        let (model, golden) = (open(&root().join("tests/golden").join(&name)), Golden::read(&name));
        let long = PROMPTS - 1;
        let plans = DEVICES.map(|multiprocessors| plan(&model.config, target(multiprocessors, Element::F16)));
        let logits = plans.each_ref().map(|plan| {
            let mut interpreter = interpreter(&model.config, &model.weights, plan);
            golden_logits(&golden, long, &mut interpreter, 1e-2)
        });
        assert!(logits[0] == logits[1] && logits[0] == logits[2], "whoever has a row adds its columns in one order");

        let mut few = interpreter(&model.config, &model.weights, &plans[1]);
        for prompt in 0..PROMPTS {
            golden_logits(&golden, prompt, &mut few, 1e-2);
            check_continuation(&model, &golden, prompt, &mut few);
        }
        // 8 bits of significand instead of 11.
        let plan = plan(&model.config, target(16, Element::Bf16));
        golden_logits(&golden, long, &mut interpreter(&model.config, &model.weights, &plan), 5e-2);
    }
}

const SCHEDULES: [Schedule; 13] = [
    Schedule::RoundRobin,
    Schedule::Random(1),
    Schedule::Random(2),
    Schedule::Delays(1),
    Schedule::Delays(2),
    Schedule::Ahead,
    Schedule::Behind,
    Schedule::HoldWorker(0),
    Schedule::HoldWorker(3),
    Schedule::HoldConsumers,
    Schedule::HoldFinalizers,
    Schedule::HoldProducers,
    Schedule::HoldStores,
];

/// Tokens of one run and the bits of its last logits.
fn greedy_bits(interpreter: &mut Interpreter<'_>, schedule: Schedule) -> (Vec<u32>, Vec<u32>) {
    let run = interpreter.greedy(7, 8, &[], schedule, &mut |_| false);
    let tokens = run.unwrap_or_else(|e| panic!("{schedule:?}: {e}"));
    (tokens, interpreter.logits().iter().map(|logit| logit.to_bits()).collect())
}

#[test]
fn bits_are_the_same_whoever_runs_when() {
    for name in ["llama-gqa-tied", "gemma3", "mistral-window"] {
        let model = open(&root().join("tests/golden").join(name));
        for multiprocessors in DEVICES {
            // The smallest ring, so that everybody waits for everybody.
            let least = plan(&model.config, target(multiprocessors, Element::F16)).ring.fixed_bytes + 3 * STAGE_BYTES;
            let target = Target { shared_memory: least, ..target(multiprocessors, Element::F16) };
            let plan = plan(&model.config, target);
            assert_eq!(plan.ring.stages, LEAST_STAGES);
            let mut interpreter = interpreter(&model.config, &model.weights, &plan);
            append(&mut interpreter, &[3; 28], Schedule::RoundRobin);
            let expected = greedy_bits(&mut interpreter, SCHEDULES[0]);
            for schedule in &SCHEDULES[1..] {
                interpreter.truncate(28);
                let found = greedy_bits(&mut interpreter, *schedule);
                assert!(found == expected, "{name}, {} workers, {schedule:?}", plan.workers.len());
            }
        }
    }
}

#[test]
fn a_worker_without_rows_of_most_products_keeps_up() {
    // As many workers as pairs of gate and up in eights: 132, of which most have no row of anything else.
    for recipe in [
        Recipe { feed_forward: 8 * 132, layers: 3, ..Recipe::default() },
        Recipe { feed_forward: 8 * 132, hidden: 40, vocab: 2000, ..Recipe::everything() },
    ] {
        let (config, weights) = (recipe.config(), recipe.weights(5));
        let plan = plan(&config, target(132, Element::F16));
        assert_eq!(plan.workers.len(), 132);
        let mut interpreter = interpreter(&config, &weights, &plan);
        let mut reference = Reference::new(&config, &weights).unwrap_or_else(|e| panic!("{e}"));
        for token in [1, 7, 3, 30, 2] {
            let logits = append(&mut interpreter, &[token], Schedule::Random(u64::from(token)));
            let error = relative_error(&logits, &reference.decode(token));
            assert!(error < 1e-2, "{error}");
        }
        let expected = greedy_bits(&mut interpreter, Schedule::Ahead);
        for schedule in [Schedule::Behind, Schedule::Delays(3), Schedule::HoldWorker(131), Schedule::HoldStores] {
            interpreter.truncate(5);
            assert!(greedy_bits(&mut interpreter, schedule) == expected, "{schedule:?}");
        }
    }
}

/// Over the borders of pages and splits, one launch after the other, and launches that cross them.
#[test]
fn long_contexts_agree_with_the_reference() {
    let recipe = Recipe { layers: 2, heads: 6, kv_heads: 2, head_dim: 16, rotary_dim: 16, ..Recipe::default() };
    for (recipe, multiprocessors, splits, positions) in [
        (recipe.clone(), 3, 1, 280),
        (recipe.clone(), 5, 2, 540),
        (Recipe { window: Some(300), heads: 18, qk_norm: true, ..recipe.clone() }, 22, 5, 780),
        (Recipe { feed_forward: 320, ..recipe }, 40, 16, 540),
    ] {
        let (config, weights) = (recipe.config(), recipe.weights(9));
        let plan = plan(&config, target(multiprocessors, Element::F16));
        assert_eq!(plan.attention.splits, splits, "{} workers", plan.workers.len());
        let mut interpreter = interpreter(&config, &weights, &plan);
        let mut reference = Reference::new(&config, &weights).unwrap_or_else(|e| panic!("{e}"));
        let mut random = Random(2);
        let mut token = 1;
        while interpreter.position() < positions {
            let expected = reference.decode(token);
            let logits = append(&mut interpreter, &[token], Schedule::RoundRobin);
            let error = relative_error(&logits, &expected);
            assert!(error < 1e-2, "position {}: {error}", interpreter.position());
            token = random.below(recipe.vocab) as u32;
        }
        // One run over each border gives what single steps give.
        for border in [768, 512, 256, 64, 32].into_iter().filter(|border| border + 7 < positions) {
            interpreter.truncate(border - 5);
            let run = interpreter.greedy(token, 12, &[], Schedule::Delays(border as u64), &mut |_| false);
            let tokens = run.unwrap_or_else(|e| panic!("{e}"));
            let logits = interpreter.logits().to_vec();
            interpreter.truncate(border - 5);
            let mut next = token;
            for &chosen in &tokens {
                let step = append(&mut interpreter, &[next], Schedule::RoundRobin);
                assert_eq!(largest(&step), chosen, "after {} positions", interpreter.position());
                next = chosen;
            }
            assert!(interpreter.logits() == logits, "at {border}");
        }
    }
}

#[test]
fn a_run_ends_with_an_end_token_or_when_the_host_asks() {
    let model = open(&root().join("tests/golden/llama-gqa-tied"));
    let plan = plan(&model.config, target(16, Element::F16));
    let mut interpreter = interpreter(&model.config, &model.weights, &plan);
    let (all, _) = greedy_bits(&mut interpreter, Schedule::RoundRobin);
    assert_eq!(interpreter.position(), 8);
    let place = all.iter().position(|&token| token == all[4]).expect("it is one of them");
    let mut run = |end_tokens: &[u32], stop: &mut dyn FnMut(&[u32]) -> bool| {
        interpreter.truncate(0);
        let tokens = interpreter.greedy(7, 8, end_tokens, Schedule::Random(4), stop).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(interpreter.position(), tokens.len(), "the last one is not appended");
        tokens
    };
    assert_eq!(run(&[all[4], 511], &mut |_| false), all[..=place]);
    // Asked once the host has three tokens: the step under way is the last.
    assert_eq!(run(&[], &mut |tokens| tokens.len() == 3), all[..4]);
    assert_eq!(run(&[], &mut |_| true), all[..1]);
    // It goes on from there as if nothing had been.
    assert_eq!(run(&[], &mut |_| false), all);
}

#[test]
fn logits_without_a_finite_one_end_the_run() {
    let recipe = Recipe { norm_offset: f32::NAN, ..Recipe::default() };
    let (config, weights) = (recipe.config(), recipe.weights(1));
    let plan = plan(&config, target(5, Element::F16));
    let mut interpreter = interpreter(&config, &weights, &plan);
    let tokens = interpreter.greedy(1, 5, &[], Schedule::RoundRobin, &mut |_| false);
    assert_eq!(tokens, Ok(vec![u32::MAX]), "no NaN is taken for a word that is not there");
}

fn recipes() -> impl Strategy<Value = (Recipe, Target)> {
    let switches = any::<[bool; 7]>();
    let heads = (1usize..4, 1usize..13, 1usize..11);
    let sizes = (1usize..150, 1usize..150, 20usize..70, 1usize..3, 1usize..140);
    let window = proptest::option::of(1usize..40);
    (switches, heads, sizes, window).prop_map(|(switches, (kv_heads, group, eighths), sizes, window)| {
        let [qk_norm, post_norms, biases, interleaved, tied, no_rope, f16] = switches;
        let (hidden, feed_forward, vocab, layers, multiprocessors) = sizes;
        let recipe = Recipe {
            layers,
            hidden: 8 * hidden,
            heads: kv_heads * group,
            kv_heads,
            head_dim: 8 * eighths,
            rotary_dim: 8 * eighths - 2,
            feed_forward: 8 * feed_forward,
            vocab,
            window,
            qk_norm,
            post_norms,
            biases,
            tied,
            layout: if interleaved { RopeLayout::Interleaved } else { RopeLayout::Halves },
            no_rope_every: no_rope.then_some(2),
            activation: if interleaved { Activation::Silu } else { Activation::GeluTanh },
            ..Recipe::default()
        };
        (recipe, target(multiprocessors, if f16 { Element::F16 } else { Element::Bf16 }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_of_any_shape_agree_with_the_reference((recipe, target) in recipes(), seed in any::<u64>()) {
        let (config, weights) = (recipe.config(), recipe.weights(seed));
        let plan = plan(&config, target);
        let mut interpreter = interpreter(&config, &weights, &plan);
        let mut reference = Reference::new(&config, &weights).expect("the recipe is whole");
        let mut random = Random(seed);
        let tokens: Vec<u32> = (0..4).map(|_| random.below(recipe.vocab) as u32).collect();
        let logits = append(&mut interpreter, &tokens, Schedule::Random(seed));
        let error = relative_error(&logits, &reference.prefill(&tokens));
        prop_assert!(error < if target.element == Element::F16 { 1e-2 } else { 5e-2 }, "{}", error);
        // The same bits in one run, whoever is ahead.
        let run = interpreter.greedy(tokens[0], 5, &[], Schedule::Delays(seed), &mut |_| false).expect("it runs");
        let bits = interpreter.logits().to_vec();
        interpreter.truncate(4);
        prop_assert_eq!(interpreter.greedy(tokens[0], 5, &[], Schedule::Behind, &mut |_| false), Ok(run));
        prop_assert_eq!(interpreter.logits(), bits);
    }
}

#[test]
fn a_program_for_fewer_positions_is_not_run_beyond_them() {
    let recipe = Recipe::default();
    let (config, weights) = (recipe.config(), recipe.weights(1));
    let plan = plan(&config, Target { positions: 4, ..target(2, Element::F16) });
    let mut interpreter = interpreter(&config, &weights, &plan);
    append(&mut interpreter, &[1, 2], Schedule::RoundRobin);
    let fault = interpreter.greedy(1, 3, &[], Schedule::RoundRobin, &mut |_| false).expect_err("too many");
    assert_eq!(fault.to_string(), "`positions` is `5`: the program is for fewer positions");
    append(&mut interpreter, &[1, 2], Schedule::RoundRobin);
}
