//! Plain types with f32 products, one token or several.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
    _mm256_srai_epi32,
};

use plancher_model::DType;

use super::unpack::load_halves;
use super::{Floats, Output, Words};
use crate::kernels::input::{CHUNK, FloatChunk, Input};
use crate::kernels::layout::{COLUMN_PADDING, F8_COLUMNS, SCALE, TILE_ROWS, WORD};

/// Columns taken together: four sums of two vectors hide the latency of additions.
const STEP: usize = 4;

/// Reads four columns of a tile without the scale of F8.
trait Plain {
    /// Bytes of four columns.
    const BYTES: usize;
    /// Columns that share a scale, if there are scales.
    const SPAN: Option<usize> = None;

    /// # Safety
    /// `BYTES` bytes can be read at `pointer`; the machine has the instructions.
    unsafe fn columns(pointer: *const u8) -> [Floats; STEP];
}

struct F32;
struct F16;
struct BF16;
struct F8;

impl Plain for F32 {
    const BYTES: usize = STEP * WORD;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn columns(pointer: *const u8) -> [Floats; STEP] {
        // SAFETY: the caller's promise.
        std::array::from_fn(|i| unsafe { load(pointer.add(i * WORD)) })
    }
}

impl Plain for F16 {
    const BYTES: usize = STEP * SCALE;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn columns(pointer: *const u8) -> [Floats; STEP] {
        // SAFETY: the caller's promise.
        std::array::from_fn(|i| unsafe { load_halves(pointer.add(i * SCALE)) })
    }
}

impl Plain for BF16 {
    const BYTES: usize = STEP * WORD / 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn columns(pointer: *const u8) -> [Floats; STEP] {
        let high = |x: __m256i| _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xFFFF_0000_u32 as i32)));
        let low = |x: __m256i| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x));
        // SAFETY: the caller's promise.
        let [first, second] = unsafe { [load_words(pointer), load_words(pointer.add(WORD))] };
        [first.map(low), first.map(high), second.map(low), second.map(high)]
    }
}

impl Plain for F8 {
    const BYTES: usize = WORD;
    const SPAN: Option<usize> = Some(F8_COLUMNS);

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn columns(pointer: *const u8) -> [Floats; STEP] {
        // SAFETY: the caller's promise.
        let words = unsafe { load_words(pointer) };
        [
            words.map(|x| e4m3(_mm256_slli_epi32::<24>(x))),
            words.map(|x| e4m3(_mm256_slli_epi32::<16>(x))),
            words.map(|x| e4m3(_mm256_slli_epi32::<8>(x))),
            words.map(|x| e4m3(x)),
        ]
    }
}

/// # Safety
/// 64 bytes can be read at `pointer`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load(pointer: *const u8) -> Floats {
    // SAFETY: the caller's promise.
    unsafe { [_mm256_loadu_ps(pointer.cast()), _mm256_loadu_ps(pointer.add(32).cast())] }
}

/// # Safety
/// 64 bytes can be read at `pointer`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_words(pointer: *const u8) -> Words {
    // SAFETY: the caller's promise.
    unsafe { [_mm256_loadu_si256(pointer.cast()), _mm256_loadu_si256(pointer.add(32).cast())] }
}

