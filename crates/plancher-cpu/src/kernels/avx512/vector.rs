//! Elementwise functions, sixteen elements at a time.

use std::arch::x86_64::{
    __m512, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm512_add_ps, _mm512_div_ps, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps,
    _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_sub_ps,
};

use crate::kernels::vector::{GELU_CUBIC, GELU_LINEAR, Gate};

/// `e^x` to about two units in the last place, for any `x` but NaN: `2^n e^r` with a polynomial on
/// `|r| <= ln 2 / 2`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn exp(x: __m512) -> __m512 {
    // Beyond these the result is infinite or zero; without the bounds `n ln 2` would be.
    let x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-105.0)), _mm512_set1_ps(90.0));
    let scaled = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
    let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(scaled);
    // ln 2 in two parts, of which the first has few bits, so that its multiples are exact.
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693_359_4), x);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.121_944_4e-4), r);
    let mut p = _mm512_set1_ps(1.0 / 5040.0);
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient));
    }
    _mm512_scalef_ps(p, n)
}

/// See [`crate::kernels::Kernels::gate_up`].
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn gate_up(function: Gate, gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.chunks_mut(16).zip(up.chunks(16)) {
        let mask = ((1_u32 << gate.len()) - 1) as u16;
        // SAFETY: the mask covers the elements that exist.
        let (g, u) = unsafe { (_mm512_maskz_loadu_ps(mask, gate.as_ptr()), _mm512_maskz_loadu_ps(mask, up.as_ptr())) };
        let argument = match function {
            Gate::Silu => g,
            Gate::GeluTanh => {
                let slope =
                    _mm512_fmadd_ps(_mm512_set1_ps(GELU_CUBIC), _mm512_mul_ps(g, g), _mm512_set1_ps(GELU_LINEAR));
                _mm512_mul_ps(g, slope)
            }
        };
        let denominator = _mm512_add_ps(_mm512_set1_ps(1.0), exp(_mm512_sub_ps(_mm512_setzero_ps(), argument)));
        let out = _mm512_mul_ps(_mm512_div_ps(g, denominator), u);
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(gate.as_mut_ptr(), mask, out) };
    }
}
