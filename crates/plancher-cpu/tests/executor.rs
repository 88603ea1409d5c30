//! What a caller relies on: the same bits for the same calls, progress with more workers than cores, agreement with
//! the interpreter, and the continuation of a real model.

mod common;

use std::sync::Arc;

use common::{argmax, executor, golden, options, prefill_all, relative_error, shared};
use plancher_cpu::kernels::{Isa, Kernels, TILE_ROWS};
use plancher_cpu::{CpuError, Executor, LogitsOf, Options};
use plancher_model::testing::convert_to_gguf;
use plancher_model::{DType, Model};
use plancher_program::{Interpreter, Phase, Target, lower, schedule};

const TOKENS: [u32; 40] = {
    let mut tokens = [0; 40];
    let mut i = 0;
    while i < 40 {
        tokens[i] = (i as u32 * 97 + 13) % 512;
        i += 1;
    }
    tokens
};

/// Prefills 20 tokens and decodes 20; all the logits.
fn session(executor: &mut Executor) -> Vec<f32> {
    let mut all = prefill_all(executor, &TOKENS[..20]);
    for &token in &TOKENS[20..] {
        all.extend_from_slice(executor.decode(token).unwrap());
    }
    all
}

#[test]
fn the_same_calls_give_the_same_bits() {
    for threads in [1, 2, 3] {
        let mut first = executor(&golden("llama-gqa-tied"), &options(threads));
        let logits = session(&mut first);
        first.truncate(0);
        // Something else in between: what it leaves in the cache must not matter.
        first.prefill(&TOKENS[7..33], LogitsOf::Last, &mut |_| true).unwrap();
        first.truncate(0);
        assert!(logits == session(&mut first), "after truncation, {threads} workers");
        let mut second = executor(&golden("llama-gqa-tied"), &options(threads));
        assert!(logits == session(&mut second), "in a new executor, {threads} workers");
    }
}

#[test]
fn truncation_keeps_what_came_before() {
    let mut executor = executor(&golden("mistral-window"), &options(2));
    for &token in &TOKENS[..30] {
        executor.decode(token).unwrap();
    }
    let expected = executor.decode(TOKENS[30]).unwrap().to_vec();
    for &token in &TOKENS[..5] {
        executor.decode(token).unwrap();
    }
    executor.truncate(30);
    assert_eq!(executor.position(), 30);
    assert!(expected == executor.decode(TOKENS[30]).unwrap());
}

#[test]
fn five_workers_make_progress_on_any_machine() {
    let mut five = executor(&golden("qwen2-bias"), &options(5));
    let mut one = executor(&golden("qwen2-bias"), &options(1));
    assert!(relative_error(&session(&mut five), &session(&mut one)) < 1e-3);
}

/// 160 feed-forward rows are ten tiles: one worker hands its rows on in the form that the next product reads, two and
/// more have borders inside a block of 32 columns and must not.
#[test]
fn quantised_prompts_agree_with_decoding_however_inputs_are_prepared() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    for name in ["qwen2-bias", "gemma3"] {
        std::fs::write(&path, convert_to_gguf(&golden(name), DType::Q8_0).finish()).unwrap();
        for kernels in Isa::ALL.into_iter().filter_map(|isa| Kernels::with_isa(isa).ok()) {
            for threads in [1, 2, 3] {
                let options = Options { kernels: Some(kernels), prefill_chunk: 15, ..options(threads) };
                let mut executor = executor(&path, &options);
                let prefilled = prefill_all(&mut executor, &TOKENS);
                executor.truncate(0);
                let decoded: Vec<f32> =
                    TOKENS.iter().flat_map(|&token| executor.decode(token).unwrap().to_vec()).collect();
                let error = relative_error(&prefilled, &decoded);
                assert!(error < 1e-2, "{name}, {}, {threads} workers: {error:.2e}", kernels.isa());
            }
        }
    }
}

#[test]
fn prefill_stops_when_told_to_and_keeps_what_was_done() {
    let options = Options { prefill_chunk: 8, ..options(2) };
    let mut stopped = executor(&golden("gemma3"), &options);
    let mut done = Vec::new();
    let logits = stopped
        .prefill(&TOKENS, LogitsOf::Last, &mut |tokens| {
            done.push(tokens);
            tokens < 16
        })
        .unwrap()
        .to_vec();
    assert_eq!(done, [8, 16]);
    assert_eq!(stopped.position(), 16);
    let mut whole = executor(&golden("gemma3"), &options);
    assert!(logits == whole.prefill(&TOKENS[..16], LogitsOf::Last, &mut |_| true).unwrap());
}

