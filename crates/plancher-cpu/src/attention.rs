//! Attention over chunks of the KV cache with running maximum and sum, so that scores are never kept.

use std::ops::Range;

use half::f16;

use crate::kv_cache::{Chunk, KV_CHUNK};

/// Query rows that attend to the same keys, and what they have gathered so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    head_dim: usize,
    /// `(rows, head_dim)`, scaled.
    queries: Vec<f32>,
    /// `(rows, head_dim)`, unnormalised.
    pub(crate) sums: Vec<f32>,
    /// Largest score of each row.
    pub(crate) maxima: Vec<f32>,
    /// Sum of `exp(score - maximum)` of each row.
    pub(crate) totals: Vec<f32>,
}

impl State {
    /// Starts `rows` rows of `head_dim` elements; the queries are written by the caller.
    pub(crate) fn start(&mut self, rows: usize, head_dim: usize) -> &mut [f32] {
        self.head_dim = head_dim;
        self.queries.resize(rows * head_dim, 0.0);
        self.sums.clear();
        self.sums.resize(rows * head_dim, 0.0);
        self.maxima.clear();
        self.maxima.resize(rows, f32::NEG_INFINITY);
        self.totals.clear();
        self.totals.resize(rows, 0.0);
        &mut self.queries
    }

    /// Attends to one chunk; row `r` sees the positions `visible(r)` of it.
    ///
    /// # Safety
    /// The chunk holds `head_dim` elements a position, and nobody writes it meanwhile.
    pub(crate) unsafe fn attend(&mut self, chunk: Chunk, visible: impl Fn(usize) -> Range<usize>) {
        let n = self.head_dim;
        // SAFETY: the caller's promise; every bit pattern is an f16.
        let (keys, values) = unsafe {
            (
                std::slice::from_raw_parts(chunk.keys, n * KV_CHUNK),
                std::slice::from_raw_parts(chunk.values, n * KV_CHUNK),
            )
        };
        for row in 0..self.maxima.len() {
            let visible = visible(row);
            if visible.is_empty() {
                continue;
            }
            let mut scores = [0.0_f32; KV_CHUNK];
            for (q, key) in self.queries[row * n..(row + 1) * n].iter().zip(keys.chunks_exact(KV_CHUNK)) {
                for (score, k) in scores.iter_mut().zip(key) {
                    *score += q * f16::to_f32(*k);
                }
            }
            let sums = &mut self.sums[row * n..(row + 1) * n];
            let largest = scores[visible.clone()].iter().copied().fold(self.maxima[row], f32::max);
            if largest > self.maxima[row] {
                let factor = (self.maxima[row] - largest).exp();
                self.totals[row] *= factor;
                for sum in &mut *sums {
                    *sum *= factor;
                }
                self.maxima[row] = largest;
            }
            for position in visible {
                let weight = (scores[position] - largest).exp();
                self.totals[row] += weight;
                for (sum, v) in sums.iter_mut().zip(&values[position * n..(position + 1) * n]) {
                    *sum += weight * f16::to_f32(*v);
                }
            }
        }
    }
}
