//! The sampler against a plain one that sorts the whole vocabulary, and against the distribution it should draw from.

use plancher_engine::sampling::{Random, Sampler, SamplingParams};
use proptest::prelude::*;

/// The tokens that may be drawn and their probabilities, by sorting everything. Order: penalty, top-k, top-p, min-p,
/// temperature.
fn plain_distribution(logits: &[f32], seen: &[u32], params: SamplingParams) -> Vec<(u32, f64)> {
    let mut logits = logits.to_vec();
    let mut distinct = seen.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    for token in distinct {
        let logit = &mut logits[token as usize];
        *logit = if *logit > 0.0 { *logit / params.repetition_penalty } else { *logit * params.repetition_penalty };
    }
    let mut sorted: Vec<(u32, f32)> = (0..).zip(logits).collect();
    // Zeros of either sign are equal, which `total_cmp` would deny.
    sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("no NaN").then(a.0.cmp(&b.0)));
    let max = sorted[0].1;
    if params.temperature == 0.0 {
        return vec![(sorted[0].0, 1.0)];
    }
    if params.top_k > 0 {
        sorted.truncate(params.top_k);
    }
    if params.top_p < 1.0 {
        let mass = |logit: f32| f64::from(logit - max).exp();
        let total: f64 = sorted.iter().map(|&(_, logit)| mass(logit)).sum();
        let mut sum = 0.0;
        let kept = sorted.iter().position(|&(_, logit)| {
            sum += mass(logit);
            sum >= f64::from(params.top_p) * total
        });
        sorted.truncate(kept.map_or(sorted.len(), |last| last + 1));
    }
    if params.min_p > 0.0 {
        sorted.retain(|&(_, logit)| logit >= max + params.min_p.ln());
    }
    let mass = |logit: f32| (f64::from(logit - max) / f64::from(params.temperature)).exp();
    let total: f64 = sorted.iter().map(|&(_, logit)| mass(logit)).sum();
    sorted.into_iter().map(|(token, logit)| (token, mass(logit) / total)).collect()
}

/// Whether rounding may count `token` into the nucleus: what is more likely weighs but a trifle more than `top_p`.
fn ends_close(logits: &[f32], seen: &[u32], params: SamplingParams, token: u32) -> bool {
    if params.top_p >= 1.0 {
        return false;
    }
    let whole = SamplingParams { top_p: 1.0, min_p: 0.0, temperature: 1.0, ..params };
    let before: f64 =
        plain_distribution(logits, seen, whole).iter().take_while(|&&(other, _)| other != token).map(|&(_, p)| p).sum();
    before < f64::from(params.top_p) + 1e-5
}

fn params() -> impl Strategy<Value = SamplingParams> {
    (
        prop_oneof![Just(0.0f32), 0.1f32..2.0],
        prop_oneof![Just(0usize), 1usize..60, Just(5000)],
        prop_oneof![Just(1.0f32), 0.01f32..1.0],
        prop_oneof![Just(0.0f32), 0.001f32..1.0],
        prop_oneof![Just(1.0f32), 0.5f32..2.0],
        any::<u64>(),
    )
        .prop_map(|(temperature, top_k, top_p, min_p, repetition_penalty, seed)| SamplingParams {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            seed,
        })
}

