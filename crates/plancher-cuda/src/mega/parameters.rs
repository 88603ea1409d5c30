//! What the host and `kernels/mega.cu` share in memory: the kernel's parameters, a layer's cache and table, an
//! instruction's place.

use bytemuck::{Pod, Zeroable};

/// The most end tokens that the kernel looks for.
pub(crate) const MOST_END_TOKENS: usize = 32;

/// `struct mega_parameters` of the kernel. Addresses are the device's.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Parameters {
    /// `(stages, workers, 16 KiB)`.
    pub(crate) stream: u64,
    /// `(workers, INSTRUCTIONS)` of 4 u32.
    pub(crate) instructions: u64,
    /// Elements `(vocab, embedding_stride)`.
    pub(crate) embedding: u64,
    /// f32 `(layers, 2, padded hidden)`: before attention and before feed-forward; then the output's.
    pub(crate) norms: u64,
    /// f32 `(layers, 2, padded hidden)`, or 0.
    pub(crate) post_norms: u64,
    /// f32, a layer's one after the other: query, key and value; output; gate and up; down. Or 0.
    pub(crate) biases: u64,
    /// f32 `(layers, 2, head_dim)`: of queries, of keys; or 0.
    pub(crate) head_norms: u64,
    /// [`Layer`] `(layers)`.
    pub(crate) layers: u64,
    /// u32 `(blocks of a sequence)`.
    pub(crate) block_table: u64,
    /// Words that workers hand each other: [`plancher_program::gpu::Exchange`].
    pub(crate) exchange: u64,
    /// u32: arrivals, abort; then what choosing a token needs. Zeros when a launch begins.
    pub(crate) counters: u64,
    /// f32 `(vocab)`.
    pub(crate) logits: u64,
    /// `struct sampling` of `sample.cu`.
    pub(crate) sampling: u64,
    /// u32: the token to append next.
    pub(crate) tokens: u64,
    /// u32: where it goes.
    pub(crate) positions: u64,
    /// See [`super::control`].
    pub(crate) control: u64,
    /// Where a traced launch leaves its marks, or 0.
    pub(crate) trace: u64,
    /// Tokens of this launch.
    pub(crate) steps: u32,
    /// Elements from one row of the embedding to the next.
    pub(crate) embedding_stride: u32,
    /// How many of `end_tokens` there are.
    pub(crate) end_count: u32,
    /// [`Mode`] as a number.
    pub(crate) mode: u32,
    /// A launch ends after one of them was chosen.
    pub(crate) end_tokens: [u32; MOST_END_TOKENS],
    /// Of every norm.
    pub(crate) epsilon: f32,
    /// Factor on the embedding's row.
    pub(crate) embedding_scale: f32,
    /// Polls of one word before a wait gives up.
    pub(crate) patience: u32,
    /// Nothing.
    pub(crate) padding: u32,
}

/// How a step of the kernel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With logits: one step, nothing is chosen.
    Logits,
    /// With the most likely token.
    Greedy,
    /// With a token chosen by the settings.
    Sample,
}

impl Mode {
    /// The kernel's number.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Logits => 0,
            Self::Greedy => 1,
            Self::Sample => 2,
        }
    }
}

/// `struct mega_layer` of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Layer {
    /// The layer's keys and values.
    pub(crate) cache: u64,
    /// f32 `(positions, pairs, 2)`, or 0: no rotary embedding.
    pub(crate) rope: u64,
    /// Positions attended to, 0: all.
    pub(crate) window: u32,
    /// On scores.
    pub(crate) scale: f32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Layer>() == 24, "`struct mega_layer` has 24 bytes");
    assert!(size_of::<Parameters>() == 296, "`struct mega_parameters` has 296 bytes");
    assert!(offset_of!(Parameters, trace) == 128, "17 addresses come first");
    assert!(offset_of!(Parameters, steps) == 136 && offset_of!(Parameters, end_tokens) == 152, "then four numbers");
    assert!(offset_of!(Parameters, epsilon) == 280 && offset_of!(Parameters, padding) == 292, "then the end tokens");
};
