//! Finding the largest of many logits without sorting them: the vocabulary is cut into blocks, one vector pass keeps
//! each block's maximum, and whatever follows looks only into blocks that can hold an answer.

use std::cmp::Ordering;

/// Logits of a block.
pub(crate) const BLOCK: usize = 64;

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) logit: f32,
}

impl Candidate {
    /// Most likely first, the smaller token first among equals. Logits of candidates are never NaN.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the sorts pass references")]
    pub(crate) fn order(a: &Self, b: &Self) -> Ordering {
        b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
    }
}

/// Writes each block's maximum into `maxima`, `(ceil(logits / BLOCK))`; NaN is skipped (a block of nothing else gives
/// minus infinity). Returns the maximum of all.
pub(crate) fn block_maxima(logits: &[f32], maxima: &mut Vec<f32>) -> f32 {
    const LANES: usize = 16;
    maxima.clear();
    maxima.extend(logits.chunks(BLOCK).map(|block| {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = if x > *lane { x } else { *lane };
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = if x > *lane { x } else { *lane };
        }
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }));
    maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The first token whose logit is `max`, the maximum of all.
pub(crate) fn first_of(logits: &[f32], maxima: &[f32], max: f32) -> Option<u32> {
    let block = maxima.iter().position(|&m| m >= max)?;
    let start = block * BLOCK;
    let offset = logits[start..].iter().position(|&x| x >= max)?;
    Some((start + offset) as u32)
}

/// Collects every token whose logit is at least `threshold`, in the order of tokens.
pub(crate) fn at_least(logits: &[f32], maxima: &[f32], threshold: f32, out: &mut Vec<Candidate>) {
    out.clear();
    for ((block, values), &max) in logits.chunks(BLOCK).enumerate().zip(maxima) {
        if max >= threshold {
            let first = (block * BLOCK) as u32;
            let tokens = values.iter().zip(first..).filter(|(logit, _)| **logit >= threshold);
            out.extend(tokens.map(|(&logit, token)| Candidate { token, logit }));
        }
    }
}

/// Collects the `k` most likely tokens, most likely first; all of them when there are fewer.
pub(crate) fn top_k(logits: &[f32], maxima: &[f32], k: usize, scratch: &mut Vec<f32>, out: &mut Vec<Candidate>) {
    if k == 0 {
        out.clear();
        return;
    }
    // The k-th largest block maximum is at most the k-th largest logit: k blocks each hold one logit as large.
    let threshold = if k < maxima.len() {
        scratch.clear();
        scratch.extend_from_slice(maxima);
        let (_, &mut kth, _) = scratch.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        kth
    } else {
        f32::NEG_INFINITY
    };
    at_least(logits, maxima, threshold, out);
    if out.len() > k {
        out.select_nth_unstable_by(k - 1, Candidate::order);
        out.truncate(k);
    }
    out.sort_unstable_by(Candidate::order);
}
