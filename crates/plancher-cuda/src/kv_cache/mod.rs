//! The paged cache of keys and values: every layer keeps them in blocks of [`PAGE`] positions, and each sequence has a
//! table of the blocks that hold its positions. Blocks are handed out as sequences grow and taken back when they are
//! cut, so that sequences of different lengths share one budget of memory.
//!
//! Layout, for each layer: `(blocks, n_kv_heads, 2, PAGE, head_dim)` elements, keys before values.

mod pool;

use plancher_model::ModelConfig;

use self::pool::BlockPool;
use crate::{CudaError, Device, DeviceBuffer, Result};

/// Positions of a block.
pub const PAGE: usize = 32;

/// Keys and values of some sequences.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<DeviceBuffer<u16>>,
    pool: BlockPool,
    /// The pool's tables: `(sequences, blocks of a sequence)`.
    tables: DeviceBuffer<u32>,
    block_bytes: u64,
    positions: usize,
}

impl KvCache {
    /// A cache for `sequences` sequences of up to `positions` positions each, of at most `budget` bytes (without one:
    /// as many as all of them need).
    ///
    /// # Errors
    /// If the device's memory, or the budget, does not hold even one sequence: the error says how many bytes are
    /// missing.
    pub fn new(
        device: &Device,
        config: &ModelConfig,
        sequences: usize,
        positions: usize,
        budget: Option<u64>,
    ) -> Result<Self> {
        let (sequences, positions) = (sequences.max(1), positions.max(1));
        let blocks_each = positions.div_ceil(PAGE);
        let too_large = || CudaError::Range { what: "positions", value: positions as u64, limit: u64::from(u32::MAX) };
        let wanted = blocks_each.checked_mul(sequences).filter(|&blocks| u32::try_from(blocks).is_ok());
        let wanted = wanted.ok_or_else(too_large)?;
        let elements: Vec<usize> = config.layers.iter().map(|layer| 2 * PAGE * layer.kv_rows()).collect();
        let block_bytes = 2 * elements.iter().sum::<usize>() as u64;

        let free = device.memory()?.free;
        let limit = budget.unwrap_or(free).min(free);
        let blocks = (wanted as u64).min(limit / block_bytes.max(1)) as usize;
        if blocks < blocks_each {
            let wanted = block_bytes.saturating_mul(blocks_each as u64);
            return Err(CudaError::OutOfMemory { wanted, free: limit, missing: wanted.saturating_sub(limit).max(1) });
        }
        let layers = elements.iter().map(|&block| DeviceBuffer::uninitialized(device, block.saturating_mul(blocks)));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            pool: BlockPool::new(blocks, sequences, blocks_each),
            tables: DeviceBuffer::zeroed(device, wanted)?,
            block_bytes,
            positions,
        })
    }

    /// The most positions of a sequence.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// The most sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.pool.sequences()
    }

    /// Whether every block of every layer has room for [`PAGE`] positions of a model with this configuration.
    pub(crate) fn is_for(&self, config: &ModelConfig) -> bool {
        let blocks = self.pool.total();
        let fits = |(layer, buffer): (&plancher_model::LayerConfig, &DeviceBuffer<u16>)| {
            buffer.len() == blocks * 2 * PAGE * layer.kv_rows()
        };
        self.layers.len() == config.layers.len() && config.layers.iter().zip(&self.layers).all(fits)
    }

    /// Bytes of the blocks that sequences hold now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.block_bytes * self.pool.used() as u64
    }

    /// Makes room for the first `positions` positions of `sequence`; work already on the device's stream still sees
    /// the blocks that it had.
    ///
    /// # Errors
    /// If there are not enough blocks left (nothing is changed then, and the error says how many bytes are missing),
    /// or if that many positions are more than a sequence may have.
    pub fn reserve(&mut self, sequence: usize, positions: usize) -> Result<()> {
        if positions > self.positions {
            let (value, limit) = (positions as u64, self.positions as u64);
            return Err(CudaError::Range { what: "positions of a sequence", value, limit });
        }
        let missing = self.pool.missing(sequence, positions);
        if missing > 0 {
            let wanted = self.block_bytes * self.pool.needed(sequence, positions) as u64;
            let missing = self.block_bytes * missing as u64;
            return Err(CudaError::OutOfMemory { wanted, free: wanted - missing, missing });
        }
        let added = self.pool.extend(sequence, positions);
        if added.is_empty() {
            return Ok(());
        }
        let table = &self.pool.table(sequence)[added.clone()];
        self.tables.upload(sequence * self.pool.blocks_each() + added.start, table)
    }

    /// Takes back the blocks of `sequence` that only hold positions from `positions` on.
    pub fn truncate(&mut self, sequence: usize, positions: usize) {
        self.pool.truncate(sequence, positions);
    }

    /// Keys and values of `layer`, as the module says.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn layer(&self, layer: usize) -> &DeviceBuffer<u16> {
        &self.layers[layer]
    }

    /// The tables of blocks, `(sequences, table_stride)`.
    #[must_use]
    pub fn tables(&self) -> &DeviceBuffer<u32> {
        &self.tables
    }

    /// Blocks from one sequence's table to the next one's.
    #[must_use]
    pub fn table_stride(&self) -> usize {
        self.pool.blocks_each()
    }
}
