//! Quantised weights times one token, and the integer products that all quantised kernels here share.

use std::arch::x86_64::{
    __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps,
    _mm256_fnmadd_ps, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_xor_si256,
};

use super::unpack::{Scales, quad, scales};
use super::{Floats, Output, Words};
use crate::kernels::format::{Format, for_each_sub};
use crate::kernels::input::{BLOCK, CHUNK, Input, IntegerChunk};
use crate::kernels::layout::{self, TILE_ROWS};

/// Quads of 32 elements.
pub(super) const QUADS: usize = BLOCK / 4;

/// # Safety
/// As [`crate::kernels::Kernels::multiply`], for one token; the machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode<F: Format>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32) {
    let blocks = input.columns / F::DTYPE.block_elements();
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        // SAFETY: the tile holds `blocks` blocks. `F::SUBS` groups a block, eight a chunk: `columns / 32` groups in
        // all, so the chunk exists.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); 2];
            for b in 0..blocks {
                let (header, payload) = layout::block_offsets(F::DTYPE, b);
                let (header, payload) = (tile.as_ptr().add(header), tile.as_ptr().add(payload));
                let first = b * F::SUBS;
                let chunk = input.integers().get_unchecked(first / (CHUNK / BLOCK));
                let scales = scales::<F>(header, payload);
                for_each_sub!(F, S => {
                    sums = add_product::<F, S>(payload, &scales, chunk, first % (CHUNK / BLOCK) + S, sums);
                });
            }
            Output::tile(out, 0, t, rows).store(0, sums);
        }
    }
}

/// Quads of which the products with the input may be added as 16-bit numbers: two products a quad, each at most 127
/// times the largest stored value.
pub(super) const fn run<F: Format>() -> usize {
    match F::BITS {
        ..=3 => QUADS / if F::HALVES { 2 } else { 1 },
        4 => QUADS,
        5 => 4,
        6 => 2,
        _ => 1,
    }
}

/// Four elements of the input in every lane.
///
/// # Safety
/// `4 * quad + 3` is below [`CHUNK`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quad_of(chunk: *const IntegerChunk, quad: usize) -> __m256i {
    // SAFETY: `quants` is the first field and aligned.
    unsafe { _mm256_set1_epi32(chunk.cast::<i32>().add(quad).read()) }
}

/// Sums of two products of stored quants with the input, exact: eight-bit quants are made signed first, and their
/// signs moved to the input, so that two products are at most 2 * 128 * 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn products<F: Format>(weights: __m256i, x: __m256i) -> __m256i {
    if F::BITS < 8 {
        return _mm256_maddubs_epi16(weights, x);
    }
    let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
    _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
}

/// Adds the sums of two products to `dots`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_pairs(dots: &mut Words, pairs: Words) {
    for (dot, pairs) in dots.iter_mut().zip(pairs) {
        *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
}

/// What offsets of the stored quants subtract from half `half` of group `index`, or from all of it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn correction<F: Format>(chunk: &IntegerChunk, index: usize, half: usize) -> Words {
    // Eight-bit quants are multiplied without their offset.
    if F::OFFSET == 0 || F::BITS == 8 {
        return [_mm256_setzero_si256(); 2];
    }
    let sums = &chunk.negative_sums;
    let sum = if F::HALVES { sums[2 * index + half] } else { sums[2 * index] + sums[2 * index + 1] };
    [_mm256_set1_epi32(sum * i32::from(F::OFFSET)); 2]
}

/// Adds the integers `dots`, scaled, and the minima to `sums`, as the scalar reference does.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_scaled<F: Format>(
    sums: &mut Floats,
    dots: Words,
    scale: Floats,
    minimum: impl FnOnce() -> Floats,
    (chunk, index, half): (&IntegerChunk, usize, usize),
) {
    let input_scale = _mm256_set1_ps(chunk.scales[index]);
    for (lane, sum) in sums.iter_mut().enumerate() {
        *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[lane]), _mm256_mul_ps(scale[lane], input_scale), *sum);
    }
    if F::MINIMA {
        let minimum = minimum();
        let input_sum = if F::HALVES { chunk.scaled_half_sums[2 * index + half] } else { chunk.scaled_sums[index] };
        let input_sum = _mm256_set1_ps(input_sum);
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = if F::MINIMA_ADDED {
                _mm256_fmadd_ps(minimum[lane], input_sum, *sum)
            } else {
                _mm256_fnmadd_ps(minimum[lane], input_sum, *sum)
            };
        }
    }
}

/// The scalar reference's `add_product`, in the same order.
///
/// # Safety
/// `payload` points to a block of `F`; `index` is below 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_product<F: Format, const S: usize>(
    payload: *const u8,
    scales: &Scales,
    chunk: &IntegerChunk,
    index: usize,
    mut sums: Floats,
) -> Floats {
    // Lets the compiler drop the checks of `index`.
    // SAFETY: the caller's promise.
    unsafe { std::hint::assert_unchecked(index < CHUNK / BLOCK) };
    let parts = if F::HALVES { 2 } else { 1 };
    for half in 0..parts {
        let mut dots = correction::<F>(chunk, index, half);
        for r in 0..QUADS / parts / const { run::<F>() } {
            let mut pairs = [_mm256_setzero_si256(); 2];
            for i in 0..const { run::<F>() } {
                let i = half * (QUADS / parts) + r * const { run::<F>() } + i;
                // SAFETY: `i` is below 8.
                let (weights, x) = unsafe { (quad::<F, S>(payload, i), quad_of(chunk, index * QUADS + i)) };
                for (pairs, weights) in pairs.iter_mut().zip(weights) {
                    *pairs = _mm256_add_epi16(*pairs, products::<F>(weights, x));
                }
            }
            add_pairs(&mut dots, pairs);
        }
        let minimum = || scales.minimum::<F>(S, half);
        add_scaled::<F>(&mut sums, dots, scales.scale::<F>(S, half), minimum, (chunk, index, half));
    }
    sums
}