fn logits(n: usize, seed: u64, spread: f64) -> Vec<f32> {
    let mut random = Random::new(seed);
    // Sum of uniforms: close to normal, with a few ties from rounding to 1/64.
    (0..n)
        .map(|_| (((0..4).map(|_| random.uniform()).sum::<f64>() - 2.0) * spread * 64.0).round() as f32 / 64.0)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_drawn_token_is_one_that_the_plain_sampler_may_draw(
        params in params(), n in 1usize..3000, seed: u64, spread in 0.1f64..12.0,
        seen in prop::collection::vec(0usize..3000, 0..20),
    ) {
        let mut logits = logits(n, seed, spread);
        let seen: Vec<u32> = seen.into_iter().map(|token| (token % n) as u32).collect();
        let allowed = plain_distribution(&logits, &seen, params);
        let mut sampler = Sampler::new(params).expect("in range");
        for &token in &seen {
            sampler.observe(token);
        }
        let unchanged = logits.clone();
        for _ in 0..20 {
            let token = sampler.sample(&mut logits).expect("finite");
            let known = allowed.iter().any(|&(other, _)| other == token);
            prop_assert!(known || ends_close(&logits, &seen, params, token), "{token} of {allowed:?}");
        }
        prop_assert_eq!(logits, unchanged);
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens(params in params(), seed: u64) {
        let logits = logits(700, seed, 3.0);
        let draw = || {
            let mut logits = logits.clone();
            let mut sampler = Sampler::new(params).expect("in range");
            (0..30).map(|_| sampler.sample(&mut logits)).collect::<Vec<_>>()
        };
        prop_assert_eq!(draw(), draw());
    }
}

#[test]
fn zeros_of_either_sign_are_equal() {
    let mut logits = vec![-1.0; 200];
    (logits[70], logits[90]) = (-0.0, 0.0);
    for (top_k, top_p, temperature) in [(0, 1.0, 0.0), (1, 1.0, 1.0), (50, 0.001, 1.0), (0, 0.001, 1.0)] {
        let params = SamplingParams { temperature, top_k, top_p, ..SamplingParams::default() };
        let mut sampler = Sampler::new(params).expect("in range");
        assert_eq!(sampler.sample(&mut logits), Some(70), "{params:?}");
    }
}

/// Draws many times and compares counts with probabilities by the chi-squared statistic.
fn chi_squared(params: SamplingParams, logits: &[f32]) {
    const DRAWS: usize = 50_000;
    let mut given = logits.to_vec();
    let expected = plain_distribution(logits, &[], params);
    let mut counts = vec![0usize; logits.len()];
    let mut sampler = Sampler::new(params).expect("in range");
    for _ in 0..DRAWS {
        counts[sampler.sample(&mut given).expect("finite") as usize] += 1;
    }
    let (mut statistic, mut cells, mut rest_count, mut rest_expected) = (0.0, 0, 0usize, 0.0);
    for &(token, probability) in &expected {
        let expected = probability * DRAWS as f64;
        let count = std::mem::take(&mut counts[token as usize]);
        if expected >= 10.0 {
            statistic += (count as f64 - expected).powi(2) / expected;
            cells += 1;
        } else {
            rest_count += count;
            rest_expected += expected;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 0, "tokens outside the distribution were drawn");
    if rest_expected >= 10.0 {
        statistic += (rest_count as f64 - rest_expected).powi(2) / rest_expected;
        cells += 1;
    }
    // Mean cells - 1, variance twice that: five standard deviations for a fixed seed.
    let freedom = f64::from(cells - 1).max(1.0);
    assert!(statistic < freedom + 5.0 * (2.0 * freedom).sqrt(), "{params:?}: {statistic} for {freedom}");
}

#[test]
fn draws_follow_the_distribution() {
    let logits = logits(500, 11, 2.0);
    let base = SamplingParams { temperature: 1.0, seed: 5, ..SamplingParams::default() };
    chi_squared(base, &logits);
    chi_squared(SamplingParams { temperature: 0.7, ..base }, &logits);
    chi_squared(SamplingParams { top_k: 40, ..base }, &logits);
    chi_squared(SamplingParams { top_p: 0.8, temperature: 1.3, ..base }, &logits);
    chi_squared(SamplingParams { min_p: 0.05, ..base }, &logits);
    chi_squared(SamplingParams { top_k: 100, top_p: 0.9, min_p: 0.1, temperature: 0.8, ..base }, &logits);
}

#[test]
fn draws_from_a_nucleus_follow_the_distribution() {
    let base = SamplingParams { temperature: 1.0, top_p: 0.9, seed: 5, ..SamplingParams::default() };
    let flat: Vec<f32> = (0..1000).map(|n| (n * 7919 % 1000) as f32 / 2000.0).collect();
    let mut peaked = logits(1000, 3, 1.0);
    (peaked[17], peaked[500], peaked[999]) = (9.0, 8.0, 7.5);
    for logits in [logits(1000, 11, 2.0), flat, peaked] {
        for (top_p, temperature, min_p) in
            [(0.9, 1.0, 0.0), (0.3, 1.0, 0.0), (0.999, 1.0, 0.0), (0.9, 0.6, 0.0), (0.7, 2.5, 0.0), (0.9, 1.5, 0.2)]
        {
            chi_squared(SamplingParams { top_p, temperature, min_p, ..base }, &logits);
        }
    }
}

#[test]
fn a_nucleus_of_equals_ends_among_them() {
    let mut logits = vec![1.0; 1000];
    (logits[3], logits[900]) = (f32::NAN, f32::NEG_INFINITY);
    // 998 tokens are equally likely: half of them are the first 499, token 3 left out.
    let params = SamplingParams { temperature: 1.0, top_p: 0.5, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params).expect("in range");
    let mut drawn = [false; 1000];
    for _ in 0..20_000 {
        drawn[sampler.sample(&mut logits).expect("finite") as usize] = true;
    }
    let expected: Vec<usize> = (0..500).filter(|&token| token != 3).collect();
    let drawn: Vec<usize> = (0..1000).filter(|&token| drawn[token]).collect();
    assert_eq!(drawn, expected);
    // And the two most likely of equals, with top-k.
    let mut sampler = Sampler::new(SamplingParams { top_k: 2, top_p: 1.0, ..params }).expect("in range");
    assert!((0..100).all(|_| matches!(sampler.sample(&mut logits), Some(0 | 1))));
}

#[test]
fn greedy_takes_the_first_of_equal_maxima_and_skips_nan() {
    let mut sampler = Sampler::new(SamplingParams::default()).expect("in range");
    assert_eq!(sampler.sample(&mut [1.0, f32::NAN, 3.0, 3.0, f32::NEG_INFINITY]), Some(2));
    assert_eq!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY]), None);
    assert_eq!(sampler.sample(&mut [f32::INFINITY, 0.0]), None);
    assert_eq!(sampler.sample(&mut []), None);
}

