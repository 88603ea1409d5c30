//! The types in which weights are stored, and the arithmetic of their sizes.

/// How the elements of a stored tensor are encoded. The quantised types are those of GGML: a row is cut
/// into blocks of [`DType::block_elements`] elements, each stored in [`DType::block_bytes`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, non_camel_case_types, reason = "the names are the formats' own")]
pub enum DType {
    F32,
    F16,
    BF16,
    F8_E4M3,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl DType {
    /// Every type, in the order of [`DType::LIST`].
    pub const ALL: [Self; 14] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F8_E4M3,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// The supported types as error messages list them.
    pub const LIST: &'static str =
        "F32, F16, BF16, F8_E4M3, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";

    /// Elements in one block: 1 for plain types, 32 or 256 for quantised ones.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::F8_E4M3 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::F8_E4M3 => 1,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Whether elements are integers with shared scales, so that integer dot products apply.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }

    /// Bytes of a row of `columns` elements; `None` when `columns` is not a whole number of blocks or the
    /// product overflows.
    #[must_use]
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_elements()) {
            return None;
        }
        (columns / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Stored bits per element, scales included.
    #[must_use]
    pub fn bits_per_element(self) -> f64 {
        8.0 * self.block_bytes() as f64 / self.block_elements() as f64
    }

    /// The name that files and messages use: `Q4_K`, `BF16`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::F8_E4M3 => "F8_E4M3",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q2_K => "Q2_K",
            Self::Q3_K => "Q3_K",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
