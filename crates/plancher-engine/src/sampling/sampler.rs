//! The sampler: settings, random numbers, and the buffers it reuses from token to token.

use plancher_cpu::kernels::{Kernels, exponential};

use super::candidates::{self, Buffers, Candidate};
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
    /// `(vocab_size)`, only with a repetition penalty.
    penalized: Vec<f32>,
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
        let Self { maxima, buffers, candidates, .. } = self;
        if params.top_k > 0 && params.top_k < logits.len() {
            candidates::top_k(logits, maxima, params.top_k, buffers, candidates);
            if params.top_p < 1.0 {
                let total: f64 = candidates.iter().map(|c| f64::from(exponential(c.logit - max))).sum();
                candidates::keep_nucleus(candidates, f64::from(params.top_p) * total, max, buffers);
            }
        } else if params.top_p < 1.0 {
            self.gather_nucleus(logits, params.top_p, max);
        } else if params.min_p > 0.0 {
            candidates::at_least(logits, max + params.min_p.ln(), buffers, candidates);
        } else {
            return self.whole.draw(logits, maxima, inverse_temperature, max, random);
        }
        if params.min_p > 0.0 {
            let threshold = max + params.min_p.ln();
            self.candidates.retain(|candidate| candidate.logit >= threshold);
        }
        self.draw_from_candidates(inverse_temperature, max, random)
    }

    /// Collects the nucleus of the whole vocabulary.
    fn gather_nucleus(&mut self, logits: &[f32], top_p: f32, max: f32) {
        let total = Kernels::best().sum_of_exponentials(logits, max);
        let target = f64::from(top_p) * total;
        // Everything below this one together weighs no more than what may be left out.
        let certain = max + ((total - target) / logits.len() as f64).ln() as f32;
        for threshold in [likely_threshold(logits, total - target, certain, max), certain, f32::NEG_INFINITY] {
            candidates::at_least(logits, threshold, &mut self.buffers, &mut self.candidates);
            if candidates::keep_nucleus(&mut self.candidates, target, max, &mut self.buffers) {
                return;
            }
        }
    }

    fn draw_from_candidates(&mut self, inverse_temperature: f32, max: f32, random: &mut Random) -> Option<u32> {
        self.masses.clear();
        let mass = |candidate: &Candidate| f64::from(exponential((candidate.logit - max) * inverse_temperature));
        self.masses.extend(self.candidates.iter().map(mass));
        let (index, _) = draw(&self.masses, random.uniform())?;
        Some(self.candidates[index].token)
    }
}

/// A logit between `certain` and `max` below which, to judge by a sample, a good part of `rest` lies but not more: the
/// mass, a sum of exponentials of logits less `max`, that a nucleus leaves out.
fn likely_threshold(logits: &[f32], rest: f64, certain: f32, max: f32) -> f32 {
    const BINS: usize = 128;
    const GROUP: usize = 16;
    const STRIDE: usize = 64;
    let mut masses = [0.0_f64; BINS];
    let bins_per_nat = BINS as f32 / (max - certain).max(f32::MIN_POSITIVE);
    let mut sampled = 0_usize;
    for group in logits.chunks(GROUP).step_by(STRIDE) {
        sampled += group.len();
        for &logit in group {
            // NaN and what lies below go into the first bin, where neither changes anything.
            let bin = ((logit - certain) * bins_per_nat) as usize;
            masses[bin.min(BINS - 1)] += f64::from(exponential(logit - max));
        }
    }
    // Less than all of it, so that the sample's chance error seldom asks for a second round.
    let allowed = 0.7 * rest * sampled as f64 / logits.len() as f64;
    let mut sum = 0.0;
    let bin = masses.iter().position(|mass| {
        sum += mass;
        sum > allowed
    });
    certain + bin.unwrap_or(BINS - 1) as f32 / bins_per_nat
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
