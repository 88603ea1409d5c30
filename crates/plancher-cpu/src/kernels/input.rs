//! Input rows of matrix products in the forms that kernels read.

use plancher_model::DType;

/// Columns of a chunk of prepared input: one K-quant block.
pub(super) const CHUNK: usize = 256;

/// Elements that share a scale after rounding to 8 bits.
pub(super) const BLOCK: usize = 32;

/// [`CHUNK`] columns of one token rounded to 8 bits: `x[i] ~ quants[i] * scales[i / 32]`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct IntegerChunk {
    /// -127 … 127.
    pub(super) quants: [i8; CHUNK],
    /// `-sum(quants)` of every 16 elements; negative, so that adding multiples of it corrects offsets.
    pub(super) negative_sums: [i32; CHUNK / 16],
    /// `max |x| / 127` of every 32 elements.
    pub(super) scales: [f32; CHUNK / BLOCK],
    /// `scale * sum(quants)` of every 32 elements.
    pub(super) scaled_sums: [f32; CHUNK / BLOCK],
    /// `scale * sum(quants)` of every 16 elements.
    pub(super) scaled_half_sums: [f32; CHUNK / 16],
}

impl IntegerChunk {
    pub(super) const ZERO: Self = Self {
        quants: [0; CHUNK],
        negative_sums: [0; CHUNK / 16],
        scales: [0.0; CHUNK / BLOCK],
        scaled_sums: [0.0; CHUNK / BLOCK],
        scaled_half_sums: [0.0; CHUNK / 16],
    };
}

/// [`CHUNK`] columns of one token, zeros after the last.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct FloatChunk(pub(super) [f32; CHUNK]);

impl FloatChunk {
    pub(super) const ZERO: Self = Self([0.0; CHUNK]);
}

/// [`CHUNK`] columns of one token in bf16, zeros after the last.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct BrainChunk(pub(super) [u16; CHUNK]);

/// Input rows in the forms that products with the weights at hand want: f32, or 8 bits per block of 32. Both are stored
/// `[chunk of 256 columns][token]`, so that a chunk of all tokens is contiguous. Where AMX multiplies, bf16 alone.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub(super) tokens: usize,
    pub(super) columns: usize,
    pub(super) floats: Vec<FloatChunk>,
    pub(super) integers: Vec<IntegerChunk>,
    /// For AMX: `[chunk][part][token]`, tokens padded to whole tiles.
    pub(super) parts: Vec<BrainChunk>,
}

impl Input {
    /// Tokens last prepared.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Columns last prepared.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn chunks(&self) -> usize {
        self.columns.div_ceil(CHUNK)
    }

    /// Sets the shape and makes room for the forms that `dtypes` need.
    pub(super) fn reset(&mut self, tokens: usize, columns: usize, dtypes: &[DType]) {
        (self.tokens, self.columns) = (tokens, columns);
        let chunks = self.chunks() * tokens;
        let integers = dtypes.iter().any(|dtype| dtype.is_quantized());
        let floats = dtypes.iter().any(|dtype| !dtype.is_quantized());
        self.integers.resize(if integers { chunks } else { 0 }, IntegerChunk::ZERO);
        self.floats.resize(if floats { chunks } else { 0 }, FloatChunk::ZERO);
        self.parts.clear();
    }

    /// Sets the shape and makes room for `parts` parts of every chunk of `padded` tokens, and for no other form.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn reset_parts(&mut self, tokens: usize, columns: usize, padded: usize, parts: usize) {
        (self.tokens, self.columns) = (tokens, columns);
        self.floats.clear();
        self.integers.clear();
        self.parts.resize(self.chunks() * parts * padded, BrainChunk([0; CHUNK]));
    }

    /// Whether products with weights of `dtype` have the form of the input that they read.
    pub(super) fn is_prepared(&self, dtype: DType) -> bool {
        #[cfg(target_arch = "x86_64")]
        if !self.parts.is_empty() {
            return super::amx::is_prepared(dtype, self);
        }
        let form = if dtype.is_quantized() { self.integers.len() } else { self.floats.len() };
        form == self.chunks() * self.tokens
    }
}
