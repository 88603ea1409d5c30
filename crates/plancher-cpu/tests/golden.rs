//! Logits and greedy tokens of the golden checkpoints through the program path, whatever the number of workers.

mod common;

use common::{GoldenFile, argmax, executor, golden, options, prefill_all, relative_error};
use plancher_cpu::kernels::{Isa, Kernels};
use plancher_cpu::{Executor, LogitsOf, Options};

/// The bar of the fast executors. Weights are bf16; the cache is f16.
const TOLERANCE: f64 = 1e-2;

fn compare(name: &str, executor: &mut Executor) {
    let file = GoldenFile::open(&golden(name).join("golden.safetensors"));
    let vocab = executor.vocab_size();
    let prompts = (0..).map_while(|n| Some((n, file.tokens(&format!("prompt.{n}"))?)));
    for (n, prompt) in prompts {
        executor.truncate(0);
        let logits = prefill_all(executor, &prompt);
        let reference = file.floats(&format!("logits.{n}"));
        let error = relative_error(&logits, &reference);
        assert!(error < TOLERANCE, "{name}, prompt {n}: logits differ by {error:.2e}");

        // Decoding token by token gives the same logits.
        executor.truncate(0);
        for (t, &token) in prompt.iter().enumerate() {
            let row = &reference[t * vocab..(t + 1) * vocab];
            let error = relative_error(executor.decode(token).unwrap(), row);
            assert!(error < TOLERANCE, "{name}, prompt {n}, position {t}: decoded logits differ by {error:.2e}");
        }

        let (greedy, gaps) = (file.tokens(&format!("greedy.{n}")).unwrap(), file.floats(&format!("gap.{n}")));
        executor.truncate(0);
        let mut next = argmax(executor.prefill(&prompt, LogitsOf::Last, &mut |_| true).unwrap());
        for (step, (&expected, &gap)) in greedy.iter().zip(&gaps).enumerate() {
            if next != expected {
                assert!(gap < 0.01, "{name}, prompt {n}, step {step}: {next} instead of {expected}, gap {gap}");
                break;
            }
            next = argmax(executor.decode(next).unwrap());
        }
    }
}

fn compare_all(options: &Options) {
    for name in common::goldens() {
        compare(&name, &mut executor(&golden(&name), options));
    }
}

#[test]
fn one_worker() {
    compare_all(&options(1));
}

#[test]
fn two_workers() {
    compare_all(&options(2));
}

#[test]
fn three_workers() {
    compare_all(&options(3));
}

/// Every instruction set of this machine, with prompts in pieces.
#[test]
fn instruction_sets_and_small_chunks() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let kernels = Kernels::with_isa(isa).unwrap();
        compare_all(&Options { kernels: Some(kernels), prefill_chunk: 7, ..options(2) });
    }
}
