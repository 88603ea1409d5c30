//! Quantised weights times several tokens: 256 columns of a tile are unpacked once into a panel that stays in the
//! first-level cache, then applied to four tokens at a time. The additions have the order of the one-token kernel,
//! so that the bits are the same.

use std::arch::x86_64::{_mm256_add_epi16, _mm256_setzero_ps, _mm256_setzero_si256};

use super::decode::{QUADS, add_pairs, add_scaled, correction, products, quad_of, run};
use super::unpack::{quad, scales};
use super::{Floats, Output, Words};
use crate::kernels::format::{Format, for_each_sub};
use crate::kernels::input::{BLOCK, CHUNK, Input, IntegerChunk};
use crate::kernels::layout::{self, TILE_ROWS};

/// Groups of 32 columns in a chunk.
const GROUPS: usize = CHUNK / BLOCK;

/// 256 columns of a tile, unpacked.
struct Panel {
    quads: [[Words; QUADS]; GROUPS],
    scales: [[Floats; 2]; GROUPS],
    minima: [[Floats; 2]; GROUPS],
}

/// # Safety
/// As [`crate::kernels::Kernels::multiply`]; the machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply_integer<F: Format>(
    tiles: &[u8],
    rows: usize,
    input: &Input,
    out: *mut f32,
    stride: usize,
) {
    let groups = input.columns / BLOCK;
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    let mut panel = Panel {
        quads: [[[_mm256_setzero_si256(); 2]; QUADS]; GROUPS],
        scales: [[[_mm256_setzero_ps(); 2]; 2]; GROUPS],
        minima: [[[_mm256_setzero_ps(); 2]; 2]; GROUPS],
    };
    for (t, tile) in tiles.chunks_exact(tile_bytes).enumerate() {
        for (c, chunks) in input.integers().chunks_exact(input.tokens).enumerate() {
            let first = c * GROUPS;
            let in_chunk = (groups - first).min(GROUPS);
            // SAFETY: groups `first .. first + in_chunk` exist in the tile; the output is the caller's promise.
            unsafe {
                for g in (0..in_chunk).step_by(F::SUBS) {
                    let (header, payload) = layout::block_offsets(F::DTYPE, (first + g) / F::SUBS);
                    let (header, payload) = (tile.as_ptr().add(header), tile.as_ptr().add(payload));
                    unpack::<F>(&mut panel, g, header, payload);
                }
                let mut output = Output::tile(out, stride, t, rows);
                let mut chunks = chunks;
                while !chunks.is_empty() {
                    let n = match chunks.len() {
                        4.. => apply::<F, 4>(&panel, in_chunk, chunks, output, c == 0),
                        2..4 => apply::<F, 2>(&panel, in_chunk, chunks, output, c == 0),
                        _ => apply::<F, 1>(&panel, in_chunk, chunks, output, c == 0),
                    };
                    chunks = &chunks[n..];
                    // In the last round nothing is written there.
                    output.out = output.out.wrapping_add(n * stride);
                }
            }
        }
    }
}

/// Unpacks one block into the panel from group `g` on.
///
/// # Safety
/// `header` and `payload` point to a block of `F`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<F: Format>(panel: &mut Panel, g: usize, header: *const u8, payload: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let scales = scales::<F>(header, payload);
        for_each_sub!(F, S => {
            for (i, out) in panel.quads[g + S].iter_mut().enumerate() {
                *out = quad::<F, S>(payload, i);
            }
            for half in 0..=usize::from(F::HALVES) {
                panel.scales[g + S][half] = scales.scale::<F>(S, half);
                if F::MINIMA {
                    panel.minima[g + S][half] = scales.minimum::<F>(S, half);
                }
            }
        });
    }
}

/// Adds the products of a panel with the first `N` of `chunks` to the output, which starts at zero where `fresh`.
/// Returns `N`.
///
/// # Safety
/// The output holds the rows of `output` for `N` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn apply<F: Format, const N: usize>(
    panel: &Panel,
    groups: usize,
    chunks: &[IntegerChunk],
    output: Output,
    fresh: bool,
) -> usize {
    let chunks = &chunks[..N];
    let mut sums = [[_mm256_setzero_ps(); 2]; N];
    if !fresh {
        for (t, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = unsafe { output.load(t) };
        }
    }
    let parts = if F::HALVES { 2 } else { 1 };
    for g in 0..groups.min(GROUPS) {
        for half in 0..parts {
            let mut dots: [Words; N] = std::array::from_fn(|t| correction::<F>(&chunks[t], g, half));
            for r in 0..QUADS / parts / const { run::<F>() } {
                let mut pairs = [[_mm256_setzero_si256(); 2]; N];
                for i in 0..const { run::<F>() } {
                    let i = half * (QUADS / parts) + r * const { run::<F>() } + i;
                    let weights = panel.quads[g][i];
                    for (t, pairs) in pairs.iter_mut().enumerate() {
                        // SAFETY: `g` is below the eight groups of a chunk.
                        let x = unsafe { quad_of(&raw const chunks[t], g * QUADS + i) };
                        for (pairs, weights) in pairs.iter_mut().zip(weights) {
                            *pairs = _mm256_add_epi16(*pairs, products::<F>(weights, x));
                        }
                    }
                }
                for (dots, pairs) in dots.iter_mut().zip(pairs) {
                    add_pairs(dots, pairs);
                }
            }
            for (t, sums) in sums.iter_mut().enumerate() {
                let minimum = || panel.minima[g][half];
                add_scaled::<F>(sums, dots[t], panel.scales[g][half], minimum, (&chunks[t], g, half));
            }
        }
    }
    for (t, sums) in sums.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { output.store(t, sums) };
    }
    N
}
