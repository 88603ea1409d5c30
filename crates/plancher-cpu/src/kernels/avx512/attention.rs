//! Attention to a chunk of 16 positions: a lane is a position for scores, an element of the head for values. Keys and
//! values are converted once for up to eight query rows.

use std::arch::x86_64::{
    __m512, _mm256_loadu_si256, _mm512_add_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_mov_ps,
    _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_reduce_add_ps, _mm512_reduce_max_ps, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

use half::f16;

use super::vector::exp;
use crate::kernels::attention::{ATTENTION_CHUNK, ATTENTION_SPAN, AttentionChunk, AttentionRows};

/// See [`crate::kernels::Kernels::attend`].
///
/// # Safety
/// Lengths are as there, `head_dim` is a multiple of 16, and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn attend(
    rows: &mut AttentionRows<'_>,
    chunks: &[AttentionChunk<'_>],
    mask: impl Fn(usize, usize) -> u16,
) {
    for (s, span) in chunks.chunks(ATTENTION_SPAN).enumerate() {
        let masks = |row: usize| -> [u16; ATTENTION_SPAN] {
            std::array::from_fn(|c| if c < span.len() { mask(row, s * ATTENTION_SPAN + c) } else { 0 })
        };
        let mut row = 0;
        while row < rows.maxima.len() {
            // SAFETY: the caller's promises; as many rows are left.
            unsafe {
                row += match rows.maxima.len() - row {
                    8.. => attend_rows::<8>(rows, row, span, std::array::from_fn(|r| masks(row + r))),
                    4..8 => attend_rows::<4>(rows, row, span, std::array::from_fn(|r| masks(row + r))),
                    3 => attend_rows::<3>(rows, row, span, std::array::from_fn(|r| masks(row + r))),
                    2 => attend_rows::<2>(rows, row, span, std::array::from_fn(|r| masks(row + r))),
                    _ => attend_rows::<1>(rows, row, span, [masks(row)]),
                };
            }
        }
    }
}

/// Sixteen f16 as f32.
///
/// # Safety
/// They can be read at `pointer`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn load(pointer: *const f16) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(pointer.cast())) }
}

/// Rows `row .. row + N`, which see of chunk `c` what `masks[row][c]` says. Returns `N`.
///
/// # Safety
/// As [`attend`]; the rows exist, and there are at most [`ATTENTION_SPAN`] chunks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn attend_rows<const N: usize>(
    rows: &mut AttentionRows<'_>,
    row: usize,
    chunks: &[AttentionChunk<'_>],
    masks: [[u16; ATTENTION_SPAN]; N],
) -> usize {
    let n = rows.head_dim;
    let unseen = |c: usize| masks.iter().all(|masks| masks[c] == 0);
    let minus_infinity = _mm512_set1_ps(f32::NEG_INFINITY);
    // Scores, later their exponentials.
    let mut weights = [[minus_infinity; ATTENTION_SPAN]; N];
    let mut factors = [1.0_f32; N];
    // SAFETY: the caller's promises: `n` is even and a multiple of 16.
    unsafe {
        let queries = rows.queries.as_ptr().add(row * n);
        for (c, chunk) in chunks.iter().enumerate() {
            if unseen(c) {
                continue;
            }
            // Two sums a row hide the latency of additions.
            let mut scores = [[_mm512_setzero_ps(); 2]; N];
            for d in (0..n).step_by(2) {
                for odd in 0..2 {
                    let key = load(chunk.keys.as_ptr().add((d + odd) * ATTENTION_CHUNK));
                    for (r, scores) in scores.iter_mut().enumerate() {
                        scores[odd] = _mm512_fmadd_ps(_mm512_set1_ps(*queries.add(r * n + d + odd)), key, scores[odd]);
                    }
                }
            }
            for (r, [even, odd]) in scores.into_iter().enumerate() {
                weights[r][c] = _mm512_mask_mov_ps(minus_infinity, masks[r][c], _mm512_add_ps(even, odd));
            }
        }
        for (r, weights) in weights.iter_mut().enumerate() {
            let largest = weights.iter().copied().fold(minus_infinity, |a, b| _mm512_max_ps(a, b));
            let (maximum, total) = (&mut rows.maxima[row + r], &mut rows.totals[row + r]);
            let largest = maximum.max(_mm512_reduce_max_ps(largest));
            if largest > *maximum {
                factors[r] = (*maximum - largest).exp();
                *maximum = largest;
            }
            let mut sum = _mm512_setzero_ps();
            for (weight, &mask) in weights.iter_mut().zip(&masks[r]) {
                if mask == 0 {
                    *weight = _mm512_setzero_ps();
                    continue;
                }
                *weight = _mm512_maskz_mov_ps(mask, exp(_mm512_sub_ps(*weight, _mm512_set1_ps(largest))));
                sum = _mm512_add_ps(sum, *weight);
            }
            *total = *total * factors[r] + _mm512_reduce_add_ps(sum);
        }
        let weights = weights.as_ptr().cast::<[f32; ATTENTION_SPAN * ATTENTION_CHUNK]>();
        let sums = rows.sums.as_mut_ptr().add(row * n);
        for d in (0..n).step_by(16) {
            let mut parts = [_mm512_setzero_ps(); N];
            for (r, part) in parts.iter_mut().enumerate() {
                *part = _mm512_mul_ps(_mm512_loadu_ps(sums.add(r * n + d)), _mm512_set1_ps(factors[r]));
            }
            for (c, chunk) in chunks.iter().enumerate() {
                if unseen(c) {
                    continue;
                }
                for position in 0..ATTENTION_CHUNK {
                    let value = load(chunk.values.as_ptr().add(position * n + d));
                    for (r, part) in parts.iter_mut().enumerate() {
                        let weight = (*weights.add(r))[c * ATTENTION_CHUNK + position];
                        *part = _mm512_fmadd_ps(_mm512_set1_ps(weight), value, *part);
                    }
                }
            }
            for (r, part) in parts.into_iter().enumerate() {
                _mm512_storeu_ps(sums.add(r * n + d), part);
            }
        }
    }
    N
}
