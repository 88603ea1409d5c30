//! Where workers exchange activations in global memory.
//!
//! A word is 32 bits: two 16-bit values, [`SENTINEL`] until they are there. Every slot exists three times, for the step
//! modulo three: while a step writes one copy, its workers clear what the step before wrote, and nobody can still be
//! reading it (they have all signalled that they are done with it before the first of them clears).

use std::ops::Range;

use super::{Attention, PlanError, Shape, padded};

/// Copies of every slot.
pub const COPIES: usize = 3;
/// The word that means "not there yet".
pub const SENTINEL: u32 = u32::MAX;
/// Bytes to which a layer and a copy are rounded up: vector loads stay aligned.
const ALIGNMENT: usize = 256;

/// What is exchanged within a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The residual stream before a layer's attention, written by the layer before; that of layer `layers` is what the
    /// head reads. Always f16, of 2⁻⁶ times the value. (Layer 0 reads the embedding instead.)
    Attention,
    /// Rows of query, key and value, bias added.
    QueryKeyValue,
    /// Attention's outputs.
    Attended,
    /// The residual stream before the feed-forward part; as [`Self::Attention`].
    FeedForward,
    /// `activation(gate) * up`.
    Gated,
    /// Outputs of each split and head, when more than one is active: `(splits, n_heads, head_dim)`.
    PartialOutputs,
    /// Maximum and sum of exponentials of each split and head, f32: `(splits, n_heads, 2)`.
    PartialSums,
}

/// The layout, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    layers: usize,
    workers: usize,
    /// Of one layer's slots: start, and used bytes (what lies between is padding).
    slots: [(usize, usize); 7],
    /// From one layer's slots to the next one's.
    pub layer_bytes: usize,
    /// From the start of a copy to the candidates for the next token: a 64-bit word a worker.
    pub candidates: usize,
    /// From the start of a copy to the word that says whether to stop.
    pub stop: usize,
    /// From one copy to the next.
    pub copy_bytes: usize,
    /// All copies.
    pub bytes: usize,
}

impl Exchange {
    pub(super) fn new(shape: &Shape, attention: &Attention, workers: usize) -> Result<Self, PlanError> {
        // Sizes are bounded by `Shape`: everything of one layer fits easily.
        let elements = |count: usize| (2 * count, 2 * padded(count));
        let partial_heads = attention.splits * shape.n_heads;
        let sizes = [
            elements(shape.hidden),
            elements(shape.query_key_value_rows()),
            elements(shape.query_rows()),
            elements(shape.hidden),
            elements(shape.feed_forward),
            (partial_heads * shape.head_dim * 2, partial_heads * shape.head_dim * 2),
            (partial_heads * 8, partial_heads * 8),
        ];
        let mut end = 0;
        let slots = sizes.map(|(used, room)| {
            let start = end;
            end += room;
            (start, used)
        });
        let layer_bytes = end.next_multiple_of(ALIGNMENT);
        let candidates = layer_bytes * shape.layers + 2 * padded(shape.hidden);
        let stop = candidates + 8 * workers;
        let copy_bytes = (stop + 4).next_multiple_of(ALIGNMENT);
        let bytes = copy_bytes * COPIES;
        // The kernel names a word by a 32-bit number.
        if u32::try_from(bytes / 4).is_err() {
            return Err(PlanError::TooLarge { what: "exchange" });
        }
        Ok(Self { layers: shape.layers, workers, slots, layer_bytes, candidates, stop, copy_bytes, bytes })
    }

    /// The used bytes of a slot, from the start of a copy. Only [`Slot::Attention`] exists for `layer == layers`.
    ///
    /// # Panics
    /// When there is no such layer.
    #[must_use]
    pub fn slot(&self, layer: usize, slot: Slot) -> Range<usize> {
        assert!(layer < self.layers || (layer == self.layers && slot == Slot::Attention), "layer {layer}: {slot:?}");
        let (start, used) = self.slots[slot as usize];
        let start = layer * self.layer_bytes + start;
        start..start + used
    }

    /// The candidate of `worker`, from the start of a copy.
    ///
    /// # Panics
    /// When there is no such worker.
    #[must_use]
    pub fn candidate(&self, worker: usize) -> Range<usize> {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        let start = self.candidates + 8 * worker;
        start..start + 8
    }
}
