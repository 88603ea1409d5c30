//! What query rows have gathered from the chunks of the KV cache that they attended to.

use std::ops::Range;

use crate::kernels::{ATTENTION_SPAN, AttentionChunk, AttentionRows, Kernels};
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

    /// Attends to chunks `chunks` of one head of the cache, which `chunk` finds; row `r` sees the positions
    /// `visible(r, c)` of chunk `c`.
    ///
    /// # Safety
    /// The chunks hold `head_dim` elements a position, and nobody writes them meanwhile.
    pub(crate) unsafe fn attend(
        &mut self,
        kernels: Kernels,
        mut chunks: impl Iterator<Item = usize>,
        chunk: impl Fn(usize) -> Chunk,
        visible: impl Fn(usize, usize) -> Range<usize>,
    ) {
        let elements = self.head_dim * KV_CHUNK;
        let slices = |index: usize| {
            let Chunk { keys, values } = chunk(index);
            // SAFETY: the caller's promise; every bit pattern is an f16.
            unsafe {
                AttentionChunk {
                    keys: std::slice::from_raw_parts(keys, elements),
                    values: std::slice::from_raw_parts(values, elements),
                }
            }
        };
        let mut rows = AttentionRows {
            head_dim: self.head_dim,
            queries: &self.queries,
            sums: &mut self.sums,
            maxima: &mut self.maxima,
            totals: &mut self.totals,
        };
        while let Some(first) = chunks.next() {
            let (mut indices, mut span, mut count) = ([first; ATTENTION_SPAN], [slices(first); ATTENTION_SPAN], 1);
            for index in chunks.by_ref().take(ATTENTION_SPAN - 1) {
                (indices[count], span[count]) = (index, slices(index));
                count += 1;
            }
            kernels.attend(&mut rows, &span[..count], |row, c| visible(row, indices[c]));
        }
    }
}
