//! What a chunk of positions needs between the kernels.

use crate::{Device, DeviceBuffer, DeviceWeights, Result, padded};

/// Rows of logits that are computed and copied to the host at a time.
const LOGIT_ROWS: usize = 256;

#[derive(Debug)]
pub(super) struct Buffers {
    /// `(chunk)`.
    pub(super) tokens: DeviceBuffer<u32>,
    /// `(chunk, hidden)`.
    pub(super) residual: DeviceBuffer<f32>,
    /// `(chunk, hidden)`: a branch's result that is not simply added; empty where all are.
    pub(super) delta: DeviceBuffer<f32>,
    /// `(chunk, padded hidden)`: the input of projections.
    pub(super) normed: DeviceBuffer<u16>,
    /// `(chunk, query, key and value rows)`.
    pub(super) projections: DeviceBuffer<u16>,
    /// `(chunk, padded query rows)`.
    pub(super) attended: DeviceBuffer<u16>,
    /// `(chunk, 2 * feed-forward)`.
    pub(super) gate_up: DeviceBuffer<u16>,
    /// `(chunk, padded feed-forward)`.
    pub(super) activated: DeviceBuffer<u16>,
    /// `(logit rows, logit stride)`.
    pub(super) logits: DeviceBuffer<f32>,
    pub(super) logit_rows: usize,
    pub(super) logit_stride: usize,
}

impl Buffers {
    /// For chunks of up to `chunk` positions; with all logits of a chunk if `all_logits`, else only of the last.
    pub(super) fn new(device: &Device, weights: &DeviceWeights, chunk: usize, has_delta: bool) -> Result<Self> {
        let config = &weights.config;
        let largest =
            |of: &dyn Fn(&plancher_model::LayerConfig) -> usize| config.layers.iter().map(of).max().unwrap_or(0);
        let elements = |columns: usize| DeviceBuffer::uninitialized(device, chunk.saturating_mul(columns));
        let numbers = |rows: usize, columns: usize| DeviceBuffer::uninitialized(device, rows.saturating_mul(columns));
        let logit_rows = LOGIT_ROWS.min(chunk);
        let logit_stride = config.vocab_size.next_multiple_of(4);
        Ok(Self {
            tokens: DeviceBuffer::uninitialized(device, chunk)?,
            residual: numbers(chunk, config.hidden_size)?,
            delta: numbers(if has_delta { chunk } else { 0 }, config.hidden_size)?,
            normed: elements(padded(config.hidden_size))?,
            projections: elements(largest(&|layer| layer.query_rows() + 2 * layer.kv_rows()))?,
            attended: elements(largest(&|layer| padded(layer.query_rows())))?,
            gate_up: elements(largest(&|layer| 2 * layer.feed_forward_rows()))?,
            activated: elements(largest(&|layer| padded(layer.feed_forward_rows())))?,
            logits: numbers(logit_rows, logit_stride)?,
            logit_rows,
            logit_stride,
        })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let elements = [&self.normed, &self.projections, &self.attended, &self.gate_up, &self.activated];
        let numbers = [&self.residual, &self.delta, &self.logits];
        (elements.iter().map(|buffer| buffer.bytes()).sum::<usize>()
            + numbers.iter().map(|buffer| buffer.bytes()).sum::<usize>()
            + self.tokens.bytes()) as u64
    }
}
