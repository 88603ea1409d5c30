//! Stored rows as f32: the plain definition of every format, used by the reference executor, by packing
//! checks and wherever speed does not matter. One file a family of formats; the block layouts are those of
//! GGML's `ggml-common.h` (`block_q4_0`, `block_q4_K`, …), and the order of operations is that of its
//! `dequantize_row_*`, so that results are equal bit for bit.

mod blocks_of_256;
mod blocks_of_32;
mod plain;

pub use blocks_of_256::{k_scales_and_minimums, q3_k_scales};
pub use plain::f8_e4m3_to_f32;

use crate::{DType, Scale, TensorView};

/// Writes a stored row as f32, without any [`Scale`].
///
/// # Panics
/// When `row` does not hold exactly `out.len()` elements of `dtype` in whole blocks.
pub fn dequantize(dtype: DType, row: &[u8], out: &mut [f32]) {
    assert_eq!(dtype.row_bytes(out.len()), Some(row.len()), "a {dtype} row of {} elements", out.len());
    match dtype {
        DType::F32 => plain::f32(row, out),
        DType::F16 => plain::f16(row, out),
        DType::BF16 => plain::bf16(row, out),
        DType::F8_E4M3 => plain::f8_e4m3(row, out),
        DType::Q8_0 => blocks_of_32::q8_0(row, out),
        DType::Q4_0 => blocks_of_32::q4_0(row, out),
        DType::Q4_1 => blocks_of_32::q4_1(row, out),
        DType::Q5_0 => blocks_of_32::q5_0(row, out),
        DType::Q5_1 => blocks_of_32::q5_1(row, out),
        DType::Q2_K => blocks_of_256::q2_k(row, out),
        DType::Q3_K => blocks_of_256::q3_k(row, out),
        DType::Q4_K => blocks_of_256::q4_k(row, out),
        DType::Q5_K => blocks_of_256::q5_k(row, out),
        DType::Q6_K => blocks_of_256::q6_k(row, out),
    }
}

impl TensorView<'_> {
    /// Writes row `row` as f32, [`Scale`] applied.
    ///
    /// # Panics
    /// When `row` is out of range or `out` does not hold [`TensorView::columns`] elements.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns());
        dequantize(self.dtype(), self.row(row), out);
        match &self.tensor.scale {
            Scale::One => {}
            Scale::Tensor(factor) => multiply(out, *factor),
            Scale::Row(factors) => multiply(out, factors[row]),
            Scale::Block { block_rows, block_columns, values } => {
                let per_row = self.columns().div_ceil(*block_columns);
                let factors = &values[row / block_rows * per_row..][..per_row];
                for (block, factor) in out.chunks_mut(*block_columns).zip(factors) {
                    multiply(block, *factor);
                }
            }
        }
    }
}

fn multiply(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

/// The little-endian half-precision number at the start of `bytes`.
fn half(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}