#[test]
fn impossible_tokens_are_never_drawn() {
    let mut logits = vec![f32::NEG_INFINITY; 1000];
    logits[700] = -3.0;
    logits[3] = f32::NAN;
    let params = SamplingParams { temperature: 2.0, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params).expect("in range");
    assert!((0..100).all(|_| sampler.sample(&mut logits) == Some(700)));
}

#[test]
fn a_penalty_moves_greedy_away_from_what_occurred() {
    let params = SamplingParams { repetition_penalty: 1.5, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params).expect("in range");
    let mut logits = [1.0, 2.0, 1.9, -1.0];
    assert_eq!(sampler.sample(&mut logits), Some(1));
    sampler.observe(1);
    assert_eq!(sampler.sample(&mut logits), Some(2));
    sampler.observe(2);
    // Twice observed is penalised once: 2.0 / 1.5 is still above 1.9 / 1.5 and 1.0.
    sampler.observe(1);
    assert_eq!(sampler.sample(&mut logits), Some(1));
}

#[test]
fn no_penalty_turns_finite_logits_into_ones_that_are_refused() {
    for (repetition_penalty, mut logits) in [(1e-38, [5.0, 4.0, -1.0]), (1e38, [-5.0, -4.0, -6.0])] {
        let mut sampler =
            Sampler::new(SamplingParams { repetition_penalty, ..SamplingParams::default() }).expect("in range");
        for token in 0..3 {
            sampler.observe(token);
        }
        assert!(sampler.sample(&mut logits).is_some(), "{repetition_penalty}");
        assert_eq!(sampler.sample(&mut [f32::INFINITY, 1.0, 1.0]), None, "the model's own are");
    }
}
