//! Plain types with f32 input, one token or several. Products of bf16 would be twice as fast for BF16 and F8, but
//! rounding every input to bf16 changes the tokens that small models choose.

use std::arch::x86_64::{
    __m512, __m512i, _mm256_loadu_si256, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtph_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_srai_epi32,
};

use plancher_model::DType;

use super::Output;
use crate::kernels::input::{CHUNK, FloatChunk, Input};
use crate::kernels::layout::{COLUMN_PADDING, F8_COLUMNS, TILE_ROWS, WORD};

/// Columns taken together: four sums hide the latency of additions.
pub(super) const STEP: usize = 4;

/// Reads four columns of a tile without the scale of F8.
pub(super) trait Plain {
    /// Bytes of four columns.
    const BYTES: usize;
    /// Columns that share a scale, if there are scales.
    const SPAN: Option<usize> = None;

    /// # Safety
    /// `BYTES` bytes can be read at `pointer`.
    unsafe fn columns(pointer: *const u8) -> [__m512; STEP];
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;
pub(super) struct F8;

impl Plain for F32 {
    const BYTES: usize = STEP * WORD;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn columns(pointer: *const u8) -> [__m512; STEP] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                _mm512_loadu_ps(pointer.cast()),
                _mm512_loadu_ps(pointer.add(WORD).cast()),
                _mm512_loadu_ps(pointer.add(2 * WORD).cast()),
                _mm512_loadu_ps(pointer.add(3 * WORD).cast()),
            ]
        }
    }
}

impl Plain for F16 {
    const BYTES: usize = STEP * WORD / 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn columns(pointer: *const u8) -> [__m512; STEP] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                _mm512_cvtph_ps(_mm256_loadu_si256(pointer.cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(pointer.add(32).cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(pointer.add(64).cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(pointer.add(96).cast())),
            ]
        }
    }
}

impl Plain for BF16 {
    const BYTES: usize = STEP * WORD / 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn columns(pointer: *const u8) -> [__m512; STEP] {
        // SAFETY: the caller's promise.
        let words = unsafe { [_mm512_loadu_si512(pointer.cast()), _mm512_loadu_si512(pointer.add(64).cast())] };
        let high = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
        [
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words[0])),
            _mm512_castsi512_ps(_mm512_and_si512(words[0], high)),
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words[1])),
            _mm512_castsi512_ps(_mm512_and_si512(words[1], high)),
        ]
    }
}

impl Plain for F8 {
    const BYTES: usize = WORD;
    const SPAN: Option<usize> = Some(F8_COLUMNS);

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn columns(pointer: *const u8) -> [__m512; STEP] {
        // SAFETY: the caller's promise.
        let words = unsafe { _mm512_loadu_si512(pointer.cast()) };
        [
            e4m3(_mm512_slli_epi32::<24>(words)),
            e4m3(_mm512_slli_epi32::<16>(words)),
            e4m3(_mm512_slli_epi32::<8>(words)),
            e4m3(words),
        ]
    }
}

/// The 8-bit floats in the top bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn e4m3(words: __m512i) -> __m512 {
    // Sign, and the magnitude moved to f32's exponent; the product corrects the bias, also for denormals.
    let bits = _mm512_and_si512(_mm512_srai_epi32::<4>(words), _mm512_set1_epi32(0x87F0_0000_u32 as i32));
    _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(f32::from_bits((127 + 120) << 23)))
}

/// # Safety
/// As [`crate::kernels::Kernels::multiply`], for one token; the machine has the instructions.
pub(super) unsafe fn decode(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32) {
    // SAFETY: the caller's promises.
    unsafe {
        match dtype {
            DType::F32 => decode_plain::<F32>(tiles, rows, input, out),
            DType::F16 => decode_plain::<F16>(tiles, rows, input, out),
            DType::BF16 => decode_plain::<BF16>(tiles, rows, input, out),
            _ => decode_plain::<F8>(tiles, rows, input, out),
        }
    }
}

