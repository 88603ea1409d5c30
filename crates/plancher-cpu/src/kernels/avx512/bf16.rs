//! BF16 and F8 weights times several tokens with bf16 products (AVX512-BF16): twice the rate of f32, and no less
//! precise than the weights; only the input is rounded.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_and_si512, _mm512_castps_si512, _mm512_cvtneps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_or_si512, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_srli_epi32,
};

use plancher_model::DType;

use super::Output;
use super::float::{F8, Plain};
use crate::kernels::input::{BrainChunk, CHUNK, Input};
use crate::kernels::layout::{COLUMN_PADDING, F8_COLUMNS, TILE_ROWS, WORD};

/// Columns unpacked together: those that share a scale in F8.
const PANEL: usize = F8_COLUMNS;

/// Rounds columns to bf16.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
pub(super) unsafe fn round(x: &[f32], chunk: &mut BrainChunk) {
    let mut padded = [0.0_f32; CHUNK];
    padded[..x.len()].copy_from_slice(x);
    for (x, out) in padded.chunks_exact(16).zip(chunk.0.chunks_exact_mut(16)) {
        // SAFETY: 16 elements each; a vector of bf16 is 16 times 16 bits.
        unsafe {
            let rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(x.as_ptr()));
            out.as_mut_ptr().cast::<std::arch::x86_64::__m256bh>().write_unaligned(rounded);
        }
    }
}

/// # Safety
/// As [`crate::kernels::Kernels::multiply`]; the machine has the instructions; `dtype` is BF16 or F8.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
pub(super) unsafe fn multiply(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    let scaled = dtype == DType::F8_E4M3;
    let columns = input.columns.next_multiple_of(if scaled { F8_COLUMNS } else { COLUMN_PADDING });
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    let mut panel = [_mm512_setzero_si512(); PANEL / 2];
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        let mut pointer = tile.as_ptr();
        for start in (0..columns).step_by(PANEL) {
            let pairs = (columns - start).min(PANEL) / 2;
            // SAFETY: panels cover the padded columns of the tile exactly; the output is the caller's promise.
            unsafe {
                let mut scale = None;
                if scaled {
                    scale = Some(_mm512_loadu_ps(pointer.cast()));
                    pointer = pointer.add(WORD);
                    for pair in panel.chunks_exact_mut(2) {
                        let columns = F8::columns(pointer);
                        pair[0] = join(columns[0], columns[1]);
                        pair[1] = join(columns[2], columns[3]);
                        pointer = pointer.add(F8::BYTES);
                    }
                } else {
                    for pair in &mut panel[..pairs] {
                        *pair = _mm512_loadu_si512(pointer.cast());
                        pointer = pointer.add(WORD);
                    }
                }
                let chunks = &input.brains[start / CHUNK * input.tokens..][..input.tokens];
                let mut output = Output::tile(out, stride, t, rows);
                let mut done = 0;
                while done < chunks.len() {
                    let (panel, chunks, first) = (&panel[..pairs], &chunks[done..], start % CHUNK / 2);
                    let n = match chunks.len() {
                        8.. => apply::<8>(panel, scale, chunks, first, output, start == 0),
                        4..8 => apply::<4>(panel, scale, chunks, first, output, start == 0),
                        2..4 => apply::<2>(panel, scale, chunks, first, output, start == 0),
                        _ => apply::<1>(panel, scale, chunks, first, output, start == 0),
                    };
                    done += n;
                    // In the last round nothing is written there.
                    output.out = output.out.wrapping_add(n * stride);
                }
            }
        }
    }
}

/// Two columns, which bf16 represents exactly, as pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
fn join(even: __m512, odd: __m512) -> __m512i {
    let high = _mm512_and_si512(_mm512_castps_si512(odd), _mm512_set1_epi32(0xFFFF_0000_u32 as i32));
    _mm512_or_si512(_mm512_srli_epi32::<16>(_mm512_castps_si512(even)), high)
}

/// # Safety
/// The output holds the rows of `output` for `N` tokens; `first + panel.len()` is at most `CHUNK / 2`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
unsafe fn apply<const N: usize>(
    panel: &[__m512i],
    scale: Option<__m512>,
    chunks: &[BrainChunk],
    first: usize,
    output: Output,
    fresh: bool,
) -> usize {
    let chunks = &chunks[..N];
    let mut before = [_mm512_setzero_ps(); N];
    // SAFETY: the caller's promises; vectors of bf16 and of integers are the same bits.
    unsafe {
        if !fresh {
            for (t, sum) in before.iter_mut().enumerate() {
                *sum = _mm512_maskz_loadu_ps(output.mask, output.out.add(t * output.stride));
            }
        }
        let mut sums = if scale.is_some() { [_mm512_setzero_ps(); N] } else { before };
        for (k, weights) in panel.iter().enumerate() {
            let weights: __m512bh = std::mem::transmute(*weights);
            for (t, sum) in sums.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32((&raw const chunks[t]).cast::<i32>().add(first + k).read());
                *sum = _mm512_dpbf16_ps(*sum, weights, std::mem::transmute::<__m512i, __m512bh>(pair));
            }
        }
        for (t, sum) in sums.into_iter().enumerate() {
            let sum = scale.map_or(sum, |scale| _mm512_fmadd_ps(sum, scale, before[t]));
            _mm512_mask_storeu_ps(output.out.add(t * output.stride), output.mask, sum);
        }
    }
    N
}
