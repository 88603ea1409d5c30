//! Unpacking of quantised blocks: four consecutive elements of 16 rows as unsigned bytes, and the scales of the rows.
//! See [`crate::kernels::layout`] for where the bits lie.

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi32, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sllv_epi32, _mm256_srlv_epi32,
};

use plancher_model::DType;

use super::{Floats, Words};
use crate::kernels::format::Format;
use crate::kernels::layout::{SCALE, TILE_ROWS, WORD};

/// The scales of a block: factors for all of it, and for K-quants 8-bit factors of its parts, 16 rows each.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    scale: Floats,
    minimum: Floats,
    planes: [Words; 8],
}

/// # Safety
/// 64 bytes can be read at `pointer + offset`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load(pointer: *const u8, offset: usize) -> Words {
    // SAFETY: the caller's promise.
    unsafe {
        let pointer = pointer.add(offset);
        [_mm256_loadu_si256(pointer.cast()), _mm256_loadu_si256(pointer.add(32).cast())]
    }
}

/// Sixteen f16 as f32.
///
/// # Safety
/// They can be read at `pointer`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn load_halves(pointer: *const u8) -> Floats {
    // SAFETY: the caller's promise.
    unsafe {
        [_mm256_cvtph_ps(_mm_loadu_si128(pointer.cast())), _mm256_cvtph_ps(_mm_loadu_si128(pointer.add(16).cast()))]
    }
}

/// Bits `from ..` of every byte moved to `to ..`, all others cleared that `mask` lacks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bits(words: Words, from: usize, to: usize, mask: i8) -> Words {
    let one = |x: __m256i| {
        let moved = match from.cmp(&to) {
            std::cmp::Ordering::Less => _mm256_sllv_epi32(x, _mm256_set1_epi32((to - from) as i32)),
            std::cmp::Ordering::Equal => x,
            std::cmp::Ordering::Greater => _mm256_srlv_epi32(x, _mm256_set1_epi32((from - to) as i32)),
        };
        _mm256_and_si256(moved, _mm256_set1_epi8(mask))
    };
    [one(words[0]), one(words[1])]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn or(a: Words, b: Words) -> Words {
    [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
}

/// Reads the scales of a block.
///
/// # Safety
/// `header` and `payload` point to a block of `F` in a tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scales<F: Format>(header: *const u8, payload: *const u8) -> Scales {
    // SAFETY: all offsets lie within the block's scales and its payload.
    unsafe {
        let scale = load_halves(header);
        let minimum = if F::MINIMA { load_halves(header.add(SCALE)) } else { [_mm256_setzero_ps(); 2] };
        let mut planes = [[_mm256_setzero_si256(); 2]; 8];
        match F::DTYPE {
            DType::Q4_K | DType::Q5_K => {
                // Six bits each; the top two bits of the first eight hold the high bits of the last four.
                let [scale, minimum, low] = [load(payload, 0), load(payload, WORD), load(payload, 2 * WORD)];
                planes[0] = bits(scale, 0, 0, 63);
                planes[1] = or(bits(low, 0, 0, 15), bits(scale, 6, 4, 48));
                planes[2] = bits(minimum, 0, 0, 63);
                planes[3] = or(bits(low, 4, 0, 15), bits(minimum, 6, 4, 48));
            }
            DType::Q3_K => {
                let [first, second, high] = [load(payload, 0), load(payload, WORD), load(payload, 2 * WORD)];
                planes[0] = or(bits(first, 0, 0, 15), bits(high, 0, 4, 48));
                planes[1] = or(bits(second, 0, 0, 15), bits(high, 2, 4, 48));
                planes[2] = or(bits(first, 4, 0, 15), bits(high, 4, 4, 48));
                planes[3] = or(bits(second, 4, 0, 15), bits(high, 6, 4, 48));
                for plane in planes[..4].as_flattened_mut() {
                    *plane = _mm256_add_epi8(*plane, _mm256_set1_epi8(-32));
                }
            }
            DType::Q6_K => {
                for (i, plane) in planes[..4].iter_mut().enumerate() {
                    *plane = load(payload, i * WORD);
                }
            }
            DType::Q2_K => {
                for i in 0..4 {
                    let both = load(payload, i * WORD);
                    planes[i] = bits(both, 0, 0, 15);
                    planes[4 + i] = bits(both, 4, 0, 15);
                }
            }
            _ => {}
        }
        Scales { scale, minimum, planes }
    }
}

impl Scales {
    /// The scale of half `half` of group `sub`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn scale<F: Format>(&self, sub: usize, half: usize) -> Floats {
        match (F::SUBS, F::HALVES) {
            (1, _) => self.scale,
            (_, false) => self.times_plane(self.scale, sub),
            (_, true) => self.times_plane(self.scale, 2 * sub + half),
        }
    }

    /// The minimum of half `half` of group `sub`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn minimum<F: Format>(&self, sub: usize, half: usize) -> Floats {
        match (F::SUBS, F::HALVES) {
            (1, _) => self.minimum,
            (_, false) => self.times_plane(self.minimum, 8 + sub),
            (_, true) => self.times_plane(self.minimum, 16 + 2 * sub + half),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn times_plane(&self, factor: Floats, plane: usize) -> Floats {
        debug_assert!(plane < 32);
        let rows = |first: usize| -> __m256 {
            // SAFETY: 32 planes of 16 bytes.
            let bytes =
                unsafe { _mm_loadl_epi64(self.planes.as_ptr().cast::<u8>().add(plane * TILE_ROWS + first).cast()) };
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
        };
        [_mm256_mul_ps(factor[0], rows(0)), _mm256_mul_ps(factor[1], rows(8))]
    }
}

/// Quad `i` of group `S` of a block, offset not subtracted.
///
/// # Safety
/// `payload` points to a block of `F`, `i` is below 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quad<F: Format, const S: usize>(payload: *const u8, i: usize) -> Words {
    let (half, quarter) = (S / 4, S % 4);
    // SAFETY: all offsets lie within the block's payload.
    let word = |offset: usize, index: usize| unsafe { load(payload, offset + index * WORD) };
    match F::DTYPE {
        DType::Q8_0 => word(0, i),
        DType::Q4_0 | DType::Q4_1 => bits(word(0, i % 4), i / 4 * 4, 0, 15),
        DType::Q5_0 | DType::Q5_1 => or(bits(word(WORD, i % 4), i / 4 * 4, 0, 15), bits(word(0, 0), i, 4, 16)),
        DType::Q4_K => bits(word(192, S / 2 * 8 + i), S % 2 * 4, 0, 15),
        DType::Q5_K => {
            let low = word(192, if S < 2 { 2 * i } else { 8 + S / 2 * 8 + i });
            or(bits(low, S % 2 * 4, 0, 15), bits(word(192, 2 * i + 1), S, 4, 16))
        }
        DType::Q6_K => {
            let start = 256 + half * 24 * WORD;
            let low = word(start, if quarter % 2 == 0 { 2 * i } else { 16 + i });
            or(bits(low, quarter / 2 * 4, 0, 15), bits(word(start, 2 * i + 1), 2 * quarter, 4, 48))
        }
        DType::Q3_K => {
            let low = word(192, if half == 0 { 2 * i } else { 16 + i });
            or(bits(low, 2 * quarter, 0, 3), bits(word(192, 2 * i + 1), S, 2, 4))
        }
        DType::Q2_K => bits(word(256, half * 8 + i), 2 * quarter, 0, 3),
        _ => unreachable!(),
    }
}
