//! Quantised weights times several tokens: 256 columns of a tile are unpacked once into a panel that stays in the
//! first-level cache, then applied to eight tokens at a time. The additions have the order of the one-token kernel,
//! so that the bits are the same.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T1, _mm_prefetch, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512,
};

use super::Output;
use super::decode::{correction, quad_of};
use super::format::{quads, scales};
use crate::kernels::format::{Format, for_each_sub};
use crate::kernels::input::{BLOCK, CHUNK, Input, IntegerChunk};
use crate::kernels::layout::{self, TILE_ROWS, WORD};

/// Groups of 32 columns in a chunk.
const GROUPS: usize = CHUNK / BLOCK;

/// How much output is worked on together: that many tiles take the same chunk of the input from the second-level
/// cache, rather than every tile all chunks, which may not fit there.
const OUTPUT_BYTES: usize = 256 << 10;

/// 256 columns of a tile, unpacked.
struct Panel {
    quads: [[__m512i; 8]; GROUPS],
    scales: [[__m512; 2]; GROUPS],
    minima: [[__m512; 2]; GROUPS],
}

/// # Safety
/// As [`crate::kernels::Kernels::multiply`]; the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
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
        quads: [[_mm512_setzero_si512(); 8]; GROUPS],
        scales: [[_mm512_setzero_ps(); 2]; GROUPS],
        minima: [[_mm512_setzero_ps(); 2]; GROUPS],
    };
    let together = (OUTPUT_BYTES / (input.tokens * WORD)).max(1);
    let tiles: Vec<(usize, &[u8])> = tiles.chunks_exact(tile_bytes).enumerate().collect();
    let passes = input.tokens.div_ceil(8);
    for (batch, next_batch) in tiles.chunks(together).zip(tiles.chunks(together).skip(1).map(Some).chain([None])) {
        for (c, chunks) in input.integers().chunks_exact(input.tokens).enumerate() {
            let first = c * GROUPS;
            let in_chunk = (groups - first).min(GROUPS);
            for (i, &(t, tile)) in batch.iter().enumerate() {
                let mut ahead = match (batch.get(i + 1), next_batch) {
                    (Some(&(_, next)), _) => chunk_of::<F>(next, c),
                    (None, _) if first + GROUPS < groups => chunk_of::<F>(batch[0].1, c + 1),
                    (None, Some(next)) => chunk_of::<F>(next[0].1, 0),
                    (None, None) => &[],
                };
                let lines = ahead.len().div_ceil(64 * passes);
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
                        ahead = prefetch(ahead, lines);
                        let n = match chunks.len() {
                            8.. => apply::<F, 8>(&panel, in_chunk, chunks, output, c == 0),
                            4..8 => apply::<F, 4>(&panel, in_chunk, chunks, output, c == 0),
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
}

/// The bytes of chunk `chunk` of a tile.
fn chunk_of<F: Format>(tile: &[u8], chunk: usize) -> &[u8] {
    let start = |chunk: usize| layout::block_offsets(F::DTYPE, chunk * GROUPS / F::SUBS).0;
    &tile[start(chunk).min(tile.len())..start(chunk + 1).min(tile.len())]
}

/// Fetches the first `lines` cache lines of `bytes` into the second-level cache; returns the rest.
#[inline]
fn prefetch(bytes: &[u8], lines: usize) -> &[u8] {
    let (now, later) = bytes.split_at((lines * 64).min(bytes.len()));
    for line in now.chunks(64) {
        // SAFETY: a prefetch has no architectural effect.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    later
}

/// Unpacks one block into the panel from group `g` on.
///
/// # Safety
/// `header` and `payload` point to a block of `F`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn unpack<F: Format>(panel: &mut Panel, g: usize, header: *const u8, payload: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let scales = scales::<F>(header, payload);
        for_each_sub!(F, S => {
            panel.quads[g + S] = quads::<F, S>(payload);
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn apply<F: Format, const N: usize>(
    panel: &Panel,
    groups: usize,
    chunks: &[IntegerChunk],
    output: Output,
    fresh: bool,
) -> usize {
    let chunks = &chunks[..N];
    let mut sums = [_mm512_setzero_ps(); N];
    if !fresh {
        for (t, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = unsafe { _mm512_maskz_loadu_ps(output.mask, output.out.add(t * output.stride)) };
        }
    }
    for g in 0..groups {
        let (quads, scales, minima) = (&panel.quads[g], &panel.scales[g], &panel.minima[g]);
        for half in 0..=usize::from(F::HALVES) {
            let mut dots = [_mm512_setzero_si512(); N];
            if F::OFFSET != 0 {
                for (t, dot) in dots.iter_mut().enumerate() {
                    let sums = &chunks[t].negative_sums;
                    *dot = correction::<F>(if F::HALVES { sums[2 * g + half] } else { sums[2 * g] + sums[2 * g + 1] });
                }
            }
            let range = if F::HALVES { 4 * half..4 * half + 4 } else { 0..8 };
            for i in range {
                for (t, dot) in dots.iter_mut().enumerate() {
                    // SAFETY: `g` is below the eight groups of a chunk.
                    *dot = _mm512_dpbusd_epi32(*dot, quads[i], unsafe { quad_of(&raw const chunks[t], g * 8 + i) });
                }
            }
            for (t, sum) in sums.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scales[half], _mm512_set1_ps(chunks[t].scales[g]));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), scale, *sum);
                if F::MINIMA {
                    let scaled =
                        if F::HALVES { chunks[t].scaled_half_sums[2 * g + half] } else { chunks[t].scaled_sums[g] };
                    let scaled = _mm512_set1_ps(scaled);
                    *sum = if F::MINIMA_ADDED {
                        _mm512_fmadd_ps(minima[half], scaled, *sum)
                    } else {
                        _mm512_fnmadd_ps(minima[half], scaled, *sum)
                    };
                }
            }
        }
    }
    for (t, sum) in sums.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(output.out.add(t * output.stride), output.mask, sum) };
    }
    N
}
