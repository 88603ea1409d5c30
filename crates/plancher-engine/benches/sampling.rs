//! What choosing a token costs, by sampler and vocabulary: the median of many choices, and what it adds to the greedy
//! choice. `cargo bench -p plancher-engine --bench sampling` on a quiet machine.

use std::hint::black_box;
use std::time::Instant;

use plancher_engine::sampling::{Random, Sampler, SamplingParams, logprobs};

const ROUNDS: usize = 501;

/// The median and the 95th percentile of many choices.
fn microseconds(mut choose: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            choose();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], times[ROUNDS * 95 / 100])
}

/// Logits as of a language model: a bell of this standard deviation, and a few tokens far above it.
fn bell(n: usize, deviation: f32, outliers: f32) -> Vec<f32> {
    let mut random = Random::new(1);
    let mut logits: Vec<f32> =
        (0..n).map(|_| ((0..12).map(|_| random.uniform()).sum::<f64>() - 6.0) as f32 * deviation).collect();
    for _ in 0..8 {
        let token = random.below(n as u32) as usize;
        logits[token] = deviation * outliers + 4.0 * random.uniform() as f32;
    }
    logits
}

fn main() {
    let one = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let settings = [
        ("greedy", SamplingParams::default()),
        (
            "top-k 40, top-p 0.95, min-p 0.05, temperature 0.8",
            SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..one },
        ),
        ("temperature 1", one),
        ("temperature 0.7", SamplingParams { temperature: 0.7, ..one }),
        ("top-p 0.9", SamplingParams { top_p: 0.9, ..one }),
        ("top-p 0.9, temperature 0.7", SamplingParams { top_p: 0.9, temperature: 0.7, ..one }),
        ("top-p 0.9, temperature 2", SamplingParams { top_p: 0.9, temperature: 2.0, ..one }),
        ("top-p 0.5", SamplingParams { top_p: 0.5, ..one }),
        ("top-p 0.1, temperature 2", SamplingParams { top_p: 0.1, temperature: 2.0, ..one }),
        ("top-p 0.99", SamplingParams { top_p: 0.99, ..one }),
        ("top-p 0.9, min-p 0.05", SamplingParams { top_p: 0.9, min_p: 0.05, ..one }),
        ("min-p 0.05", SamplingParams { min_p: 0.05, ..one }),
        ("top-k 1000", SamplingParams { top_k: 1000, ..one }),
        ("top-k 1000, top-p 0.9", SamplingParams { top_k: 1000, top_p: 0.9, ..one }),
        ("top-k 20000", SamplingParams { top_k: 20_000, ..one }),
        ("repetition penalty 1.1", SamplingParams { repetition_penalty: 1.1, ..one }),
        ("repetition penalty 1.1, top-p 0.9", SamplingParams { repetition_penalty: 1.1, top_p: 0.9, ..one }),
    ];
    for (vocab_size, shape, deviation, outliers) in [
        (49_152, "bell", 3.0, 4.0),
        (151_936, "bell", 3.0, 4.0),
        (151_936, "peaked", 2.0, 10.0),
        (151_936, "flat", 0.5, 1.0),
        (151_936, "equal", 0.0, 0.0),
    ] {
        let mut logits = bell(vocab_size, deviation, outliers);
        if shape == "equal" {
            logits.fill(1.0);
        }
        let mut greedy = 0.0;
        for (name, params) in settings {
            let Ok(mut sampler) = Sampler::new(params) else { continue };
            (0..1000).for_each(|token| sampler.observe(token * 7));
            let (time, p95) = microseconds(|| {
                black_box(sampler.sample(black_box(&mut logits)));
            });
            if name == "greedy" {
                greedy = time;
            }
            println!(
                "{vocab_size:>7} {shape:<6}  {name:<50} {time:8.1} us, {:+8.1} us over greedy, 95 % {:+8.1} us",
                time - greedy,
                p95 - greedy
            );
        }
        let (time, _) = microseconds(|| {
            black_box(logprobs(black_box(&logits), 5, 10));
        });
        println!("{vocab_size:>7} {shape:<6}  {:<50} {time:8.1} us", "log-probabilities, 10 best");
    }
}
