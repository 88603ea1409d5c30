//! Packing: each worker's weights as one contiguous stream, in the order in which it consumes them.
//! The order is the program's; how the bytes of one tile are arranged is the backend's, behind [`TileLayout`].

use plancher_model::{DType, TensorView};

/// How a backend arranges the rows of one weight tile.
pub trait TileLayout: Sync {
    /// Rows of a tile.
    fn tile_rows(&self) -> usize;

    /// Bytes of one packed tile of `columns` inputs; `None` when `columns` does not suit `dtype` or the size
    /// overflows.
    fn tile_bytes(&self, dtype: DType, columns: usize) -> Option<usize>;

    /// Packs rows `first_row .. first_row + tile_rows` of `view` into `out`; rows beyond the matrix are zeros.
    ///
    /// # Panics
    /// When `out` is not [`TileLayout::tile_bytes`] long.
    fn pack_tile(&self, view: &TensorView<'_>, first_row: usize, out: &mut [u8]);

    /// Writes row `row` of a packed tile as f32 into `out`, `(columns)`: the inverse of
    /// [`TileLayout::pack_tile`], for tests and the interpreter.
    ///
    /// # Panics
    /// When `tile` is not [`TileLayout::tile_bytes`] long for `dtype` and `out.len()` columns, or `row` is not below
    /// [`TileLayout::tile_rows`].
    fn unpack_row(&self, dtype: DType, tile: &[u8], row: usize, out: &mut [f32]);
}
