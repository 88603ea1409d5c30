//! Elementwise functions, eight elements at a time, and reductions of a vector.

use std::arch::x86_64::{
    __m128, __m256, __m256i, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32,
    _mm_max_ps, _mm_max_ss, _mm_movehdup_ps, _mm_movehl_ps, _mm256_add_epi32, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_castsi256_ps, _mm256_cvtps_epi32, _mm256_div_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_slli_epi32, _mm256_srai_epi32, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps,
};

use crate::kernels::vector::{GELU_CUBIC, GELU_LINEAR, Gate};

/// The low and the high half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(x: __m256) -> (__m128, __m128) {
    (_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x))
}

/// The largest element.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn largest(x: __m256) -> f32 {
    let (low, high) = halves(x);
    let x = _mm_max_ps(low, high);
    let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
}

/// The sum of the elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn total(x: __m256) -> f32 {
    let (low, high) = halves(x);
    let x = _mm_add_ps(low, high);
    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
}

/// `e^x` to about two units in the last place, for any `x` but NaN: `2^n e^r` with a polynomial on
/// `|r| <= ln 2 / 2`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exp(x: __m256) -> __m256 {
    // Beyond these the result is infinite or zero; without the bounds `n ln 2` would be.
    let x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-105.0)), _mm256_set1_ps(90.0));
    let scaled = _mm256_mul_ps(x, _mm256_set1_ps(std::f32::consts::LOG2_E));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(scaled);
    // ln 2 in two parts, of which the first has few bits, so that its multiples are exact.
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    let mut p = _mm256_set1_ps(1.0 / 5040.0);
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(coefficient));
    }
    // `2^n` may be no f32, though the result is: two factors.
    let n = _mm256_cvtps_epi32(n);
    let first = _mm256_srai_epi32::<1>(n);
    _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(first)), power_of_two(_mm256_sub_epi32(n, first)))
}

/// `2^n` for `n` of -126 … 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power_of_two(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// See [`crate::kernels::Kernels::gate_up`].
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) unsafe fn gate_up(function: Gate, gate: &mut [f32], up: &[f32]) {
    let (gates, gate_rest) = gate.as_chunks_mut::<8>();
    let (ups, up_rest) = up.as_chunks::<8>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        gate_up_eight(function, gate, up);
    }
    let (mut gate, mut up) = ([0.0; 8], [0.0; 8]);
    gate[..gate_rest.len()].copy_from_slice(gate_rest);
    up[..up_rest.len()].copy_from_slice(up_rest);
    gate_up_eight(function, &mut gate, &up);
    gate_rest.copy_from_slice(&gate[..gate_rest.len()]);
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn gate_up_eight(function: Gate, gate: &mut [f32; 8], up: &[f32; 8]) {
    // SAFETY: eight elements each.
    let (g, u) = unsafe { (_mm256_loadu_ps(gate.as_ptr()), _mm256_loadu_ps(up.as_ptr())) };
    let argument = match function {
        Gate::Silu => g,
        Gate::GeluTanh => {
            let slope = _mm256_fmadd_ps(_mm256_set1_ps(GELU_CUBIC), _mm256_mul_ps(g, g), _mm256_set1_ps(GELU_LINEAR));
            _mm256_mul_ps(g, slope)
        }
    };
    let denominator = _mm256_add_ps(_mm256_set1_ps(1.0), exp(_mm256_sub_ps(_mm256_setzero_ps(), argument)));
    let out = _mm256_mul_ps(_mm256_div_ps(g, denominator), u);
    // SAFETY: as above.
    unsafe { _mm256_storeu_ps(gate.as_mut_ptr(), out) };
}