/// The 8-bit floats in the top bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn e4m3(words: __m256i) -> __m256 {
    // Sign, and the magnitude moved to f32's exponent; the product corrects the bias, also for denormals.
    let bits = _mm256_and_si256(_mm256_srai_epi32::<4>(words), _mm256_set1_epi32(0x87F0_0000_u32 as i32));
    _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(f32::from_bits((127 + 120) << 23)))
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

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn decode_plain<P: Plain>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32) {
    let columns = padded_columns::<P>(input);
    let x = input.floats.as_ptr().cast::<f32>();
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        let mut pointer = tile.as_ptr();
        let mut total = [_mm256_setzero_ps(); 2];
        let mut start = 0;
        // SAFETY: spans cover the padded columns of the tile exactly; the input has zeros up to whole chunks, which
        // are multiples of every span.
        unsafe {
            while start < columns {
                let end = P::SPAN.map_or(columns, |span| start + span);
                let scale = P::SPAN.map(|_| load(pointer));
                pointer = pointer.add(if P::SPAN.is_some() { WORD } else { 0 });
                let mut sums = [[_mm256_setzero_ps(); 2]; STEP];
                for k in (start..end).step_by(STEP) {
                    let weights = P::columns(pointer);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let x = _mm256_set1_ps(x.add(k + i).read());
                        for (sum, weights) in sum.iter_mut().zip(weights[i]) {
                            *sum = _mm256_fmadd_ps(weights, x, *sum);
                        }
                    }
                    pointer = pointer.add(P::BYTES);
                }
                for (lane, total) in total.iter_mut().enumerate() {
                    let sum = _mm256_add_ps(
                        _mm256_add_ps(sums[0][lane], sums[1][lane]),
                        _mm256_add_ps(sums[2][lane], sums[3][lane]),
                    );
                    *total = scale.map_or(_mm256_add_ps(sum, *total), |s| _mm256_fmadd_ps(sum, s[lane], *total));
                }
                start = end;
            }
            Output::tile(out, 0, t, rows).store(0, total);
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

/// Columns of a tile that are unpacked together, to f32.
const PANEL: usize = F8_COLUMNS;

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_plain<P: Plain>(tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    let columns = padded_columns::<P>(input);
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    let mut panel = [[_mm256_setzero_ps(); 2]; PANEL];
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        let mut pointer = tile.as_ptr();
        for start in (0..columns).step_by(PANEL) {
            let width = (columns - start).min(PANEL);
            // SAFETY: panels cover the padded columns of the tile exactly; the output is the caller's promise.
            unsafe {
                let scale = P::SPAN.map(|_| load(pointer));
                pointer = pointer.add(if P::SPAN.is_some() { WORD } else { 0 });
                for group in panel[..width].chunks_exact_mut(STEP) {
                    for (out, column) in group.iter_mut().zip(P::columns(pointer)) {
                        *out = scale.map_or(column, |scale| {
                            [_mm256_mul_ps(column[0], scale[0]), _mm256_mul_ps(column[1], scale[1])]
                        });
                    }
                    pointer = pointer.add(P::BYTES);
                }
                let chunks = &input.floats[start / CHUNK * input.tokens..][..input.tokens];
                let mut output = Output::tile(out, stride, t, rows);
                let mut done = 0;
                while done < chunks.len() {
                    let (panel, chunks, first) = (&panel[..width], &chunks[done..], start % CHUNK);
                    let n = match chunks.len() {
                        6.. => apply::<6>(panel, chunks, first, output, start == 0),
                        4..6 => apply::<4>(panel, chunks, first, output, start == 0),
                        2..4 => apply::<2>(panel, chunks, first, output, start == 0),
                        _ => apply::<1>(panel, chunks, first, output, start == 0),
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
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn apply<const N: usize>(
    panel: &[Floats],
    chunks: &[FloatChunk],
    first: usize,
    output: Output,
    fresh: bool,
) -> usize {
    let chunks = &chunks[..N];
    let mut sums = [[_mm256_setzero_ps(); 2]; N];
    // SAFETY: the caller's promises.
    unsafe {
        if !fresh {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = output.load(t);
            }
        }
        for (k, weights) in panel.iter().enumerate() {
            for (t, sum) in sums.iter_mut().enumerate() {
                let x = _mm256_set1_ps(*chunks[t].0.get_unchecked(first + k));
                for (sum, &weights) in sum.iter_mut().zip(weights) {
                    *sum = _mm256_fmadd_ps(weights, x, *sum);
                }
            }
        }
        for (t, sum) in sums.into_iter().enumerate() {
            output.store(t, sum);
        }
    }
    N
}
