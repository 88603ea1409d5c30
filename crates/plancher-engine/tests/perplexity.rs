//! Perplexity and the benchmark's cases on a backend with known logits.

mod common;

use common::FakeBackend;
use plancher_engine::sampling::Random;
use plancher_engine::{Backend, BenchCase, EngineError, LogitsOf, Sequence, bench, perplexity};

/// llama.cpp's definition written plainly: one row of logits at a time, f64.
fn plain(tokens: &[u32], window: usize, begin: Option<u32>) -> (f64, usize) {
    let (mut loss, mut count) = (0.0, 0);
    for chunk in tokens.chunks_exact(window) {
        let mut backend = FakeBackend::new(50, 1000);
        for position in 0..window - 1 {
            let token = if position == 0 { begin.unwrap_or(chunk[0]) } else { chunk[position] };
            let logits = backend.decode(token).expect("never fails");
            if position >= window / 2 {
                let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                loss -= f64::from(logits[chunk[position + 1] as usize]) - total.ln();
                count += 1;
            }
        }
    }
    ((loss / f64::from(count)).exp(), count as usize)
}

#[test]
fn windows_are_scored_as_llama_cpp_does() {
    let mut random = Random::new(3);
    let tokens: Vec<u32> = (0..730).map(|_| random.below(50)).collect();
    for (window, begin) in [(300, Some(1)), (64, None), (7, Some(2)), (4, None)] {
        let mut running = Vec::new();
        let got = perplexity(&mut FakeBackend::new(50, 512), &tokens, window, begin, &mut |estimate, windows| {
            assert_eq!(windows, tokens.len() / window);
            running.push(estimate);
            true
        });
        let got = got.expect("long enough");
        let (want, count) = plain(&tokens, window, begin);
        assert!((got.perplexity / want - 1.0).abs() < 1e-6, "{window}: {} instead of {want}", got.perplexity);
        assert_eq!((got.tokens, got.windows), (count, tokens.len() / window));
        assert_eq!(running.last(), Some(&got));
        assert!(got.standard_error >= 0.0 && got.standard_error < got.perplexity);
    }
}

#[test]
fn texts_that_cannot_be_scored_are_refused() {
    let run =
        |tokens: &[u32], window| perplexity(&mut FakeBackend::new(50, 100), tokens, window, None, &mut |_, _| true);
    assert_eq!(
        run(&[1; 15], 8).expect_err("short").to_string(),
        "the text has 15 tokens; perplexity with windows of 8 needs at least 16"
    );
    assert!(matches!(run(&[1; 400], 200), Err(EngineError::PromptTooLong { prompt: 200, context: 100 })));
    assert!(matches!(run(&[77; 400], 20), Err(EngineError::UnknownToken { token: 77, .. })));
    assert!(run(&[1; 400], 1).is_err());
}

#[test]
fn a_benchmark_hashes_the_logits_of_its_last_step() {
    let mut sequence = Sequence::new(Box::new(FakeBackend::new(50, 100)));
    let case = BenchCase { n_prompt: 10, n_gen: 5, n_depth: 20, batch: 1 };
    let first = bench(&mut sequence, case, 3, &mut |_| true).expect("it fits");
    assert_eq!((first.seconds.len(), first.reproducible), (3, true));
    assert_eq!(sequence.tokens().len(), 35);

    let tokens = sequence.tokens().to_vec();
    let mut backend = FakeBackend::new(50, 100);
    let logits = backend.prefill(&tokens, LogitsOf::Last, &mut |_| true).expect("never fails");
    assert_eq!(first.logits_hashes, [plancher_engine::hash_logits(logits)]);

    let stopped = bench(&mut sequence, case, 3, &mut |done| done < 2).expect("it fits");
    assert_eq!(stopped.seconds.len(), 2);
    assert!(matches!(
        bench(&mut sequence, BenchCase { n_depth: 90, ..case }, 1, &mut |_| true),
        Err(EngineError::PromptTooLong { prompt: 105, context: 100 })
    ));
}
