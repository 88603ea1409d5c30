//! AMX: products of many tokens with the tile unit's bf16 products and f32 sums; everything else is AVX-512's.
//!
//! Weights of two tiles of rows and 256 columns are unpacked into a panel of bf16 pairs, which stays in the first
//! cache, and applied to 32 tokens at a time. bf16 tiles already are such panels. What bf16 rounds away is kept in a
//! second part where it matters: see [`Precision`].

mod probe;
#[cfg(test)]
mod tests;
mod unit;

use plancher_model::DType;

use super::avx512::{self, Parts};
use super::input::{CHUNK, Input};
use super::layout::{COLUMN_PADDING, TILE_ROWS};
use unit::{SIDE, STEP_BYTES, Segment, Sums, TileUnit, Unit};

pub(super) use probe::is_available;

/// The fewest tokens for which unpacking to bf16 pays: with fewer, tiles are not even full.
pub(super) const MIN_TOKENS: usize = SIDE;

/// Tokens that the unit takes together.
const TOKENS: usize = 2 * SIDE;

/// How many bf16 numbers represent an element, the first with eight bits, the second with the next eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Precision {
    inputs: usize,
    weights: usize,
}

impl Precision {
    const fn of(dtype: DType) -> Self {
        match dtype {
            // More precise than the weights are; and the 8-bit inputs of other instruction sets err more.
            dtype if dtype.is_quantized() => Self { inputs: 1, weights: 1 },
            DType::BF16 => Self { inputs: 2, weights: 1 },
            _ => Self { inputs: 2, weights: 2 },
        }
    }

    /// The products of parts that count, small ones first.
    fn products(self) -> impl Iterator<Item = (usize, usize)> {
        [(0, 1), (1, 0), (0, 0)]
            .into_iter()
            .filter(move |&(input, weight)| input < self.inputs && weight < self.weights)
    }
}

/// Rounded parts of a panel of 256 columns of a tile.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Panel([[u8; CHUNK / 32 * STEP_BYTES]; 2]);

/// Prepares `x` for products with matrices of the types in `dtypes`: `[chunk][part][token]`, tokens padded to whole
/// tiles.
///
/// # Safety
/// The machine has AVX-512 with bf16.
pub(super) unsafe fn prepare(x: &[f32], tokens: usize, columns: usize, dtypes: &[DType], input: &mut Input) {
    let parts = dtypes.iter().map(|&dtype| Precision::of(dtype).inputs).max().unwrap_or(1);
    let padded = tokens.next_multiple_of(SIDE);
    input.reset_parts(tokens, columns, padded, parts);
    for (c, chunk) in input.parts.chunks_exact_mut(parts * padded).enumerate() {
        for t in 0..padded {
            let x = if t < tokens { &x[t * columns..(t + 1) * columns][c * CHUNK..] } else { &[] };
            let x = &x[..x.len().min(CHUNK)];
            let (high, low) = chunk.split_at_mut(padded);
            // SAFETY: the caller's promise.
            unsafe { avx512::split(x, &mut high[t], low.get_mut(t)) };
        }
    }
}

/// Whether `input` has what products with weights of `dtype` read.
pub(super) fn is_prepared(dtype: DType, input: &Input) -> bool {
    let padded = input.tokens.next_multiple_of(SIDE);
    input.parts.len() >= input.chunks() * padded * Precision::of(dtype).inputs
}

/// Unpacks columns `start .. start + 32 * steps` of a tile into parts of a panel.
type Unpack = unsafe fn(dtype: DType, tile: &[u8], start: usize, steps: usize, panel: Parts);

/// See [`super::Kernels::multiply`].
///
/// # Safety
/// As there, [`is_available`], and `input` is prepared for the unit.
pub(super) unsafe fn multiply(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    // SAFETY: the caller's promises.
    unsafe { multiply_with(&TileUnit::new(), avx512::unpack_pairs, dtype, tiles, rows, input, out, stride) };
}

