//! AVX-512 (F, BW, DQ, VL, VNNI): a vector lane is a row of the tile.

mod attention;
mod decode;
mod exponential;
mod float;
mod format;
mod integer;
mod pairs;
mod prepare;
mod vector;

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::__mmask16;

use plancher_model::DType;

use super::format::with_format;
use super::input::Input;
use super::layout::TILE_ROWS;

pub(super) use attention::attend;
pub(super) use exponential::{at_least, lanes_of_exponentials};
pub(super) use pairs::{Parts, split, unpack_pairs};
pub(super) use prepare::{prepare, prepare_shared};
pub(super) use vector::gate_up;

/// Whether this machine has what the kernels here use.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Whether it also rounds to bf16, which the forms for the tile unit need.
pub(super) fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

/// Where the results of a tile go: `out[token * stride + lane]` for the lanes in `mask`.
#[derive(Clone, Copy)]
struct Output {
    out: *mut f32,
    stride: usize,
    mask: __mmask16,
}

impl Output {
    /// Tile `tile` of `rows` rows.
    ///
    /// # Safety
    /// `out` is as [`super::Kernels::multiply`] demands and `tile * TILE_ROWS < rows`.
    unsafe fn tile(out: *mut f32, stride: usize, tile: usize, rows: usize) -> Self {
        let left = (rows - tile * TILE_ROWS).min(TILE_ROWS);
        // SAFETY: the first of the tile's rows exists.
        Self { out: unsafe { out.add(tile * TILE_ROWS) }, stride, mask: ((1_u32 << left) - 1) as __mmask16 }
    }
}

/// See [`super::Kernels::vectorized`].
///
/// # Safety
/// [`is_available`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
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
