//! Attention to a chunk of 16 positions: a lane is a position for scores, an element of the head for values. Keys and
//! values are converted once for up to four query rows.

use std::arch::x86_64::{
    __m256, _mm_loadu_si128, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_blendv_ps, _mm256_castsi256_ps,
    _mm256_cmpeq_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps,
};

use half::f16;

use super::unpack::load_halves;
use super::vector::{exp, largest, total};
use crate::kernels::attention::{ATTENTION_CHUNK, AttentionRows};

/// See [`crate::kernels::Kernels::attend`].
///
/// # Safety
/// Lengths are as there, `head_dim` is a multiple of 8, and the machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
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
                4.. => attend_rows::<4>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                3 => attend_rows::<3>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                2 => attend_rows::<2>(rows, row, keys, values, std::array::from_fn(|r| mask(row + r))),
                _ => attend_rows::<1>(rows, row, keys, values, [mask(row)]),
            };
        }
    }
}

/// All bits of the lanes whose bit in `mask`, from bit `first` on, is set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes(mask: u16, first: usize) -> __m256 {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let mask = _mm256_set1_epi32(i32::from(mask) >> first);
    _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(mask, bits), bits))
}

/// Rows `row .. row + N`. Returns `N`.
///
/// # Safety
/// As [`attend`]; the rows exist.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
    // SAFETY: the caller's promises: `n` is a multiple of 8.
    unsafe {
        let queries = rows.queries.as_ptr().add(row * n);
        let mut scores = [[_mm256_setzero_ps(); 2]; N];
        for d in 0..n {
            let key = load_halves(keys.as_ptr().add(d * ATTENTION_CHUNK).cast());
            for (r, scores) in scores.iter_mut().enumerate() {
                let query = _mm256_set1_ps(*queries.add(r * n + d));
                for (score, key) in scores.iter_mut().zip(key) {
                    *score = _mm256_fmadd_ps(query, key, *score);
                }
            }
        }
        for (r, scores) in scores.into_iter().enumerate() {
            if masks[r] == 0 {
                continue;
            }
            let visible = [lanes(masks[r], 0), lanes(masks[r], 8)];
            let minus_infinity = _mm256_set1_ps(f32::NEG_INFINITY);
            let low = _mm256_blendv_ps(minus_infinity, scores[0], visible[0]);
            let high = _mm256_blendv_ps(minus_infinity, scores[1], visible[1]);
            let (maximum, sum) = (&mut rows.maxima[row + r], &mut rows.totals[row + r]);
            let largest = maximum.max(largest(_mm256_max_ps(low, high)));
            let low = _mm256_and_ps(exp(_mm256_sub_ps(low, _mm256_set1_ps(largest))), visible[0]);
            let high = _mm256_and_ps(exp(_mm256_sub_ps(high, _mm256_set1_ps(largest))), visible[1]);
            if largest > *maximum {
                factors[r] = (*maximum - largest).exp();
                *maximum = largest;
            }
            *sum = *sum * factors[r] + total(_mm256_add_ps(low, high));
            _mm256_storeu_ps(weights[r].as_mut_ptr(), low);
            _mm256_storeu_ps(weights[r].as_mut_ptr().add(8), high);
        }
        let sums = rows.sums.as_mut_ptr().add(row * n);
        for d in (0..n).step_by(8) {
            let mut parts: [__m256; N] = std::array::from_fn(|r| {
                _mm256_mul_ps(_mm256_loadu_ps(sums.add(r * n + d)), _mm256_set1_ps(factors[r]))
            });
            #[expect(clippy::needless_range_loop, reason = "the position is the second index of every row's weights")]
            for position in 0..ATTENTION_CHUNK {
                let value = _mm256_cvtph_ps(_mm_loadu_si128(values.as_ptr().add(position * n + d).cast()));
                for (r, part) in parts.iter_mut().enumerate() {
                    *part = _mm256_fmadd_ps(_mm256_set1_ps(weights[r][position]), value, *part);
                }
            }
            for (r, part) in parts.into_iter().enumerate() {
                _mm256_storeu_ps(sums.add(r * n + d), part);
            }
        }
    }
    N
}