/// Columns of a tile, padding included.
fn padded_columns<P: Plain>(input: &Input) -> usize {
    input.columns.next_multiple_of(P::SPAN.unwrap_or(COLUMN_PADDING))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn decode_plain<P: Plain>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32) {
    let columns = padded_columns::<P>(input);
    let x = input.floats.as_ptr().cast::<f32>();
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        let mut pointer = tile.as_ptr();
        let mut total = _mm512_setzero_ps();
        let mut start = 0;
        // SAFETY: spans cover the padded columns of the tile exactly; the input has zeros up to whole chunks, which
        // are multiples of every span.
        unsafe {
            while start < columns {
                let end = P::SPAN.map_or(columns, |span| start + span);
                let scale = P::SPAN.map(|_| _mm512_loadu_ps(pointer.cast()));
                pointer = pointer.add(if P::SPAN.is_some() { WORD } else { 0 });
                let mut sums = [_mm512_setzero_ps(); STEP];
                // No prefetches: the hardware follows one ascending stream at the speed of memory.
                for k in (start..end).step_by(2 * STEP) {
                    for step in 0..2 {
                        let weights = P::columns(pointer);
                        for (i, sum) in sums.iter_mut().enumerate() {
                            let x = _mm512_set1_ps(x.add(k + step * STEP + i).read());
                            *sum = _mm512_fmadd_ps(weights[i], x, *sum);
                        }
                        pointer = pointer.add(P::BYTES);
                    }
                }
                let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
                total = scale.map_or(_mm512_add_ps(sum, total), |scale| _mm512_fmadd_ps(sum, scale, total));
                start = end;
            }
            let output = Output::tile(out, 0, t, rows);
            _mm512_mask_storeu_ps(output.out, output.mask, total);
        }
    }
}

/// # Safety
/// As [`crate::kernels::Kernels::multiply`]; the machine has the instructions.
pub(super) unsafe fn multiply(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    // SAFETY: the caller's promises.
    unsafe {
        match dtype {
            DType::F32 => multiply_plain::<F32>(tiles, rows, input, out, stride),
            DType::F16 => multiply_plain::<F16>(tiles, rows, input, out, stride),
            DType::BF16 => multiply_plain::<BF16>(tiles, rows, input, out, stride),
            _ => multiply_plain::<F8>(tiles, rows, input, out, stride),
        }
    }
}

/// 128 columns of a tile as f32, scaled.
struct Panel([__m512; PANEL]);
const PANEL: usize = F8_COLUMNS;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply_plain<P: Plain>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    let columns = padded_columns::<P>(input);
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    let mut panel = Panel([_mm512_setzero_ps(); PANEL]);
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        let mut pointer = tile.as_ptr();
        for start in (0..columns).step_by(PANEL) {
            let width = (columns - start).min(PANEL);
            // SAFETY: panels cover the padded columns of the tile exactly; the output is the caller's promise.
            unsafe {
                let scale = P::SPAN.map(|_| _mm512_loadu_ps(pointer.cast()));
                pointer = pointer.add(if P::SPAN.is_some() { WORD } else { 0 });
                for group in panel.0[..width].chunks_exact_mut(STEP) {
                    for (out, column) in group.iter_mut().zip(P::columns(pointer)) {
                        *out = scale.map_or(column, |scale| _mm512_mul_ps(column, scale));
                    }
                    pointer = pointer.add(P::BYTES);
                }
                let chunks = &input.floats[start / CHUNK * input.tokens..][..input.tokens];
                let mut output = Output::tile(out, stride, t, rows);
                let mut done = 0;
                while done < chunks.len() {
                    let (chunks, first) = (&chunks[done..], start % CHUNK);
                    let n = match chunks.len() {
                        8.. => apply::<8>(&panel.0[..width], chunks, first, output, start == 0),
                        4..8 => apply::<4>(&panel.0[..width], chunks, first, output, start == 0),
                        2..4 => apply::<2>(&panel.0[..width], chunks, first, output, start == 0),
                        _ => apply::<1>(&panel.0[..width], chunks, first, output, start == 0),
                    };
                    done += n;
                    // In the last round nothing is written there.
                    output.out = output.out.wrapping_add(n * stride);
                }
            }
        }
    }
}

/// Adds the products of a panel with the first `N` of `chunks`, from column `first` on, to the output, which starts
/// at zero where `fresh`. Returns `N`.
///
/// # Safety
/// The output holds the rows of `output` for `N` tokens; `first + panel.len()` is at most [`CHUNK`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn apply<const N: usize>(
    panel: &[__m512],
    chunks: &[FloatChunk],
    first: usize,
    output: Output,
    fresh: bool,
) -> usize {
    let chunks = &chunks[..N];
    let mut sums = [_mm512_setzero_ps(); N];
    // SAFETY: the caller's promises.
    unsafe {
        if !fresh {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_maskz_loadu_ps(output.mask, output.out.add(t * output.stride));
            }
        }
        for (k, weights) in panel.iter().enumerate() {
            for (t, sum) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*chunks[t].0.get_unchecked(first + k));
                *sum = _mm512_fmadd_ps(*weights, x, *sum);
            }
        }
        for (t, sum) in sums.into_iter().enumerate() {
            _mm512_mask_storeu_ps(output.out.add(t * output.stride), output.mask, sum);
        }
    }
    N
}
