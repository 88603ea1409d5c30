//! Quantised weights times one token: every weight is read once, so the aim is to unpack faster than memory
//! delivers.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_add_epi32, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_mask_storeu_ps, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_sllv_epi32,
};

use super::Output;
use super::format::{Scales, quads, scales};
use crate::kernels::format::{Format, for_each_sub};
use crate::kernels::input::{BLOCK, CHUNK, Input, IntegerChunk};
use crate::kernels::layout::{self, TILE_ROWS};

/// # Safety
/// As [`crate::kernels::Kernels::multiply`], for one token; the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn decode<F: Format>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32) {
    let blocks = input.columns / F::DTYPE.block_elements();
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        // SAFETY: the tile holds `blocks` blocks. `F::SUBS`
        // groups a block, eight a chunk: `columns / 32` groups in all, so the chunk exists.
        unsafe {
            let mut sum = _mm512_setzero_ps();
            for b in 0..blocks {
                let (header, payload) = layout::block_offsets(F::DTYPE, b);
                let (header, payload) = (tile.as_ptr().add(header), tile.as_ptr().add(payload));
                let first = b * F::SUBS;
                let chunk = input.integers().get_unchecked(first / (CHUNK / BLOCK));
                let scales = scales::<F>(header, payload);
                for_each_sub!(F, S => {
                    let quads = quads::<F, S>(payload);
                    sum = add_product::<F>(&quads, &scales, S, chunk, first % (CHUNK / BLOCK) + S, sum);
                });
            }
            let output = Output::tile(out, 0, t, rows);
            _mm512_mask_storeu_ps(output.out, output.mask, sum);
        }
    }
}

/// Four elements of the input in every lane.
///
/// # Safety
/// `4 * quad + 3` is below [`CHUNK`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn quad_of(chunk: *const IntegerChunk, quad: usize) -> __m512i {
    // SAFETY: `quants` is the first field and aligned.
    unsafe { _mm512_set1_epi32(chunk.cast::<i32>().add(quad).read()) }
}

/// `offset * negative_sum` in every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn correction<F: Format>(negative_sum: i32) -> __m512i {
    if F::OFFSET == 0 {
        return _mm512_setzero_si512();
    }
    _mm512_sllv_epi32(_mm512_set1_epi32(negative_sum), _mm512_set1_epi32(F::OFFSET.trailing_zeros() as i32))
}

/// The scalar reference's `add_product`, in the same order.
///
/// # Safety
/// `index` is below 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn add_product<F: Format>(
    quads: &[__m512i; 8],
    scales: &Scales,
    sub: usize,
    chunk: &IntegerChunk,
    index: usize,
    mut sum: __m512,
) -> __m512 {
    // SAFETY: eight groups a chunk.
    unsafe {
        let input_scale = _mm512_set1_ps(*chunk.scales.get_unchecked(index));
        let negative_sum = |half: usize| *chunk.negative_sums.get_unchecked(2 * index + half);
        let mut dots = [_mm512_setzero_si512(); 2];
        dots[0] = correction::<F>(if F::HALVES { negative_sum(0) } else { negative_sum(0) + negative_sum(1) });
        if F::HALVES {
            dots[1] = correction::<F>(negative_sum(1));
        }
        for (half, dot) in dots.iter_mut().enumerate() {
            for (i, &quad) in quads.iter().enumerate().skip(4 * half).take(4) {
                *dot = _mm512_dpbusd_epi32(*dot, quad, quad_of(chunk, index * 8 + i));
            }
        }
        if F::HALVES {
            for (half, dot) in dots.into_iter().enumerate() {
                let scale = _mm512_mul_ps(scales.scale::<F>(sub, half), input_scale);
                sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
                if F::MINIMA {
                    let sums = _mm512_set1_ps(*chunk.scaled_half_sums.get_unchecked(2 * index + half));
                    sum = _mm512_fnmadd_ps(scales.minimum::<F>(sub, half), sums, sum);
                }
            }
            return sum;
        }
        let scale = _mm512_mul_ps(scales.scale::<F>(sub, 0), input_scale);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(dots[0], dots[1])), scale, sum);
        if F::MINIMA {
            let sums = _mm512_set1_ps(*chunk.scaled_sums.get_unchecked(index));
            let minimum = scales.minimum::<F>(sub, 0);
            sum = if F::MINIMA_ADDED {
                _mm512_fmadd_ps(minimum, sums, sum)
            } else {
                _mm512_fnmadd_ps(minimum, sums, sum)
            };
        }
        sum
    }
}
