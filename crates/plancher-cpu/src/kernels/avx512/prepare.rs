//! Rounds input rows to 8 bits, as the scalar reference does to the bit.

use std::arch::x86_64::{
    _mm_cvtsi128_si64, _mm_extract_epi64, _mm_sad_epu8, _mm_set1_epi8, _mm_setzero_si128, _mm_storeu_si128,
    _mm_xor_si128, _mm512_abs_ps, _mm512_cvtepi32_epi8, _mm512_cvtps_epi32, _mm512_loadu_ps, _mm512_max_ps,
    _mm512_mul_ps, _mm512_reduce_max_ps, _mm512_set1_ps,
};

use crate::kernels::input::{BLOCK, CHUNK, FloatChunk, Input, IntegerChunk, SharedChunks};
use crate::kernels::scalar;

/// Fills the forms that `Input::reset` made room for.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn prepare(x: &[f32], input: &mut Input) {
    let (tokens, columns) = (input.tokens, input.columns);
    for (t, row) in x.chunks_exact(columns).take(tokens).enumerate() {
        for (c, x) in row.chunks(CHUNK).enumerate() {
            if let Some(FloatChunk(out)) = input.floats.get_mut(c * tokens + t) {
                out[..x.len()].copy_from_slice(x);
                out[x.len()..].fill(0.0);
            }
            if let Some(out) = input.integers.get_mut(c * tokens + t) {
                let (blocks, rest) = x.as_chunks::<BLOCK>();
                for (b, x) in blocks.iter().enumerate() {
                    quantize(x, out, b);
                }
                if !rest.is_empty() {
                    scalar::quantize(rest, out, blocks.len());
                }
            }
        }
    }
}

/// See [`crate::kernels::Kernels::prepare_shared`].
///
/// # Safety
/// As there, and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::kernels) unsafe fn prepare_shared(x: &[[f32; BLOCK]], chunks: SharedChunks, token: usize, column: usize) {
    let mut chunk = IntegerChunk::ZERO;
    for (b, x) in x.iter().enumerate() {
        quantize(x, &mut chunk, 0);
        // SAFETY: the caller's promise.
        unsafe { chunks.set_block(token, column + b * BLOCK, &chunk) };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn quantize(x: &[f32; BLOCK], chunk: &mut IntegerChunk, index: usize) {
    // SAFETY: 32 elements.
    let halves = unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16))] };
    let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(halves[0]), _mm512_abs_ps(halves[1])));
    let scale = largest / 127.0;
    let inverse = _mm512_set1_ps(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let mut total = 0;
    for (half, x) in halves.into_iter().enumerate() {
        let quants = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
        let out = &mut chunk.quants[index * BLOCK + half * 16..][..16];
        // SAFETY: 16 bytes.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), quants) };
        // Sums of absolute differences want unsigned bytes: 128 more each.
        let sums = _mm_sad_epu8(_mm_xor_si128(quants, _mm_set1_epi8(-128)), _mm_setzero_si128());
        let sum = (_mm_cvtsi128_si64(sums) + _mm_extract_epi64::<1>(sums)) as i32 - 16 * 128;
        total += sum;
        chunk.negative_sums[2 * index + half] = -sum;
        chunk.scaled_half_sums[2 * index + half] = scale * sum as f32;
    }
    chunk.scales[index] = scale;
    chunk.scaled_sums[index] = scale * total as f32;
}
