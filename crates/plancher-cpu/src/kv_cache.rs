//! Keys and values of the sequence so far, as f16, in chunks of 16 positions.
//!
//! For each layer and KV head, a chunk holds keys `(head_dim, 16)` followed by values `(16, head_dim)`: scores of 16
//! positions are then a sum over rows of keys, and the output a sum over rows of values, without a horizontal sum in
//! either. Chunk `c` belongs to worker `c % workers`, which appends to it and, in decode, alone reads it.
//!
//! Memory comes in slabs of at least 256 positions as positions are used. A slab is laid out
//! `[worker][layer][kv head][chunk of the worker]`, so that what a worker reads for a head is contiguous and what it
//! owns lies together.

use half::f16;
use plancher_model::ModelConfig;

use crate::kernels::ATTENTION_CHUNK;
use crate::{HugeBuffer, OutOfMemory};

/// Positions of a chunk.
pub(crate) const KV_CHUNK: usize = ATTENTION_CHUNK;

/// A slab holds at least this many positions.
const SLAB_POSITIONS: usize = 256;

/// The cache of one sequence.
#[derive(Debug)]
pub(crate) struct KvCache {
    slabs: Vec<HugeBuffer>,
    layers: Vec<Layer>,
    workers: usize,
    /// Chunks of one worker, layer and head in a slab.
    chunks_per_slab: usize,
    /// f16 elements of one worker in a slab.
    worker_elements: usize,
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    /// Where the layer starts in a worker's part of a slab, in f16 elements.
    offset: usize,
    head_dim: usize,
}

/// Keys and values of one chunk of one head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// `(head_dim, 16)`.
    pub(crate) keys: *mut f16,
    /// `(16, head_dim)`.
    pub(crate) values: *mut f16,
}

impl KvCache {
    /// An empty cache for the layers of `config`.
    ///
    /// # Errors
    /// When the size of a slab overflows.
    pub(crate) fn new(config: &ModelConfig, workers: usize) -> Result<Self, OutOfMemory> {
        let chunks_per_slab = SLAB_POSITIONS.div_ceil(KV_CHUNK * workers);
        let mut worker_elements = 0_usize;
        let mut layers = Vec::with_capacity(config.layers.len());
        for layer in &config.layers {
            layers.push(Layer { offset: worker_elements, head_dim: layer.head_dim });
            let elements = layer.kv_rows().checked_mul(2 * KV_CHUNK * chunks_per_slab);
            worker_elements = elements
                .and_then(|elements| elements.checked_add(worker_elements))
                .ok_or(OutOfMemory { bytes: usize::MAX })?;
        }
        Ok(Self { slabs: Vec::new(), layers, workers, chunks_per_slab, worker_elements })
    }

    /// Makes room for positions `0..positions`.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        let slabs = positions.div_ceil(KV_CHUNK * self.workers * self.chunks_per_slab);
        while self.slabs.len() < slabs {
            let bytes = self.worker_elements.checked_mul(size_of::<f16>() * self.workers);
            self.slabs.push(HugeBuffer::new(bytes.ok_or(OutOfMemory { bytes: usize::MAX })?)?);
        }
        Ok(())
    }

    /// Which worker owns a position.
    pub(crate) fn owner(&self, position: usize) -> usize {
        position / KV_CHUNK % self.workers
    }

    /// Chunk `chunk` of KV head `head` of `layer`.
    ///
    /// # Panics
    /// When its positions have not been reserved.
    pub(crate) fn chunk(&self, layer: usize, head: usize, chunk: usize) -> Chunk {
        let Layer { offset, head_dim } = self.layers[layer];
        let (worker, own) = (chunk % self.workers, chunk / self.workers);
        let (slab, slot) = (own / self.chunks_per_slab, own % self.chunks_per_slab);
        let elements = head_dim * KV_CHUNK;
        let start = worker * self.worker_elements + offset + (head * self.chunks_per_slab + slot) * 2 * elements;
        let slab = &self.slabs[slab];
        assert!((start + 2 * elements) * size_of::<f16>() <= slab.len(), "head {head} of layer {layer}");
        // SAFETY: both offsets are inside the slab, as just asserted.
        unsafe {
            let keys = slab.cast::<f16>().add(start);
            Chunk { keys, values: keys.add(elements) }
        }
    }
}

/// KV bytes that a step reads at `context` positions: windowed layers read their window only.
pub(crate) fn kv_bytes(config: &ModelConfig, context: usize) -> u64 {
    let layer_bytes = config.layers.iter().map(|layer| {
        let positions = layer.window.map_or(context, |window| context.min(window));
        2 * (layer.kv_rows() * positions * size_of::<f16>()) as u64
    });
    layer_bytes.sum()
}