/// # Safety
/// As [`multiply`], for what `unit` and `unpack` demand of the machine.
#[expect(clippy::too_many_arguments, reason = "those of a product, and what computes it")]
unsafe fn multiply_with(
    unit: &impl Unit,
    unpack: Unpack,
    dtype: DType,
    tiles: &[u8],
    rows: usize,
    input: &Input,
    out: *mut f32,
    stride: usize,
) {
    let precision = Precision::of(dtype);
    let padded_tokens = input.tokens.next_multiple_of(SIDE);
    let parts = input.parts.len() / (padded_tokens * input.chunks());
    let steps = input.columns.div_ceil(COLUMN_PADDING);
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    #[expect(clippy::large_stack_arrays, reason = "32 KiB, which a product is to find in the first cache")]
    let mut panels = [Panel([[0; CHUNK / 32 * STEP_BYTES]; 2]); 2];
    for (pair, tiles) in tiles.chunks(2 * tile_bytes).enumerate() {
        let row_tiles = tiles.len() / tile_bytes;
        let rows = (rows - pair * 2 * TILE_ROWS).min(2 * TILE_ROWS);
        for (c, chunk) in input.parts.chunks_exact(parts * padded_tokens).enumerate() {
            let steps = (steps - c * CHUNK / 32).min(CHUNK / 32);
            // `[part][tile]`
            let mut weights = [[std::ptr::null(); 2]; 2];
            for (i, (tile, panel)) in tiles.chunks_exact(tile_bytes).zip(&mut panels).enumerate() {
                if dtype == DType::BF16 {
                    weights[0][i] = tile[c * CHUNK * TILE_ROWS * 2..][..steps * STEP_BYTES].as_ptr();
                    continue;
                }
                let [high, low] = panel.0.each_mut().map(|part| part.as_mut_ptr());
                (weights[0][i], weights[1][i]) = (high.cast_const(), low.cast_const());
                let panel = Parts { high, low: (precision.weights == 2).then_some(low) };
                // SAFETY: the tile has these columns, and the panel room for 256.
                unsafe { unpack(dtype, tile, c * CHUNK, steps, panel) };
            }
            for first in (0..input.tokens).step_by(TOKENS) {
                let tokens = (input.tokens - first).min(TOKENS);
                let mut segments = [Segment { input: std::ptr::null(), panels: weights[0], steps }; 3];
                let mut n = 0;
                for (input, weight) in precision.products() {
                    segments[n].input = chunk[input * padded_tokens + first..].as_ptr().cast();
                    segments[n].panels = weights[weight];
                    n += 1;
                }
                // SAFETY: inputs are padded to whole tiles, and panels are whole; results are the caller's promise.
                unsafe {
                    let start = out.add(first * stride + pair * 2 * TILE_ROWS);
                    let sums = Sums { start, stride, fresh: c == 0 };
                    accumulate(unit, &segments[..n], row_tiles, [tokens, rows], sums);
                }
            }
        }
    }
}

/// Calls the unit, on a copy where only some of its sums exist.
///
/// # Safety
/// As [`Unit::accumulate`], but only `[tokens, rows]` of the sums can be written.
unsafe fn accumulate(unit: &impl Unit, segments: &[Segment], row_tiles: usize, [tokens, rows]: [usize; 2], sums: Sums) {
    let token_tiles = tokens.div_ceil(SIDE);
    if tokens == token_tiles * SIDE && rows == row_tiles * TILE_ROWS {
        // SAFETY: the caller's promise.
        return unsafe { unit.accumulate(segments, token_tiles, row_tiles, sums) };
    }
    let mut copy = [0.0_f32; TOKENS * 2 * TILE_ROWS];
    for (token, copy) in copy.chunks_exact_mut(2 * TILE_ROWS).take(tokens).enumerate() {
        if !sums.fresh {
            // SAFETY: these sums exist.
            unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(sums.start.add(token * sums.stride), rows) };
        }
    }
    let copied = Sums { start: copy.as_mut_ptr(), stride: 2 * TILE_ROWS, fresh: sums.fresh };
    // SAFETY: the copy is as large as sums can be.
    unsafe { unit.accumulate(segments, token_tiles, row_tiles, copied) };
    for (token, copy) in copy.chunks_exact(2 * TILE_ROWS).take(tokens).enumerate() {
        // SAFETY: these sums exist.
        unsafe { sums.start.add(token * sums.stride).copy_from_nonoverlapping(copy.as_ptr(), rows) };
    }
}