#[test]
fn options_out_of_range_are_named() {
    let model = Arc::new(Model::open(&golden("gemma3")).unwrap());
    for (option, options) in [
        ("threads", Options { threads: 0, ..Options::default() }),
        ("context", Options { context: 0, ..Options::default() }),
        ("prefill_chunk", Options { prefill_chunk: 0, ..Options::default() }),
    ] {
        let error = Executor::new(&model, &options, &|_, _| ()).err().unwrap();
        assert!(matches!(error, CpuError::Option { .. }) && error.to_string().contains(option), "{error}");
    }
    let options = Options { threads: 100_000, ..Options::default() };
    assert!(Executor::new(&model, &options, &|_, _| ()).is_err());
}

#[test]
fn a_trace_of_a_prompt_has_every_instruction_too() {
    let mut executor = executor(&golden("llama-gqa-tied"), &options(2));
    let plain = executor.prefill(&TOKENS, LogitsOf::Last, &mut |_| true).unwrap().to_vec();
    executor.truncate(0);
    let bytes = executor.weight_bytes();
    let (logits, trace) = executor.prefill_traced(&TOKENS).unwrap();
    assert!(plain == logits);
    assert_eq!(trace.events.iter().map(|event| event.weight_bytes as u64).sum::<u64>(), bytes);
    assert!(trace.events.iter().all(|event| event.start <= event.end && event.end <= trace.duration));
    assert_eq!(executor.position(), TOKENS.len());
}

#[test]
fn a_trace_has_every_instruction_of_every_worker_in_order() {
    let mut executor = executor(&golden("llama-gqa-tied"), &options(2));
    let plain = executor.decode(1).unwrap().to_vec();
    executor.truncate(0);
    let bytes = executor.weight_bytes();
    let (logits, trace) = executor.decode_traced(1).unwrap();
    assert!(plain == logits);
    for worker in 0..2 {
        let events: Vec<_> = trace.events.iter().filter(|event| event.worker == worker).collect();
        assert!(events.len() > 10);
        assert!(events.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(events.iter().all(|event| event.start <= event.end && event.end <= trace.duration));
        assert!(events.iter().filter_map(|event| event.waited.as_ref()).all(|(name, _)| !name.is_empty()));
    }
    assert_eq!(trace.events.iter().map(|event| event.weight_bytes as u64).sum::<u64>(), bytes);
}

#[test]
fn the_interpreter_agrees() {
    let path = golden("qwen3-qknorm");
    let model = Model::open(&path).unwrap();
    let kernels = Kernels::detect().unwrap();
    let lowered = lower(&model.config, &model.weights).unwrap();
    let program = |phase| {
        let target = Target { workers: 3, tile_rows: TILE_ROWS, kv_chunk: 16, phase };
        schedule(&lowered, target, &kernels).unwrap()
    };
    let (decode, prefill) = (program(Phase::Decode), program(Phase::Prefill));
    let mut interpreter = Interpreter::new(&model.config, &model.weights, &kernels, &decode, &prefill).unwrap();
    let expected = interpreter.prefill(&TOKENS[..20], plancher_program::Order::RoundRobin);
    let mut executor = executor(&path, &options(3));
    let logits = prefill_all(&mut executor, &TOKENS[..20]);
    let error = relative_error(&logits, &expected);
    assert!(error < 1e-2, "{error}");
    let expected = interpreter.decode(TOKENS[20], plancher_program::Order::Random(7));
    let error = relative_error(executor.decode(TOKENS[20]).unwrap(), &expected);
    assert!(error < 1e-2, "{error}");
}

/// The greedy continuation of a real model, as llama.cpp gives it.
fn stories(file: &str, precision: &str) {
    let Some(folder) = shared("models/stories260k") else { return };
    let (model, expected) = (folder.join(file), folder.join("expected.json"));
    // The directory has no tokenizer of its own.
    let tokenizer = Model::open(&folder.join("stories260k-f32.gguf")).unwrap().tokenizer.unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let model = Arc::new(Model::open(&model).unwrap());
    let mut executor = Executor::new(&model, &options(2), &|_, _| ()).unwrap();
    let cases = expected["greedy"][precision].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let prompt = tokenizer.encode(case["prompt"].as_str().unwrap(), true, false).unwrap();
        let tokens = case["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
        executor.truncate(0);
        let mut next = argmax(executor.prefill(&prompt, LogitsOf::Last, &mut |_| true).unwrap());
        for (step, token) in tokens.enumerate() {
            assert_eq!(next, token, "step {step} after `{}`", case["prompt"]);
            next = argmax(executor.decode(next).unwrap());
        }
    }
}

#[test]
fn stories_in_f32() {
    stories("stories260k-f32.gguf", "f32");
}

#[test]
fn stories_in_f16() {
    stories("stories260k-f16.gguf", "f16");
}

#[test]
fn stories_from_a_directory() {
    stories("hf", "f32");
}
