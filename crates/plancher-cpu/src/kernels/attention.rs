//! Attention of query rows to one chunk of keys and values, with a running maximum and sum (online softmax), so that
//! scores are never kept.

use std::ops::Range;

use half::f16;

use super::{Isa, Kernels};

/// Positions of a chunk: one a lane of a 512-bit vector.
pub const ATTENTION_CHUNK: usize = 16;

/// Query rows that attend to the same keys (the heads of a group, of one or more positions), and what they have
/// gathered so far. A row that has seen nothing has zero sums, maximum `-inf`, total 0.
#[derive(Debug)]
pub struct AttentionRows<'a> {
    /// Elements of a head.
    pub head_dim: usize,
    /// `(rows, head_dim)`, scaled.
    pub queries: &'a [f32],
    /// `(rows, head_dim)`: sums of `exp(score - maximum) * value`.
    pub sums: &'a mut [f32],
    /// `(rows)`: the largest score.
    pub maxima: &'a mut [f32],
    /// `(rows)`: sums of `exp(score - maximum)`.
    pub totals: &'a mut [f32],
}

impl Kernels {
    /// Attends to a chunk: `keys` is `(head_dim, 16)`, `values` `(16, head_dim)`; row `r` sees the positions
    /// `visible(r)` of the 16.
    ///
    /// # Panics
    /// When a slice does not have the length named here, or a range ends after 16.
    pub fn attend(
        &self,
        rows: &mut AttentionRows<'_>,
        keys: &[f16],
        values: &[f16],
        visible: impl Fn(usize) -> Range<usize>,
    ) {
        let (n, count) = (rows.head_dim, rows.maxima.len());
        assert!(rows.queries.len() == count * n && rows.sums.len() == count * n && rows.totals.len() == count);
        assert!(keys.len() == n * ATTENTION_CHUNK && values.len() == n * ATTENTION_CHUNK);
        let mask = |row: usize| {
            let Range { start, end } = visible(row);
            assert!(end <= ATTENTION_CHUNK);
            if start >= end { 0 } else { (((1_u32 << end) - 1) & !((1_u32 << start) - 1)) as u16 }
        };
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Amx if n.is_multiple_of(16) => {
                // SAFETY: an instruction set that the machine lacks cannot be constructed; lengths checked above.
                unsafe { super::avx512::attend(rows, keys, values, mask) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if n.is_multiple_of(8) => {
                // SAFETY: as above.
                unsafe { super::avx2::attend(rows, keys, values, mask) }
            }
            _ => attend(rows, keys, values, mask),
        }
    }
}

/// The reference.
fn attend(rows: &mut AttentionRows<'_>, keys: &[f16], values: &[f16], mask: impl Fn(usize) -> u16) {
    let n = rows.head_dim;
    for row in 0..rows.maxima.len() {
        let mask = mask(row);
        if mask == 0 {
            continue;
        }
        let visible = (0..ATTENTION_CHUNK).filter(|position| mask >> position & 1 == 1);
        let mut scores = [0.0_f32; ATTENTION_CHUNK];
        for (q, key) in rows.queries[row * n..(row + 1) * n].iter().zip(keys.chunks_exact(ATTENTION_CHUNK)) {
            for (score, k) in scores.iter_mut().zip(key) {
                *score += q * f16::to_f32(*k);
            }
        }
        let sums = &mut rows.sums[row * n..(row + 1) * n];
        let largest = visible.clone().map(|position| scores[position]).fold(rows.maxima[row], f32::max);
        let factor = (rows.maxima[row] - largest).exp();
        rows.totals[row] *= factor;
        for sum in &mut *sums {
            *sum *= factor;
        }
        rows.maxima[row] = largest;
        for position in visible {
            let weight = (scores[position] - largest).exp();
            rows.totals[row] += weight;
            for (sum, v) in sums.iter_mut().zip(&values[position * n..(position + 1) * n]) {
                *sum += weight * f16::to_f32(*v);
            }
        }
    }
}
