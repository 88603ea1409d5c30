//! The arithmetic of a worker: products of packed weight tiles with prepared inputs, and the layout of those tiles.

use plancher_model::DType;

/// Rows of a weight tile, for every instruction set.
pub const TILE_ROWS: usize = 16;

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, the reference.
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX-512 F, BW, VL, VNNI (BF16 where present).
    Avx512,
    /// The former with AMX (BF16, INT8) for prefill.
    Amx,
    /// aarch64 NEON (dot product where present).
    Neon,
}

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    isa: Isa,
}

/// Input rows in every form that a product may want: f32, and 8 bits per block of 32 with a scale and a sum.
#[derive(Clone, Debug, Default)]
pub struct Input {
    tokens: usize,
    columns: usize,
}

impl Kernels {
    /// The best instruction set of this machine; `PLANCHER_ISA` overrides it.
    #[must_use]
    pub fn detect() -> Self {
        Self { isa: Isa::Scalar }
    }

    /// Which instruction set this is.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Prepares `x`, `(tokens, columns)`, for products with matrices of the types in `dtypes`; reuses `input`'s
    /// memory.
    pub fn prepare(&self, x: &[f32], tokens: usize, columns: usize, dtypes: &[DType], input: &mut Input) {
        let _ = (x, dtypes);
        (input.tokens, input.columns) = (tokens, columns);
        todo!()
    }

    /// `out[t * stride + r] = dot(row r, x[t])` for `rows` rows packed in `tiles` and every prepared token `t`.
    ///
    /// # Safety
    /// `out` is valid for writes at every index named above, and nobody else touches those elements meanwhile.
    pub unsafe fn multiply(
        &self,
        dtype: DType,
        tiles: &[u8],
        rows: usize,
        input: &Input,
        out: *mut f32,
        stride: usize,
    ) {
        let _ = (dtype, tiles, rows, input, out, stride);
        todo!()
    }
}
