//! Attention to a chunk of 16 positions: a lane is a position for scores, an element of the head for values. Keys and
//! values are converted once for up to eight query rows.

use std::arch::x86_64::{
    __m512, _mm256_loadu_si256, _mm512_add_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_mov_ps,
    _mm512_maskz_mov_ps, _mm512_mul_ps, _mm512_reduce_add_ps, _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps, _mm512_sub_ps,
};

use half::f16;

use super::vector::exp;
use crate::kernels::attention::{ATTENTION_CHUNK, AttentionRows};

/// See [`crate::kernels::Kernels::attend`].
///
/// # Safety
/// Lengths are as there, `head_dim` is a multiple of 16, and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn attend(
    rows: &mut AttentionRows<'_>,
    keys: &[f16],
    values: &[f16],
    mask: impl Fn(usize) -> u16,
) {
    let mut row = 0;
    while row < rows.maxima.len() {
        // SAFETY: the caller's promises; as many rows are left.
        unsafe {
            row += match rows.maxima.len() - row {
                8.. => attend_rows::<8>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                4..8 => attend_rows::<4>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                3 => attend_rows::<3>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                2 => attend_rows::<2>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                _ => attend_rows::<1>(rows, row, keys, values, [mask(row)]),
            };
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

/// Rows `row .. row + N`. Returns `N`.
///
/// # Safety
/// As [`attend`]; the rows exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn attend_rows<const N: usize>(
    rows: &mut AttentionRows<'_>,
    row: usize,
    keys: &[f16],
    values: &[f16],
    masks: [u16; N],
) -> usize {
    if masks.iter().all(|&mask| mask == 0) {
        return N;
    }
    let n = rows.head_dim;
    let mut weights = [[0.0_f32; ATTENTION_CHUNK]; N];
    let mut factors = [1.0_f32; N];
    // SAFETY: the caller's promises: `n` is even and a multiple of 16.
    unsafe {
        let queries = rows.queries.as_ptr().add(row * n);
        // Two sums a row hide the latency of additions.
        let mut scores = [[_mm512_setzero_ps(); 2]; N];
        for d in (0..n).step_by(2) {
            for odd in 0..2 {
                let key = load(keys.as_ptr().add((d + odd) * ATTENTION_CHUNK));
                for (r, scores) in scores.iter_mut().enumerate() {
                    scores[odd] = _mm512_fmadd_ps(_mm512_set1_ps(*queries.add(r * n + d + odd)), key, scores[odd]);
                }
            }
        }
        for (r, [even, odd]) in scores.into_iter().enumerate() {
            if masks[r] == 0 {
                continue;
            }
            let minus_infinity = _mm512_set1_ps(f32::NEG_INFINITY);
            let scores = _mm512_mask_mov_ps(minus_infinity, masks[r], _mm512_add_ps(even, odd));
            let (maximum, total) = (&mut rows.maxima[row + r], &mut rows.totals[row + r]);
            let largest = maximum.max(_mm512_reduce_max_ps(scores));
            let exponentials = exp(_mm512_sub_ps(scores, _mm512_set1_ps(largest)));
            let exponentials = _mm512_maskz_mov_ps(masks[r], exponentials);
            if largest > *maximum {
                factors[r] = (*maximum - largest).exp();
                *maximum = largest;
            }
            *total = *total * factors[r] + _mm512_reduce_add_ps(exponentials);
            _mm512_storeu_ps(weights[r].as_mut_ptr(), exponentials);
        }
        let sums = rows.sums.as_mut_ptr().add(row * n);
        for d in (0..n).step_by(16) {
            let mut parts = [_mm512_setzero_ps(); N];
            for (r, part) in parts.iter_mut().enumerate() {
                *part = _mm512_mul_ps(_mm512_loadu_ps(sums.add(r * n + d)), _mm512_set1_ps(factors[r]));
            }
            #[expect(clippy::needless_range_loop, reason = "the position is the second index of every row's weights")]
            for position in 0..ATTENTION_CHUNK {
                let value = load(values.as_ptr().add(position * n + d));
                for (r, part) in parts.iter_mut().enumerate() {
                    *part = _mm512_fmadd_ps(_mm512_set1_ps(weights[r][position]), value, *part);
                }
            }
            for (r, part) in parts.into_iter().enumerate() {
                _mm512_storeu_ps(sums.add(r * n + d), part);
            }
        }
    }
    N
}
