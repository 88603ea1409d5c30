//! Drawn tokens against a plain sampler in double precision: the same logits, settings and seed must give the same token,
//! except where the draw falls within rounding of the border between two.

use std::sync::Arc;

use plancher_cuda::{DecodeOptions, Decoder, Executor, LoadOptions, Sampling};
use plancher_model::Model;

use crate::common::{Golden, Gpu, golden_checkpoints};

/// Share of the probability within which rounding may decide.
const ROUNDING: f64 = 1e-5;

/// `SplitMix64`, uniform in `[0, 1)`.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The tokens that may be chosen: the likeliest first, then those within rounding of the draw.
fn expected(logits: &[f32], seen: &[u32], settings: Sampling, state: &mut u64) -> Vec<u32> {
    let penalized = |token: usize| {
        let logit = f64::from(logits[token]);
        let penalty = f64::from(settings.repetition_penalty);
        if !seen.contains(&(token as u32)) {
            logit
        } else if logit > 0.0 {
            logit / penalty
        } else {
            logit * penalty
        }
    };
    let mut candidates: Vec<(usize, f64)> = (0..logits.len()).map(|token| (token, penalized(token))).collect();
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let largest = candidates[0].1;
    if settings.temperature == 0.0 {
        return vec![candidates[0].0 as u32];
    }
    if settings.top_k > 0 {
        candidates.truncate(settings.top_k);
    }
    let mut near_cut = false;
    if settings.top_p < 1.0 {
        let masses: Vec<f64> = candidates.iter().map(|(_, logit)| (logit - largest).exp()).collect();
        let (total, mut sum) = (masses.iter().sum::<f64>(), 0.0);
        let target = f64::from(settings.top_p) * total;
        let kept = masses.iter().position(|mass| {
            sum += mass;
            near_cut |= (sum - target).abs() < ROUNDING * total;
            sum >= target
        });
        candidates.truncate(kept.map_or(candidates.len(), |last| last + 1));
    }
    if settings.min_p > 0.0 {
        let threshold = largest + f64::from(settings.min_p).ln();
        near_cut |= candidates.iter().any(|(_, logit)| (logit - threshold).abs() < 1e-5);
        candidates.retain(|(_, logit)| *logit >= threshold);
    }
    candidates.sort_by_key(|(token, _)| *token);
    let mass = |logit: f64| ((logit - largest) / f64::from(settings.temperature)).exp();
    let total: f64 = candidates.iter().map(|(_, logit)| mass(*logit)).sum();
    let draw = uniform(state);
    if near_cut {
        return candidates.iter().map(|(token, _)| *token as u32).collect();
    }
    let mut before = 0.0;
    let near = candidates.iter().filter(|(_, logit)| {
        let after = before + mass(*logit) / total;
        let hit = draw >= before - ROUNDING && draw < after + ROUNDING;
        before = after;
        hit
    });
    near.map(|(token, _)| *token as u32).collect()
}

#[test]
fn draws_are_those_of_a_plain_sampler() {
    let Some(gpu) = Gpu::open() else { return };
    let checkpoint = &golden_checkpoints()[0];
    let weights = gpu.load(&Model::open(checkpoint).expect("a golden checkpoint"), LoadOptions::default());
    let options = DecodeOptions {
        sequences: 1,
        positions: 256,
        cache_budget: None,
        executor: Executor::Graph,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(&gpu.device, &gpu.compiler, Arc::clone(&weights), options).expect("a small model");
    let prompt = Golden::all(checkpoint).pop().expect("a prompt").prompt;

    let plain = Sampling { temperature: 1.0, seed: 1, ..Sampling::GREEDY };
    let all = [
        plain,
        Sampling { temperature: 0.7, seed: 2, ..plain },
        Sampling { top_k: 5, seed: 3, ..plain },
        Sampling { top_p: 0.5, seed: 4, ..plain },
        Sampling { top_p: 0.9, top_k: 40, min_p: 0.1, temperature: 1.5, seed: 5, ..plain },
        Sampling { min_p: 0.3, seed: 6, ..plain },
        Sampling { repetition_penalty: 1.5, temperature: 0.8, top_k: 20, seed: 7, ..plain },
        Sampling { repetition_penalty: 1.3, temperature: 0.0, ..plain },
        Sampling { temperature: 100.0, seed: 8, ..plain },
    ];
    for settings in all {
        let feed = |decoder: &mut Decoder| {
            decoder.truncate(0, 0);
            for &token in &prompt {
                decoder.decode(&[token]).expect("a step");
            }
        };
        feed(&mut decoder);
        decoder.start(&[settings], &[&prompt], 24, &[]).expect("room for 24 tokens");
        let drawn: Vec<u32> = (0..24).map(|_| decoder.next_tokens().expect("a token")[0].expect("finite")).collect();
        decoder.stop(0).expect("it stops");

        // The same tokens step by step, so that one choice by rounding does not change what follows.
        feed(&mut decoder);
        let (mut state, mut seen) = (settings.seed, prompt.clone());
        let mut logits = decoder.last_logits(1).expect("logits").to_vec();
        for (index, &token) in drawn.iter().enumerate() {
            let possible = expected(&logits, &seen, settings, &mut state);
            assert!(possible.contains(&token), "{settings:?}, token {index}: {token} and not one of {possible:?}");
            seen.push(token);
            logits = decoder.decode(&[token]).expect("a step").to_vec();
        }
    }
}
