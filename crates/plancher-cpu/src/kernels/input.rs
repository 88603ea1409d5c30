//! Input rows of matrix products in the forms that kernels read.

use plancher_model::DType;

/// Columns of a chunk of prepared input: one K-quant block.
pub(super) const CHUNK: usize = 256;

/// Elements that share a scale after rounding to 8 bits.
pub const BLOCK: usize = 32;

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

/// Chunks in 8 bits, `(chunks of 256 columns, tokens)`, in memory that several workers fill, each its own tokens or
/// columns, so that what many read is prepared once.
#[derive(Clone, Copy, Debug)]
pub struct SharedChunks {
    start: *mut IntegerChunk,
    tokens: usize,
    columns: usize,
}

// SAFETY: a pointer with a shape; everything that follows it is unsafe and states who may touch what when.
unsafe impl Send for SharedChunks {}
// SAFETY: as above.
unsafe impl Sync for SharedChunks {}

impl SharedChunks {
    /// Bytes of the chunks of `tokens` tokens; `None` when that overflows.
    #[must_use]
    pub fn bytes(tokens: usize, columns: usize) -> Option<usize> {
        columns.div_ceil(CHUNK).checked_mul(tokens)?.checked_mul(size_of::<IntegerChunk>())
    }

    /// Chunks at `start`.
    ///
    /// # Safety
    /// `start` is aligned to 64 bytes and valid for [`SharedChunks::bytes`] initialised bytes as long as the result
    /// and inputs made of it are used.
    #[must_use]
    pub unsafe fn new(start: *mut u8, tokens: usize, columns: usize) -> Self {
        Self { start: start.cast(), tokens, columns }
    }

    /// Takes over block 0 of `from` as the 32 columns of `token` from `column` on.
    ///
    /// # Safety
    /// `token` and `column`, a multiple of 32, exist, and nobody else touches these columns of the token meanwhile.
    #[inline]
    pub(super) unsafe fn set_block(self, token: usize, column: usize, from: &IntegerChunk) {
        let block = column % CHUNK / BLOCK;
        // SAFETY: the chunk exists, and a chunk has eight blocks. Other blocks of it may be somebody else's: no
        // reference to the whole is made.
        unsafe {
            let chunk = self.start.add(column / CHUNK * self.tokens + token);
            let quants = (&raw mut (*chunk).quants).cast::<[i8; BLOCK]>();
            quants.add(block).write(from.quants.as_chunks::<BLOCK>().0[0]);
            let negative_sums = (&raw mut (*chunk).negative_sums).cast::<[i32; 2]>();
            negative_sums.add(block).write([from.negative_sums[0], from.negative_sums[1]]);
            (&raw mut (*chunk).scales).cast::<f32>().add(block).write(from.scales[0]);
            (&raw mut (*chunk).scaled_sums).cast::<f32>().add(block).write(from.scaled_sums[0]);
            let halves = (&raw mut (*chunk).scaled_half_sums).cast::<[f32; 2]>();
            halves.add(block).write([from.scaled_half_sums[0], from.scaled_half_sums[1]]);
        }
    }
}

/// Input rows in the forms that products with the weights at hand want: f32, or 8 bits per block of 32. Both are stored
/// `[chunk of 256 columns][token]`, so that a chunk of all tokens is contiguous. Where AMX multiplies, bf16 alone.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub(super) tokens: usize,
    pub(super) columns: usize,
    pub(super) floats: Vec<FloatChunk>,
    pub(super) integers: Vec<IntegerChunk>,
    /// In the place of `integers` where others have prepared them.
    shared: Option<SharedChunks>,
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

    /// Makes `chunks` the input.
    ///
    /// # Safety
    /// All of `chunks` has been prepared, and nobody writes it as long as this is the input.
    pub unsafe fn share(&mut self, chunks: SharedChunks) {
        (self.tokens, self.columns) = (chunks.tokens, chunks.columns);
        self.floats.clear();
        self.parts.clear();
        self.shared = Some(chunks);
    }

    /// The form in 8 bits, `(chunks, tokens)`; empty where it was not prepared.
    #[inline]
    pub(super) fn integers(&self) -> &[IntegerChunk] {
        match self.shared {
            // SAFETY: the promises of `SharedChunks::new` and `share`.
            Some(shared) => unsafe { std::slice::from_raw_parts(shared.start, self.chunks() * self.tokens) },
            None => &self.integers,
        }
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
        self.shared = None;
    }

    /// Sets the shape and makes room for `parts` parts of every chunk of `padded` tokens, and for no other form.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn reset_parts(&mut self, tokens: usize, columns: usize, padded: usize, parts: usize) {
        (self.tokens, self.columns) = (tokens, columns);
        self.floats.clear();
        self.integers.clear();
        self.shared = None;
        self.parts.resize(self.chunks() * parts * padded, BrainChunk([0; CHUNK]));
    }

    /// Whether products with weights of `dtype` have the form of the input that they read.
    pub(super) fn is_prepared(&self, dtype: DType) -> bool {
        #[cfg(target_arch = "x86_64")]
        if !self.parts.is_empty() {
            return super::amx::is_prepared(dtype, self);
        }
        let form = if dtype.is_quantized() { self.integers().len() } else { self.floats.len() };
        form == self.chunks() * self.tokens
    }
}
