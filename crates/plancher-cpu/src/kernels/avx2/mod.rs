//! AVX2 with FMA and F16C: a tile's 16 rows are the lanes of two vectors.

mod attention;
mod decode;
mod float;
mod integer;
mod prepare;
mod unpack;
mod vector;

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{__m256, __m256i, _mm256_loadu_ps, _mm256_storeu_ps};

use plancher_model::DType;

use super::format::with_format;
use super::input::Input;
use super::layout::TILE_ROWS;

pub(super) use attention::attend;
pub(super) use prepare::{prepare, prepare_shared};
pub(super) use vector::gate_up;

/// Whether this machine has what the kernels here use.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// An f32 of every row of a tile.
type Floats = [__m256; 2];

/// Four bytes, or an i32, of every row of a tile.
type Words = [__m256i; 2];

/// Where the results of a tile go: `out[token * stride + row]` for the first `rows` rows.
#[derive(Clone, Copy)]
struct Output {
    out: *mut f32,
    stride: usize,
    rows: usize,
}

impl Output {
    /// Tile `tile` of `rows` rows.
    ///
    /// # Safety
    /// `out` is as [`super::Kernels::multiply`] demands and `tile * TILE_ROWS < rows`.
    unsafe fn tile(out: *mut f32, stride: usize, tile: usize, rows: usize) -> Self {
        let rows = (rows - tile * TILE_ROWS).min(TILE_ROWS);
        // SAFETY: the first of the tile's rows exists.
        Self { out: unsafe { out.add(tile * TILE_ROWS) }, stride, rows }
    }

    /// The results of token `token`, zeros for rows that do not exist.
    ///
    /// # Safety
    /// The token exists and has results; the machine has the instructions.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(self, token: usize) -> Floats {
        let mut rows = [0.0_f32; TILE_ROWS];
        // SAFETY: the caller's promise; masked loads would be no faster where rows are missing.
        unsafe {
            let mut source = self.out.add(token * self.stride).cast_const();
            if self.rows < TILE_ROWS {
                std::ptr::copy_nonoverlapping(source, rows.as_mut_ptr(), self.rows);
                source = rows.as_ptr();
            }
            [_mm256_loadu_ps(source), _mm256_loadu_ps(source.add(8))]
        }
    }

    /// Sets the results of token `token`.
    ///
    /// # Safety
    /// The token exists; the machine has the instructions.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(self, token: usize, sums: Floats) {
        // SAFETY: the caller's promise; masked stores are slow on some machines.
        unsafe {
            let target = self.out.add(token * self.stride);
            if self.rows == TILE_ROWS {
                _mm256_storeu_ps(target, sums[0]);
                _mm256_storeu_ps(target.add(8), sums[1]);
            } else {
                let sums: [f32; TILE_ROWS] = std::mem::transmute(sums);
                std::ptr::copy_nonoverlapping(sums.as_ptr(), target, self.rows);
            }
        }
    }
}

/// See [`super::Kernels::vectorized`].
///
/// # Safety
/// [`is_available`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// See [`super::Kernels::multiply`].
///
/// # Safety
/// As there, and [`is_available`].
pub(super) unsafe fn multiply(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    use decode::decode;
    use integer::multiply_integer;
    // SAFETY: the caller's promises, passed on; `tiles` holds `rows` rows of `dtype` as `multiply` checked.
    unsafe {
        match (dtype.is_quantized(), input.tokens) {
            (_, 0) => {}
            (true, 1) => with_format!(dtype, decode(tiles, rows, input, out)),
            (true, _) => with_format!(dtype, multiply_integer(tiles, rows, input, out, stride)),
            (false, 1) => float::decode(dtype, tiles, rows, input, out),
            (false, _) => float::multiply(dtype, tiles, rows, input, out, stride),
        }
    }
}
