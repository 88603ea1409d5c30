//! The golden checkpoints: the reference executor agrees with Hugging Face transformers, the interpreter of programs
//! agrees with the reference, whatever the number of workers and the order in which they run.

mod common;

use std::path::PathBuf;

use common::golden::{Golden, PROMPTS, largest, models, open, relative_error, root};
use plancher_model::Model;
use plancher_program::{Interpreter, Order, Phase, Program, Reference, RowMajor, Target, lower, schedule, summary};

const LAYOUT: RowMajor = RowMajor { tile_rows: 8 };

fn programs(model: &Model, workers: usize) -> [Program; 2] {
    let lowered = lower(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
    [Phase::Decode, Phase::Prefill].map(|phase| {
        let target = Target { workers, tile_rows: LAYOUT.tile_rows, kv_chunk: 4, phase };
        schedule(&lowered, target, &LAYOUT).unwrap_or_else(|e| panic!("{e}"))
    })
}

#[test]
fn reference_logits_agree_with_transformers() {
    for name in models() {
        let (model, golden) = (open(&root().join("tests/golden").join(&name)), Golden::read(&name));
        for prompt in 0..PROMPTS {
            let tokens = golden.tokens(&format!("prompt.{prompt}"));
            let mut reference = Reference::new(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
            let logits = reference.prefill(&tokens);
            let error = relative_error(&logits, &golden.floats(&format!("logits.{prompt}")));
            println!("{name} prompt {prompt}: {error:.2e}");
            assert!(error < 1e-5, "{name}, prompt {prompt}: {error}");
        }
    }
}

#[test]
fn greedy_continuations_agree_with_transformers() {
    for name in models() {
        let (model, golden) = (open(&root().join("tests/golden").join(&name)), Golden::read(&name));
        for prompt in 0..PROMPTS {
            let mut reference = Reference::new(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
            let mut logits = reference.prefill_last(&golden.tokens(&format!("prompt.{prompt}")));
            let gaps = golden.floats(&format!("gap.{prompt}"));
            for (step, (token, gap)) in golden.tokens(&format!("greedy.{prompt}")).into_iter().zip(gaps).enumerate() {
                assert!(largest(&logits) == token || gap < 1e-4, "{name}, prompt {prompt}, step {step}, gap {gap}");
                logits = reference.decode(token);
            }
        }
    }
}

#[test]
fn interpreted_programs_agree_with_the_reference() {
    for name in models() {
        let (model, golden) = (open(&root().join("tests/golden").join(&name)), Golden::read(&name));
        let prompt = golden.tokens("prompt.2");
        let continuation = &golden.tokens("greedy.2")[..6];
        let mut reference = Reference::new(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
        let expected = reference.prefill(&prompt);
        let decoded: Vec<_> = continuation.iter().map(|&token| reference.decode(token)).collect();
        for workers in [1, 2, 3, 5] {
            let [decode, prefill] = programs(&model, workers);
            for order in [Order::RoundRobin, Order::Random(workers as u64), Order::Random(77)] {
                let mut interpreter = Interpreter::new(&model.config, &model.weights, &LAYOUT, &decode, &prefill)
                    .unwrap_or_else(|e| panic!("{e}"));
                // In two chunks of which the first ends inside a KV chunk.
                let (first, second) = prompt.split_at(18);
                let mut logits = interpreter.prefill(first, order);
                logits.extend(interpreter.prefill(second, order));
                let error = relative_error(&logits, &expected);
                assert!(error < 1e-5, "{name}, {workers} workers, {order:?}: {error}");
                for (&token, expected) in continuation.iter().zip(&decoded) {
                    let error = relative_error(&interpreter.decode(token, order), expected);
                    assert!(error < 1e-5, "{name}, {workers} workers, {order:?}, decode: {error}");
                }
            }
        }
    }
}

#[test]
fn summaries_say_how_large_and_how_balanced_a_program_is() {
    let model = open(&root().join("tests/golden/gemma3"));
    let [decode, prefill] = programs(&model, 3);
    insta::assert_snapshot!("decode", summary(&decode).to_string());
    insta::assert_snapshot!("prefill", summary(&prefill).to_string());
    insta::assert_json_snapshot!("json", summary(&decode));
}

/// The greedy text of llama.cpp on a trained model, token for token; its files are not in the repository.
#[test]
fn stories_continue_as_in_llama_cpp() {
    let shared = std::env::var_os("PLANCHER_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let directory = shared.join("models/stories260k");
    if !directory.exists() {
        println!("skipped: {} is not there", directory.display());
        return;
    }
    let text = std::fs::read_to_string(directory.join("expected.json")).expect("readable");
    let expected: serde_json::Value = serde_json::from_str(&text).expect("well-formed");
    let model = open(&directory.join("hf"));
    // The prompts of `expected.json` in the model's own tokens.
    let prompts: [&[u32]; 2] = [
        &[1, 291, 280, 412, 427, 275, 412, 421, 373, 410, 453, 420, 303, 331, 410, 293],
        &[
            1, 403, 407, 261, 378, 432, 322, 261, 262, 423, 388, 410, 435, 290, 421, 412, 428, 411, 268, 422, 265, 262,
            411, 412, 432,
        ],
    ];
    for (prompt, case) in prompts.iter().zip(expected["greedy"]["f32"].as_array().expect("two cases")) {
        let tokens: Vec<u32> = serde_json::from_value(case["tokens"].clone()).expect("tokens");
        let mut reference = Reference::new(&model.config, &model.weights).unwrap_or_else(|e| panic!("{e}"));
        let mut logits = reference.prefill_last(prompt);
        let greedy: Vec<u32> = (0..tokens.len())
            .map(|_| {
                let token = largest(&logits);
                logits = reference.decode(token);
                token
            })
            .collect();
        assert_eq!(greedy, tokens, "after {}", case["prompt"]);
    }
}
