//! The plainest tile layout: rows as they are stored, one after the other. Programs are tested on it, and it says
//! by example what a layout has to do.

use plancher_model::{DType, Scale, Tensor, TensorView};

use crate::pack::TileLayout;

/// Rows as they are stored; elements with scales outside the row (fp8) as f32, scales applied.
#[derive(Clone, Copy, Debug)]
pub struct RowMajor {
    /// Rows of a tile.
    pub tile_rows: usize,
}

impl RowMajor {
    /// The type in which rows of `dtype` are kept.
    fn kept(dtype: DType) -> DType {
        if dtype == DType::F8_E4M3 { DType::F32 } else { dtype }
    }
}

impl TileLayout for RowMajor {
    fn tile_rows(&self) -> usize {
        self.tile_rows
    }

    fn tile_bytes(&self, dtype: DType, columns: usize) -> Option<usize> {
        Self::kept(dtype).row_bytes(columns)?.checked_mul(self.tile_rows)
    }

    fn pack_tile(&self, view: &TensorView<'_>, first_row: usize, out: &mut [u8]) {
        assert_eq!(Some(out.len()), self.tile_bytes(view.dtype(), view.columns()));
        let mut values = vec![0.0; view.columns()];
        let row_bytes = out.len() / self.tile_rows;
        for (row, out) in (first_row..).zip(out.chunks_exact_mut(row_bytes)) {
            if row >= view.rows() {
                out.fill(0);
            } else if Self::kept(view.dtype()) == view.dtype() {
                out.copy_from_slice(view.row(row));
            } else {
                view.dequantize_row(row, &mut values);
                for (out, value) in out.chunks_exact_mut(4).zip(&values) {
                    out.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    fn unpack_row(&self, dtype: DType, tile: &[u8], row: usize, out: &mut [f32]) {
        assert_eq!(Some(tile.len()), self.tile_bytes(dtype, out.len()));
        let tensor = Tensor {
            name: String::new(),
            dtype: Self::kept(dtype),
            rows: self.tile_rows,
            columns: out.len(),
            file: 0,
            offset: 0,
            scale: Scale::One,
        };
        TensorView { tensor: &tensor, bytes: tile }.dequantize_row(row, out);
    }
}
