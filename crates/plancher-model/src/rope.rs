//! Rotary position embedding as data: the inverse frequencies after scaling, and how dimensions pair up.

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// Element `i` with `i + dim / 2` (Hugging Face; GGUF's NEOX).
    Halves,
    /// Element `2 i` with `2 i + 1` (GGUF's llama files, whose rows are permuted for it).
    Interleaved,
}

/// A rotary table. The first `2 * inverse_frequencies.len()` elements of each head are rotated; position `p`
/// rotates pair `i` by the angle `p * inverse_frequencies[i]`, and both sine and cosine are multiplied by
/// `attention_factor`. Elements beyond are passed through (partial rotary).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// How elements pair up.
    pub layout: RopeLayout,
    /// `(rotary_dim / 2)` angles per position, scaling (linear, llama3, yarn) already applied.
    pub inverse_frequencies: Vec<f32>,
    /// Multiplies sine and cosine (yarn's `mscale`; 1 elsewhere).
    pub attention_factor: f32,
}

impl Rope {
    /// How many elements at the head's start are rotated.
    #[must_use]
    pub fn rotary_dim(&self) -> usize {
        2 * self.inverse_frequencies.len()
    }
}
