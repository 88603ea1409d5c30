//! Finding the largest of many logits without sorting them: the vocabulary is cut into blocks, one vector pass keeps
//! each block's maximum, from which follows a threshold that only few logits reach; those are collected, and a selection
//! among them finds the last one to keep. Candidates stay in the order of tokens, so that what is drawn does not depend
//! on how a selection orders its elements.

use std::cmp::Ordering;

use plancher_cpu::kernels::{Kernels, exponential};

use super::lanes::{self, LANES, Lanes, Task};

/// Logits of a block.
pub(crate) const BLOCK: usize = 64;

/// Memory that one choice after another uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    tokens: Vec<u32>,
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
    weighted: Vec<(Candidate, f32)>,
}

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) logit: f32,
}

impl Candidate {
    /// Most likely first, the smaller token first among equals (as zeros of either sign are). Logits of candidates are
    /// never NaN.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the sorts pass references")]
    pub(crate) fn order(a: &Self, b: &Self) -> Ordering {
        b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
    }
}

/// Writes each block's maximum into `maxima`, `(ceil(logits / BLOCK))`; NaN is skipped (a block of nothing else gives
/// minus infinity). Returns the maximum of all.
pub(crate) fn block_maxima(logits: &[f32], maxima: &mut Vec<f32>) -> f32 {
    maxima.resize(logits.len().div_ceil(BLOCK), 0.0);
    lanes::dispatch(BlockMaxima { logits, maxima })
}

struct BlockMaxima<'a> {
    logits: &'a [f32],
    maxima: &'a mut [f32],
}

impl Task for BlockMaxima<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> f32 {
        let Self { logits, maxima } = self;
        let (full, last) = lanes::blocks_of(logits);
        let mut all = l.all(f32::NEG_INFINITY);
        for (max, block) in maxima.iter_mut().zip(full.iter().chain([&last])) {
            let lanes = lane_maxima(l, block);
            all = l.larger(lanes, all);
            *max = l.largest(lanes);
        }
        l.largest(all)
    }
}

/// The maxima of each block's lanes.
struct LaneMaxima<'a> {
    logits: &'a [f32],
    maxima: &'a mut [f32],
}

impl Task for LaneMaxima<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (full, last) = lanes::blocks_of(self.logits);
        let (maxima, _) = self.maxima.as_chunks_mut();
        for (maxima, block) in maxima.iter_mut().zip(full.iter().chain([&last])) {
            *maxima = l.store(lane_maxima(l, block));
        }
    }
}

/// The largest values that are not NaN of those whose index is the lane's modulo the number of lanes.
#[inline(always)]
fn lane_maxima<L: Lanes>(l: L, block: &[f32; BLOCK]) -> L::Vector {
    let mut maxima = l.all(f32::NEG_INFINITY);
    for x in block.as_chunks().0 {
        maxima = l.larger(l.load(x), maxima);
    }
    maxima
}

/// The first token whose logit is `max`, the maximum of all.
pub(crate) fn first_of(logits: &[f32], maxima: &[f32], max: f32) -> Option<u32> {
    let block = maxima.iter().position(|&m| m >= max)?;
    let start = block * BLOCK;
    let offset = logits[start..].iter().position(|&x| x >= max)?;
    Some((start + offset) as u32)
}

/// Collects every token whose logit is at least `threshold`, in the order of tokens.
pub(crate) fn at_least(logits: &[f32], threshold: f32, buffers: &mut Buffers, out: &mut Vec<Candidate>) {
    Kernels::best().at_least(logits, threshold, &mut buffers.tokens, &mut buffers.logits);
    out.clear();
    out.extend(buffers.tokens.iter().zip(&buffers.logits).map(|(&token, &logit)| Candidate { token, logit }));
}

