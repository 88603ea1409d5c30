//! Stored rows as f32: the plain definition of every format, used by the reference executor, by packing
//! checks and wherever speed does not matter.

use crate::{DType, TensorView};

impl TensorView<'_> {
    /// Writes row `row` as f32, [`crate::Scale`] applied.
    ///
    /// # Panics
    /// When `row` is out of range or `out` does not hold [`TensorView::columns`] elements.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns());
        let bytes = self.row(row);
        match self.dtype() {
            DType::F32 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            _ => todo!("the other formats"),
        }
    }
}
