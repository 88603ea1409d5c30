//! Elementwise work on activations: norms, sums, rotary embedding. Inlined always, so that
//! [`crate::kernels::Kernels::vectorized`] compiles them for its instruction set.

#![expect(clippy::inline_always, reason = "a call would be compiled for the plainest machine")]

use plancher_model::{Rope, RopeLayout};

/// Partial sums kept side by side, so that sums vectorise and their order is fixed.
const LANES: usize = 16;

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v * v;
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt()
}

/// `out = x / rms(x) * weight`.
#[inline(always)]
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let factor = inverse_rms(x, eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * factor * w;
    }
}

/// `x = x / rms(x) * weight`.
#[inline(always)]
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let factor = inverse_rms(x, eps);
    for (v, w) in x.iter_mut().zip(weight) {
        *v = *v * factor * w;
    }
}

/// `hidden += delta / rms(delta) * weight`.
#[inline(always)]
pub(crate) fn add_normed(hidden: &mut [f32], delta: &[f32], weight: &[f32], eps: f32) {
    let factor = inverse_rms(delta, eps);
    for ((h, d), w) in hidden.iter_mut().zip(delta).zip(weight) {
        *h += d * factor * w;
    }
}

/// `x += y`.
#[inline(always)]
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Cosines and sines, `(positions, rotary_dim / 2)` each, of consecutive positions.
#[derive(Debug, Default)]
pub(crate) struct RopeTable {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    pairs: usize,
}

impl RopeTable {
    /// Fills the table for `count` positions from `position` on.
    pub(crate) fn fill(&mut self, rope: &Rope, position: usize, count: usize) {
        self.pairs = rope.inverse_frequencies.len();
        self.cosines.clear();
        self.sines.clear();
        for p in position..position + count {
            for frequency in &rope.inverse_frequencies {
                let (sine, cosine) = (p as f32 * frequency).sin_cos();
                self.cosines.push(cosine * rope.attention_factor);
                self.sines.push(sine * rope.attention_factor);
            }
        }
    }

    /// Rotates one head by the `index`-th position of the table.
    #[inline(always)]
    pub(crate) fn rotate(&self, layout: RopeLayout, index: usize, head: &mut [f32]) {
        let pairs = index * self.pairs..(index + 1) * self.pairs;
        let turns = self.cosines[pairs.clone()].iter().zip(&self.sines[pairs]);
        match layout {
            RopeLayout::Halves => {
                let (first, second) = head[..2 * self.pairs].split_at_mut(self.pairs);
                for ((a, b), (cosine, sine)) in first.iter_mut().zip(second).zip(turns) {
                    (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                }
            }
            RopeLayout::Interleaved => {
                for (pair, (cosine, sine)) in head.chunks_exact_mut(2).zip(turns) {
                    (pair[0], pair[1]) = (pair[0] * cosine - pair[1] * sine, pair[1] * cosine + pair[0] * sine);
                }
            }
        }
    }
}