/// Collects the `k` most likely tokens, in the order of tokens; all of them when there are fewer.
pub(crate) fn top_k(logits: &[f32], maxima: &[f32], k: usize, buffers: &mut Buffers, out: &mut Vec<Candidate>) {
    out.clear();
    if k == 0 {
        return;
    }
    // The k-th largest of the maxima of parts is at most the k-th largest logit: k parts each hold one as large.
    let parts = &mut buffers.logits;
    if 2 * k < maxima.len() {
        parts.clear();
        parts.extend_from_slice(maxima);
    } else {
        parts.resize(maxima.len() * LANES, 0.0);
        lanes::dispatch(LaneMaxima { logits, maxima: parts });
    }
    let threshold = if k < parts.len() {
        let (_, &mut kth, _) = parts.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        kth
    } else {
        f32::NEG_INFINITY
    };
    // What is larger first: where that is fewer than `k`, the threshold is the k-th logit and the first of its equals,
    // which may be very many, fill up.
    at_least(logits, threshold.next_up(), buffers, out);
    if out.len() < k {
        let blocks = (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)).zip(maxima).filter(|&(_, &max)| max >= threshold);
        let candidates = blocks.flat_map(|((start, block), _)| (start..).zip(block));
        #[expect(clippy::float_cmp, reason = "one of the logits")]
        let equals = candidates.filter(|&(_, &logit)| logit == threshold).take(k - out.len());
        out.extend(equals.map(|(token, &logit)| Candidate { token, logit }));
        out.sort_unstable_by_key(|candidate| candidate.token);
    }
    if out.len() > k {
        buffers.candidates.clone_from(out);
        let (_, &mut last, _) = buffers.candidates.select_nth_unstable_by(k - 1, Candidate::order);
        out.retain(|candidate| Candidate::order(candidate, &last).is_le());
    }
}

/// Keeps the fewest most likely candidates whose probabilities sum to at least `target`, a sum of exponentials of
/// logits less `max`; all of them when they sum to less. Returns whether they reach it.
pub(crate) fn keep_nucleus(candidates: &mut Vec<Candidate>, target: f64, max: f32, buffers: &mut Buffers) -> bool {
    const BINS: usize = 256;
    let least = candidates.iter().map(|candidate| candidate.logit).fold(max, f32::min);
    let bins_per_nat = BINS as f32 / (max - least.max(f32::MIN)).max(f32::MIN_POSITIVE);
    let bin_of = |logit: f32| (((max - logit) * bins_per_nat) as usize).min(BINS - 1);
    let mut masses = [0.0_f64; BINS];
    for candidate in &*candidates {
        masses[bin_of(candidate.logit)] += f64::from(exponential(candidate.logit - max));
    }
    let mut before = 0.0;
    let Some(bin) = masses.iter().position(|mass| {
        let reached = before + mass >= target;
        before += if reached { 0.0 } else { *mass };
        reached
    }) else {
        return false;
    };
    let weighted = &mut buffers.weighted;
    weighted.clear();
    let of_bin = candidates.iter().filter(|candidate| bin_of(candidate.logit) == bin);
    weighted.extend(of_bin.map(|&candidate| (candidate, exponential(candidate.logit - max))));
    let mass = |part: &[(Candidate, f32)]| part.iter().map(|&(_, mass)| f64::from(mass)).sum::<f64>();
    if weighted.is_empty() {
        return false;
    }
    // Halves the part that holds the last one to keep; what lies before it is kept, what lies behind is not.
    let mut part = &mut weighted[..];
    while part.len() > 1 {
        let middle = part.len() / 2;
        part.select_nth_unstable_by(middle, |a, b| Candidate::order(&a.0, &b.0));
        let (likelier, rest) = part.split_at_mut(middle);
        let sum = before + mass(likelier);
        if sum >= target {
            part = likelier;
        } else {
            (part, before) = (rest, sum);
        }
    }
    let last = part[0].0;
    candidates.retain(|candidate| Candidate::order(candidate, &last).is_le());
    true
}
