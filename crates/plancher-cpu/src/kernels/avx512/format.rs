//! Unpacking of quantised blocks: 32 elements of 16 rows as eight vectors of unsigned bytes, each four consecutive
//! elements of every row, and the scales of the rows. See [`crate::kernels::layout`] for where the bits lie.

use std::arch::x86_64::{
    __m512, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_add_epi8, _mm512_and_si512, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srlv_epi32,
};

use plancher_model::DType;

use crate::kernels::format::Format;
use crate::kernels::layout::{SCALE, TILE_ROWS, WORD};

/// The scales of a block: factors for all of it, and for K-quants 8-bit factors of its parts, 16 rows each.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    scale: __m512,
    minimum: __m512,
    planes: [__m512i; 8],
}

/// # Safety
/// 64 bytes can be read at `pointer + offset`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn load(pointer: *const u8, offset: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(pointer.add(offset).cast()) }
}

/// Bits `from ..` of every byte moved to `to ..`, all others cleared that `mask` lacks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn bits(x: __m512i, from: usize, to: usize, mask: i8) -> __m512i {
    let moved = match from.cmp(&to) {
        std::cmp::Ordering::Less => _mm512_sllv_epi32(x, _mm512_set1_epi32((to - from) as i32)),
        std::cmp::Ordering::Equal => x,
        std::cmp::Ordering::Greater => _mm512_srlv_epi32(x, _mm512_set1_epi32((from - to) as i32)),
    };
    _mm512_and_si512(moved, _mm512_set1_epi8(mask))
}

/// Reads the scales of a block.
///
/// # Safety
/// `header` and `payload` point to a block of `F` in a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn scales<F: Format>(header: *const u8, payload: *const u8) -> Scales {
    // SAFETY: all offsets lie within the block's scales and its payload.
    unsafe {
        let scale = _mm512_cvtph_ps(_mm256_loadu_si256(header.cast()));
        let minimum =
            if F::MINIMA { _mm512_cvtph_ps(_mm256_loadu_si256(header.add(SCALE).cast())) } else { _mm512_setzero_ps() };
        let mut planes = [_mm512_setzero_si512(); 8];
        match F::DTYPE {
            DType::Q4_K | DType::Q5_K => {
                // Six bits each; the top two bits of the first eight hold the high bits of the last four.
                let [scale, minimum, low] = [load(payload, 0), load(payload, WORD), load(payload, 2 * WORD)];
                planes[0] = bits(scale, 0, 0, 63);
                planes[1] = _mm512_or_si512(bits(low, 0, 0, 15), bits(scale, 6, 4, 48));
                planes[2] = bits(minimum, 0, 0, 63);
                planes[3] = _mm512_or_si512(bits(low, 4, 0, 15), bits(minimum, 6, 4, 48));
            }
            DType::Q3_K => {
                let [first, second, high] = [load(payload, 0), load(payload, WORD), load(payload, 2 * WORD)];
                planes[0] = _mm512_or_si512(bits(first, 0, 0, 15), bits(high, 0, 4, 48));
                planes[1] = _mm512_or_si512(bits(second, 0, 0, 15), bits(high, 2, 4, 48));
                planes[2] = _mm512_or_si512(bits(first, 4, 0, 15), bits(high, 4, 4, 48));
                planes[3] = _mm512_or_si512(bits(second, 4, 0, 15), bits(high, 6, 4, 48));
                for plane in &mut planes[..4] {
                    *plane = _mm512_add_epi8(*plane, _mm512_set1_epi8(-32));
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
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn scale<F: Format>(&self, sub: usize, half: usize) -> __m512 {
        match (F::SUBS, F::HALVES) {
            (1, _) => self.scale,
            (_, false) => _mm512_mul_ps(self.scale, self.plane(sub)),
            (_, true) => _mm512_mul_ps(self.scale, self.plane(2 * sub + half)),
        }
    }

    /// The minimum of half `half` of group `sub`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn minimum<F: Format>(&self, sub: usize, half: usize) -> __m512 {
        match (F::SUBS, F::HALVES) {
            (1, _) => self.minimum,
            (_, false) => _mm512_mul_ps(self.minimum, self.plane(8 + sub)),
            (_, true) => _mm512_mul_ps(self.minimum, self.plane(16 + 2 * sub + half)),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn plane(&self, plane: usize) -> __m512 {
        debug_assert!(plane < 32);
        // SAFETY: 32 planes of 16 bytes.
        let bytes = unsafe { _mm_loadu_si128(self.planes.as_ptr().cast::<u8>().add(plane * TILE_ROWS).cast()) };
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
    }
}

/// The eight quads of group `S` of a block, offset not subtracted.
///
/// # Safety
/// `payload` points to a block of `F`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn quads<F: Format, const S: usize>(payload: *const u8) -> [__m512i; 8] {
    let mut quads = [_mm512_setzero_si512(); 8];
    let (half, quarter) = (S / 4, S % 4);
    for (i, quad) in quads.iter_mut().enumerate() {
        // SAFETY: all offsets lie within the block's payload.
        let word = |offset: usize, index: usize| unsafe { load(payload, offset + index * WORD) };
        *quad = match F::DTYPE {
            DType::Q8_0 => word(0, i),
            DType::Q4_0 | DType::Q4_1 => bits(word(0, i % 4), i / 4 * 4, 0, 15),
            DType::Q5_0 | DType::Q5_1 => {
                _mm512_or_si512(bits(word(WORD, i % 4), i / 4 * 4, 0, 15), bits(word(0, 0), i, 4, 16))
            }
            DType::Q4_K => bits(word(192, S / 2 * 8 + i), S % 2 * 4, 0, 15),
            DType::Q5_K => {
                let low = word(192, if S < 2 { 2 * i } else { 8 + S / 2 * 8 + i });
                _mm512_or_si512(bits(low, S % 2 * 4, 0, 15), bits(word(192, 2 * i + 1), S, 4, 16))
            }
            DType::Q6_K => {
                let start = 256 + half * 24 * WORD;
                let low = word(start, if quarter % 2 == 0 { 2 * i } else { 16 + i });
                _mm512_or_si512(bits(low, quarter / 2 * 4, 0, 15), bits(word(start, 2 * i + 1), 2 * quarter, 4, 48))
            }
            DType::Q3_K => {
                let low = word(192, if half == 0 { 2 * i } else { 16 + i });
                _mm512_or_si512(bits(low, 2 * quarter, 0, 3), bits(word(192, 2 * i + 1), S, 2, 4))
            }
            DType::Q2_K => bits(word(256, half * 8 + i), 2 * quarter, 0, 3),
            _ => unreachable!(),
        };
    }
    quads
}
