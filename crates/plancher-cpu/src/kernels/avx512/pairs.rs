//! Inputs and weights as bf16, for the tile unit: rounded, and if wanted with what rounding took away as a second
//! number.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtepi32_ps, _mm512_cvtne2ps_pbh, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutexvar_epi16, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_ps,
};

use plancher_model::DType;

use super::float::{BF16, F8, F16, F32, Plain, STEP};
use super::format::{quads, scales};
use crate::kernels::format::{Format, for_each_sub, with_format};
use crate::kernels::input::{BLOCK, BrainChunk, CHUNK};
use crate::kernels::layout::{self, F8_BYTES, F8_COLUMNS, WORD};

/// Where the parts of a panel go: elements rounded to bf16, and what was rounded away.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Parts {
    pub(in crate::kernels) high: *mut u8,
    pub(in crate::kernels) low: Option<*mut u8>,
}

/// Words `0, 16, 1, 17, …`: pairs of elements of two vectors of which one was converted after the other.
static INTERLEAVE: [u16; 32] = {
    let mut words = [0; 32];
    let mut i = 0;
    while i < 16 {
        words[2 * i] = i as u16;
        words[2 * i + 1] = 16 + i as u16;
        i += 1;
    }
    words
};

/// Rounds up to [`CHUNK`] columns, zeros after them.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
pub(in crate::kernels) unsafe fn split(x: &[f32], high: &mut BrainChunk, mut low: Option<&mut BrainChunk>) {
    let mut padded = [0.0_f32; CHUNK];
    let x = if x.len() < CHUNK {
        padded[..x.len()].copy_from_slice(x);
        &padded
    } else {
        x
    };
    for k in (0..CHUNK).step_by(32) {
        let x = &x[k..k + 32];
        // SAFETY: 32 elements each.
        unsafe {
            let (first, second) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16)));
            let rounded = round(first, second);
            _mm512_storeu_si512(high.0.as_mut_ptr().add(k).cast(), rounded);
            if let Some(low) = &mut low {
                let [a, b] = values(interleave(rounded));
                let rest = round(_mm512_sub_ps(first, a), _mm512_sub_ps(second, b));
                _mm512_storeu_si512(low.0.as_mut_ptr().add(k).cast(), rest);
            }
        }
    }
}

/// `first` then `second` as bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
fn round(first: __m512, second: __m512) -> __m512i {
    // SAFETY: vectors of bf16 and of integers are the same bits.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(second, first)) }
}

/// Pairs of an element of the first and one of the second half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
fn interleave(halves: __m512i) -> __m512i {
    // SAFETY: 64 bytes.
    let order = unsafe { _mm512_loadu_si512(INTERLEAVE.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, halves)
}

/// The first and the second elements of pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
fn values(pairs: __m512i) -> [__m512; 2] {
    let high = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(_mm512_and_si512(pairs, high))]
}

/// Writes columns `column` and `column + 1` of 16 rows to the parts of a panel.
///
/// # Safety
/// Every part has room for them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
unsafe fn store(panel: Parts, column: usize, [even, odd]: [__m512; 2]) {
    let rounded = interleave(round(even, odd));
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_storeu_si512(panel.high.add(column / 2 * WORD).cast(), rounded);
        if let Some(low) = panel.low {
            let [a, b] = values(rounded);
            let rest = interleave(round(_mm512_sub_ps(even, a), _mm512_sub_ps(odd, b)));
            _mm512_storeu_si512(low.add(column / 2 * WORD).cast(), rest);
        }
    }
}

/// Writes columns `start .. start + 32 * steps` of a tile to the parts of a panel as `[pair of columns][row][2]`.
///
/// # Safety
/// The machine has the instructions; the tile has these columns, `start` is a multiple of 256, and every part has
/// room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
pub(in crate::kernels) unsafe fn unpack_pairs(dtype: DType, tile: &[u8], start: usize, steps: usize, panel: Parts) {
    let columns = steps * BLOCK;
    // SAFETY: the caller's promises.
    unsafe {
        match dtype {
            DType::F32 => unpack_plain::<F32>(tile, start, columns, panel),
            DType::F16 => unpack_plain::<F16>(tile, start, columns, panel),
            DType::BF16 => unpack_plain::<BF16>(tile, start, columns, panel),
            DType::F8_E4M3 => unpack_plain::<F8>(tile, start, columns, panel),
            _ => with_format!(dtype, unpack_blocks(tile, start, columns, panel)),
        }
    }
}

/// # Safety
/// As [`unpack_pairs`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
unsafe fn unpack_plain<P: Plain>(tile: &[u8], start: usize, columns: usize, panel: Parts) {
    let mut scale = _mm512_set1_ps(1.0);
    let mut pointer = match P::SPAN {
        Some(_) => tile[start / F8_COLUMNS * F8_BYTES..].as_ptr(),
        None => tile[start / STEP * P::BYTES..].as_ptr(),
    };
    for column in (0..columns).step_by(STEP) {
        // SAFETY: the caller's promises; `start` begins a span.
        unsafe {
            if P::SPAN.is_some_and(|span| column % span == 0) {
                scale = _mm512_loadu_ps(pointer.cast());
                pointer = pointer.add(WORD);
            }
            let mut x = P::columns(pointer);
            if P::SPAN.is_some() {
                x = x.map(|x| _mm512_mul_ps(x, scale));
            }
            store(panel, column, [x[0], x[1]]);
            store(panel, column + 2, [x[2], x[3]]);
            pointer = pointer.add(P::BYTES);
        }
    }
}

/// # Safety
/// As [`unpack_pairs`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
unsafe fn unpack_blocks<F: Format>(tile: &[u8], start: usize, columns: usize, panel: Parts) {
    let elements = F::DTYPE.block_elements();
    for column in (0..columns).step_by(elements) {
        let (header, payload) = layout::block_offsets(F::DTYPE, (start + column) / elements);
        // SAFETY: the caller's promises: these blocks exist.
        unsafe {
            let (header, payload) = (tile.as_ptr().add(header), tile.as_ptr().add(payload));
            let scales = scales::<F>(header, payload);
            for_each_sub!(F, S => {
                let quads = quads::<F, S>(payload);
                for (half, quads) in quads.chunks_exact(4).enumerate() {
                    let scale = scales.scale::<F>(S, half);
                    // What is added to `scale * quant`.
                    let mut base = _mm512_setzero_ps();
                    if F::MINIMA {
                        base = scales.minimum::<F>(S, half);
                        if !F::MINIMA_ADDED {
                            base = _mm512_sub_ps(_mm512_setzero_ps(), base);
                        }
                    }
                    if F::OFFSET != 0 {
                        base = _mm512_fnmadd_ps(_mm512_set1_ps(f32::from(F::OFFSET)), scale, base);
                    }
                    for (i, &quad) in quads.iter().enumerate() {
                        let column = column + S * BLOCK + half * 16 + i * 4;
                        let element = |bits: __m512i| {
                            let quant = _mm512_and_si512(bits, _mm512_set1_epi32(0xFF));
                            _mm512_fmadd_ps(_mm512_cvtepi32_ps(quant), scale, base)
                        };
                        let first = [element(quad), element(_mm512_srli_epi32::<8>(quad))];
                        let second = [element(_mm512_srli_epi32::<16>(quad)), element(_mm512_srli_epi32::<24>(quad))];
                        store(panel, column, first);
                        store(panel, column + 2, second);
                    }
                }
            });
        }
    }
}
