//! The sampler: settings, random numbers, and the buffers it reuses from token to token.

use super::candidates::{self, BLOCK, Candidate};
use super::{Random, SamplingParams, exponential};
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
    /// `(vocab_size)`, only with a repetition penalty.
    penalized: Vec<f32>,
    selection: Selection,
}

/// Buffers of one choice.
#[derive(Clone, Debug, Default)]
struct Selection {
    /// Maximum of each block of logits.
    maxima: Vec<f32>,
    scratch: Vec<f32>,
    candidates: Vec<Candidate>,
    /// Probability mass of each block, or of each candidate.
    masses: Vec<f64>,
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
            penalized: Vec::new(),
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

    /// Chooses a token from `logits`, `(vocab_size)`. `None` when the largest is not a finite number (NaN is skipped).
    pub fn sample(&mut self, logits: &[f32]) -> Option<u32> {
        let params = self.params;
        #[expect(clippy::float_cmp, reason = "exactly 1 is the setting that means no penalty")]
        let unpenalized = params.repetition_penalty == 1.0;
        if unpenalized {
            return self.selection.choose(logits, params, &mut self.random);
        }
        self.penalized.clear();
        self.penalized.extend_from_slice(logits);
        for &token in &self.seen {
            if let Some(logit) = self.penalized.get_mut(token as usize) {
                let penalty = params.repetition_penalty;
                let scaled = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                // A finite logit stays finite whatever the penalty, so that only the model's own can be refused.
                *logit = if logit.is_finite() { scaled.clamp(f32::MIN, f32::MAX) } else { scaled };
            }
        }
        self.selection.choose(&self.penalized, params, &mut self.random)
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
        if params.top_k > 0 && params.top_k < logits.len() {
            candidates::top_k(logits, &self.maxima, params.top_k, &mut self.scratch, &mut self.candidates);
            self.keep_nucleus(params.top_p, max, None);
        } else if params.top_p < 1.0 {
            self.gather_nucleus(logits, params.top_p, max);
        } else if params.min_p > 0.0 {
            candidates::at_least(logits, &self.maxima, max + params.min_p.ln(), &mut self.candidates);
        } else {
            return self.draw_from_all(logits, inverse_temperature, max, random);
        }
        if params.min_p > 0.0 {
            let threshold = max + params.min_p.ln();
            self.candidates.retain(|candidate| candidate.logit >= threshold);
        }
        self.draw_from_candidates(inverse_temperature, max, random)
    }

    /// Cuts the sorted candidates to the fewest whose probabilities sum to `top_p` of `total` (by default, of theirs).
    /// Returns whether they reach it.
    fn keep_nucleus(&mut self, top_p: f32, max: f32, total: Option<f64>) -> bool {
        if top_p >= 1.0 {
            return true;
        }
        let mass = |candidate: &Candidate| f64::from(exponential::exp(candidate.logit - max));
        let total = total.unwrap_or_else(|| self.candidates.iter().map(mass).sum());
        let mut sum = 0.0;
        let enough = self.candidates.iter().position(|candidate| {
            sum += mass(candidate);
            sum >= f64::from(top_p) * total
        });
        if let Some(last) = enough {
            self.candidates.truncate(last + 1);
        }
        enough.is_some()
    }

    /// Collects the nucleus of the whole vocabulary: lowers a threshold until what is above it holds enough.
    fn gather_nucleus(&mut self, logits: &[f32], top_p: f32, max: f32) {
        let total = logits.chunks(BLOCK).map(|block| exponential::sum(block, max, 1.0)).sum();
        let mut depth = 2.0;
        loop {
            // Below exp(-64) no number of tokens weighs anything.
            let threshold = if depth < 64.0 { max - depth } else { f32::NEG_INFINITY };
            candidates::at_least(logits, &self.maxima, threshold, &mut self.candidates);
            let mass = |candidate: &Candidate| f64::from(exponential::exp(candidate.logit - max));
            let gathered: f64 = self.candidates.iter().map(mass).sum();
            if gathered >= f64::from(top_p) * total || threshold == f32::NEG_INFINITY {
                self.candidates.sort_unstable_by(Candidate::order);
                if self.keep_nucleus(top_p, max, Some(total)) || threshold == f32::NEG_INFINITY {
                    return;
                }
            }
            depth *= 2.0;
        }
    }

    fn draw_from_candidates(&mut self, inverse_temperature: f32, max: f32, random: &mut Random) -> Option<u32> {
        self.masses.clear();
        let mass = |candidate: &Candidate| f64::from(exponential::exp((candidate.logit - max) * inverse_temperature));
        self.masses.extend(self.candidates.iter().map(mass));
        let (index, _) = draw(&self.masses, random.uniform())?;
        Some(self.candidates[index].token)
    }

    /// Draws a block by its mass, then a token of the block: no list of the whole vocabulary is made.
    fn draw_from_all(
        &mut self,
        logits: &[f32],
        inverse_temperature: f32,
        max: f32,
        random: &mut Random,
    ) -> Option<u32> {
        self.masses.clear();
        self.masses.extend(logits.chunks(BLOCK).map(|block| exponential::sum(block, max, inverse_temperature)));
        let (block, rest) = draw(&self.masses, random.uniform())?;
        let values = &logits[block * BLOCK..logits.len().min((block + 1) * BLOCK)];
        let masses: Vec<f64> =
            values.iter().map(|&x| f64::from(exponential::exp((x - max) * inverse_temperature))).collect();
        let (index, _) = draw(&masses, rest)?;
        Some((block * BLOCK + index) as u32)
    }
}

/// The index into which `uniform` falls when `[0, 1)` is cut in proportion to `masses`, and how far into it, in
/// `[0, 1)`. `None` when there is no mass.
fn draw(masses: &[f64], uniform: f64) -> Option<(usize, f64)> {
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
