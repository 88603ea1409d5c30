//! What a step leaves for its next kernel, for up to some number of sequences.

use crate::{Device, DeviceBuffer, DeviceWeights, Result, padded};

/// The activations of a step. Rows are padded as the matrices' are; what pads them is zero and stays so.
#[derive(Debug)]
pub(super) struct Buffers {
    /// The residual stream, f32 `(sequences, hidden stride)`, twice: layers with norms behind their branches read one
    /// and write the other.
    pub(super) hidden: [DeviceBuffer<f32>; 2],
    /// The output of a branch that is normed before it is added.
    pub(super) delta: DeviceBuffer<f32>,
    /// Query, key and value rows.
    pub(super) query_key_value: DeviceBuffer<f32>,
    /// Elements; what attention gives.
    pub(super) attended: DeviceBuffer<u16>,
    /// Elements; `activation(gate) * up`.
    pub(super) gated: DeviceBuffer<u16>,
    /// `(sequences, vocab_size)`.
    pub(super) logits: DeviceBuffer<f32>,
    /// The largest logit of each block of the head.
    pub(super) candidates: DeviceBuffer<u64>,
    /// The token that each sequence appends next.
    pub(super) tokens: DeviceBuffer<u32>,
    /// Positions in each sequence's cache.
    pub(super) positions: DeviceBuffer<u32>,
    /// Nearly done blocks of the products of a feed-forward part, `(layers, 2)`.
    pub(super) progress: DeviceBuffer<u32>,
}

impl Buffers {
    pub(super) fn new(device: &Device, weights: &DeviceWeights, sequences: usize, candidates: usize) -> Result<Self> {
        let config = &weights.config;
        let largest = |of: fn(&plancher_model::LayerConfig) -> usize| config.layers.iter().map(of).max().unwrap_or(0);
        let hidden = sequences * padded(config.hidden_size);
        let query_key_value = largest(|layer| layer.query_rows() + 2 * layer.kv_rows());
        let attended = padded(largest(plancher_model::LayerConfig::query_rows));
        let gated = padded(largest(plancher_model::LayerConfig::feed_forward_rows));
        Ok(Self {
            hidden: [DeviceBuffer::zeroed(device, hidden)?, DeviceBuffer::zeroed(device, hidden)?],
            delta: DeviceBuffer::zeroed(device, hidden)?,
            query_key_value: DeviceBuffer::zeroed(device, sequences * query_key_value)?,
            attended: DeviceBuffer::zeroed(device, sequences * attended)?,
            gated: DeviceBuffer::zeroed(device, sequences * gated)?,
            logits: DeviceBuffer::zeroed(device, sequences * config.vocab_size)?,
            candidates: DeviceBuffer::zeroed(device, sequences * candidates)?,
            tokens: DeviceBuffer::zeroed(device, sequences)?,
            positions: DeviceBuffer::zeroed(device, sequences)?,
            progress: DeviceBuffer::zeroed(device, 2 * config.layers.len())?,
        })
    }
}
