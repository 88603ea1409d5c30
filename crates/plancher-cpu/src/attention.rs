//! What query rows have gathered from the chunks of the KV cache that they attended to.

use std::ops::Range;

use crate::kernels::{AttentionRows, Kernels};
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
    pub(crate) unsafe fn attend(&mut self, kernels: Kernels, chunk: Chunk, visible: impl Fn(usize) -> Range<usize>) {
        let elements = self.head_dim * KV_CHUNK;
        // SAFETY: the caller's promise; every bit pattern is an f16.
        let (keys, values) = unsafe {
            (std::slice::from_raw_parts(chunk.keys, elements), std::slice::from_raw_parts(chunk.values, elements))
        };
        let mut rows = AttentionRows {
            head_dim: self.head_dim,
            queries: &self.queries,
            sums: &mut self.sums,
            maxima: &mut self.maxima,
            totals: &mut self.totals,
        };
        kernels.attend(&mut rows, keys, values, visible);
    }
}
