//! Rounds input rows to 8 bits, as the scalar reference does to the bit.

use std::arch::x86_64::{
    _mm_add_epi64, _mm_cvtsi128_si32, _mm_sad_epu8, _mm_set1_epi8, _mm_setzero_si128, _mm_unpackhi_epi64,
    _mm_xor_si128, _mm256_andnot_ps, _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extracti128_si256,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_storeu_si256,
};

use super::vector::largest;
use crate::kernels::input::{BLOCK, CHUNK, FloatChunk, Input, IntegerChunk, SharedChunks};
use crate::kernels::scalar;

/// Fills the forms that `Input::reset` made room for.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) unsafe fn prepare_shared(x: &[[f32; BLOCK]], chunks: SharedChunks, token: usize, column: usize) {
    let mut chunk = IntegerChunk::ZERO;
    for (b, x) in x.iter().enumerate() {
        quantize(x, &mut chunk, 0);
        // SAFETY: the caller's promise.
        unsafe { chunks.set_block(token, column + b * BLOCK, &chunk) };
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn quantize(x: &[f32; BLOCK], chunk: &mut IntegerChunk, index: usize) {
    // SAFETY: 32 elements.
    let x: [_; 4] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) });
    let [a, b, c, d] = x.map(|x| _mm256_andnot_ps(_mm256_set1_ps(-0.0), x));
    let largest = largest(_mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d)));
    let scale = largest / 127.0;
    let inverse = _mm256_set1_ps(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let [a, b, c, d] = x.map(|x| _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse)));
    // Packing works on 128-bit lanes, so that fours are out of order afterwards.
    let quants = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let quants = _mm256_permutevar8x32_epi32(quants, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let out = &mut chunk.quants[index * BLOCK..][..BLOCK];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), quants) };
    let mut total = 0;
    for (half, quants) in
        [_mm256_castsi256_si128(quants), _mm256_extracti128_si256::<1>(quants)].into_iter().enumerate()
    {
        // Sums of absolute differences want unsigned bytes: 128 more each.
        let sums = _mm_sad_epu8(_mm_xor_si128(quants, _mm_set1_epi8(-128)), _mm_setzero_si128());
        let sum = _mm_cvtsi128_si32(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128;
        total += sum;
        chunk.negative_sums[2 * index + half] = -sum;
        chunk.scaled_half_sums[2 * index + half] = scale * sum as f32;
    }
    chunk.scales[index] = scale;
    chunk.scaled_sums[index] = scale * total as f32;
}
