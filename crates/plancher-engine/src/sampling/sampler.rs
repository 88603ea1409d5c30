//! The sampler: settings, random numbers, and the buffers it reuses from token to token.

use plancher_cpu::kernels::exponential;

use super::candidates::{self, Buffers, Candidate};
use super::mass::Weights;
use super::whole::WholeDraw;
use super::{Random, SamplingParams};
use crate::Result;

/// Chooses tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    random: Random,
    /// Distinct tokens that occurred, for the repetition penalty.
    seen: Vec<u32>,
    /// One flag a token below the largest seen.
    is_seen: Vec<bool>,
    /// Tokens whose logits the penalty changed, and what those were.
    saved: Vec<(u32, f32)>,
    selection: Selection,
}

/// Buffers of one choice.
#[derive(Clone, Debug, Default)]
struct Selection {
    /// Maximum of each block of logits.
    maxima: Vec<f32>,
    buffers: Buffers,
    /// What may be drawn, in the order of tokens.
    candidates: Vec<Candidate>,
    /// Probability mass of each candidate.
    masses: Vec<f64>,
    whole: WholeDraw,
}

impl Sampler {
    /// A sampler at the start of a sequence.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(params: SamplingParams) -> Result<Self> {
        params.validate()?;
        Ok(Self {
            params,
            random: Random::new(params.seed),
            seen: Vec::new(),
            is_seen: Vec::new(),
            saved: Vec::new(),
            selection: Selection::default(),
        })
    }

    /// Notes that `token` is part of the sequence, so that the repetition penalty covers it.
    pub fn observe(&mut self, token: u32) {
        let index = token as usize;
        if index >= self.is_seen.len() {
            self.is_seen.resize(index + 1, false);
        }
        if !self.is_seen[index] {
            self.is_seen[index] = true;
            self.seen.push(token);
        }
    }

    /// Chooses a token from `logits`, `(vocab_size)`, which are the same afterwards. `None` when the largest is not a
    /// finite number (NaN is skipped).
    pub fn sample(&mut self, logits: &mut [f32]) -> Option<u32> {
        let penalty = self.params.repetition_penalty;
        #[expect(clippy::float_cmp, reason = "exactly 1 is the setting that means no penalty")]
        if penalty == 1.0 {
            return self.selection.choose(logits, self.params, &mut self.random);
        }
        self.saved.clear();
        for &token in &self.seen {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            self.saved.push((token, *logit));
            let scaled = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            // A finite logit stays finite whatever the penalty, so that only the model's own can be refused.
            *logit = if logit.is_finite() { scaled.clamp(f32::MIN, f32::MAX) } else { scaled };
        }
        let choice = self.selection.choose(logits, self.params, &mut self.random);
        for &(token, logit) in &self.saved {
            logits[token as usize] = logit;
        }
        choice
    }
}

impl Selection {
    fn choose(&mut self, logits: &[f32], params: SamplingParams, random: &mut Random) -> Option<u32> {
        let max = candidates::block_maxima(logits, &mut self.maxima);
        if !max.is_finite() {
            return None;
        }
        // So cold that every other logit underflows: the draw could only find the maximum.
        let inverse_temperature = 1.0 / params.temperature;
        if !inverse_temperature.is_finite() {
            return candidates::first_of(logits, &self.maxima, max);
        }
        let Self { maxima, buffers, candidates, whole, .. } = self;
        let least = if params.min_p > 0.0 { max + params.min_p.ln() } else { f32::NEG_INFINITY };
        if params.top_k == 0 || params.top_k >= logits.len() {
            let weights = Weights { logits, maxima, max, inverse_temperature };
            return if params.top_p < 1.0 {
                whole.draw_from_nucleus(weights, params.top_p, least, random)
            } else {
                whole.draw(weights, least, random)
            };
        }
        candidates::top_k(logits, maxima, params.top_k, buffers, candidates);
        if params.top_p < 1.0 {
            let total: f64 = candidates.iter().map(|c| f64::from(exponential(c.logit - max))).sum();
            candidates::keep_nucleus(candidates, f64::from(params.top_p) * total, max, buffers);
        }
        candidates.retain(|candidate| candidate.logit >= least);
        self.draw_from_candidates(inverse_temperature, max, random)
    }

    fn draw_from_candidates(&mut self, inverse_temperature: f32, max: f32, random: &mut Random) -> Option<u32> {
        self.masses.clear();
        let mass = |candidate: &Candidate| f64::from(exponential((candidate.logit - max) * inverse_temperature));
        self.masses.extend(self.candidates.iter().map(mass));
        let (index, _) = draw(&self.masses, random.uniform())?;
        Some(self.candidates[index].token)
    }
}

/// The index into which `uniform` falls when `[0, 1)` is cut in proportion to `masses`, and how far into it, in
/// `[0, 1)`. `None` when there is no mass.
pub(super) fn draw(masses: &[f64], uniform: f64) -> Option<(usize, f64)> {
    let total: f64 = masses.iter().sum();
    let target = uniform * total;
    let mut sum = 0.0;
    let mut last = None;
    for (index, &mass) in masses.iter().enumerate() {
        if mass > 0.0 {
            if target < sum + mass {
                return Some((index, ((target - sum) / mass).clamp(0.0, 1.0 - f64::EPSILON)));
            }
            last = Some((index, 1.0 - f64::EPSILON));
        }
        sum += mass;
    }
    last
}
