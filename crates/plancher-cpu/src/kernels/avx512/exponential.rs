//! Sums of `exp` and logits above a threshold, sixteen at a time; bit for bit the reference's results.

use std::arch::x86_64::{
    __m512, _CMP_GE_OQ, _mm512_add_epi32, _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_loadu_ps, _mm512_mask_add_ps, _mm512_maskz_compress_epi32, _mm512_maskz_compress_ps, _mm512_maskz_loadu_ps,
    _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi32, _mm512_setzero_ps, _mm512_slli_epi32,
    _mm512_storeu_epi32, _mm512_storeu_ps, _mm512_sub_ps,
};

use crate::kernels::exponential::{COEFFICIENTS, LEAST, LN2_HIGH, LN2_LOW, MAGIC};

/// Adds `exp(x)` to the lanes of `sum` whose `x` is in range. Two roundings for every product and sum, as the reference.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn add_exponential(sum: __m512, x: __m512) -> __m512 {
    // Out of range the lanes hold nonsense, which the mask keeps out of the sum.
    let in_range = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_set1_ps(LEAST));
    let shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E)), _mm512_set1_ps(MAGIC));
    let n = _mm512_sub_ps(shifted, _mm512_set1_ps(MAGIC));
    let r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(LN2_HIGH)));
    let r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(LN2_LOW)));
    let mut p = _mm512_set1_ps(COEFFICIENTS[0]);
    for &coefficient in &COEFFICIENTS[1..] {
        p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(coefficient));
    }
    let power = _mm512_add_epi32(_mm512_slli_epi32::<23>(_mm512_castps_si512(shifted)), _mm512_castps_si512(p));
    _mm512_mask_add_ps(sum, in_range, sum, _mm512_castsi512_ps(power))
}

/// The first `min(n, 16)` elements as a mask.
fn first(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// The lanes whose sum is [`crate::kernels::Kernels::sum_of_exponentials`].
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn lanes_of_exponentials(values: &[f32], maximum: f32) -> [f32; 16] {
    let mut sum = _mm512_setzero_ps();
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        // SAFETY: the chunk has sixteen elements.
        let x = unsafe { _mm512_loadu_ps(chunk.as_ptr()) };
        sum = add_exponential(sum, _mm512_sub_ps(x, _mm512_set1_ps(maximum)));
    }
    let mut lanes = [0.0; 16];
    // SAFETY: the array has sixteen elements.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sum) };
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += crate::kernels::exponential(x - maximum);
    }
    lanes
}

/// See [`crate::kernels::Kernels::at_least`].
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn at_least(
    values: &[f32],
    threshold: f32,
    indices: &mut Vec<u32>,
    found: &mut Vec<f32>,
) {
    let least = _mm512_set1_ps(threshold);
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (start, chunk) in (0..).step_by(16).zip(values.chunks(16)) {
        let exists = first(chunk.len());
        // SAFETY: the mask covers the elements that exist.
        let x = unsafe { _mm512_maskz_loadu_ps(exists, chunk.as_ptr()) };
        let mask = exists & _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, least);
        if mask == 0 {
            continue;
        }
        indices.reserve(16);
        found.reserve(16);
        let (indices_len, found_len) = (indices.len(), found.len());
        let n = mask.count_ones() as usize;
        let tokens = _mm512_add_epi32(lanes, _mm512_set1_epi32(start));
        // SAFETY: sixteen more elements were reserved in each; the first `n` of them are now initialised.
        unsafe {
            _mm512_storeu_epi32(
                indices.as_mut_ptr().add(indices_len).cast(),
                _mm512_maskz_compress_epi32(mask, tokens),
            );
            _mm512_storeu_ps(found.as_mut_ptr().add(found_len), _mm512_maskz_compress_ps(mask, x));
            indices.set_len(indices_len + n);
            found.set_len(found_len + n);
        }
    }
}
