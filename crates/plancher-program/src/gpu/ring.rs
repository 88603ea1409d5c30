//! Shared memory of a worker: a fixed part, and with all the rest a ring of stages through which weights and pages of
//! the cache flow.

use super::{Attention, CONSUMERS, INSTRUCTION_BYTES, PlanError, STAGE_BYTES, Shape, padded};

/// The smallest ring that keeps weights moving while a stage is consumed.
pub const LEAST_STAGES: usize = 3;
/// Partial sums of the consumer warps: two buffers of 128 rows, f32.
const PARTIAL_SUMS: usize = 2 * CONSUMERS * 128 * 4;
/// What the kernel declares by itself: barriers, counters, what attention's warps leave for each other; and the alignment
/// of the ring.
const STATIC_BYTES: usize = 6144;
/// What the kernel keeps of each layer: two addresses, window, scale.
const LAYER_BYTES: usize = 24;
/// Bytes to which a consumer's part for inputs is rounded up.
const INPUT_ALIGNMENT: usize = 128;
/// Query heads that attention takes at a time.
const UNIT_HEADS: usize = 8;

/// How a worker's shared memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Bytes beside the ring, static shared memory included.
    pub fixed_bytes: usize,
    /// Stages of the ring.
    pub stages: usize,
    /// Entries of the table of pages.
    pub table_pages: usize,
    /// Instructions of the longest list, its end included.
    pub instructions: usize,
}

impl Ring {
    /// As deep a ring as fits beside the fixed part.
    pub(super) fn new(
        shape: &Shape,
        attention: &Attention,
        positions: usize,
        instructions: usize,
        residual_rows: usize,
        shared_memory: usize,
    ) -> Result<Self, PlanError> {
        let table_pages = attention.table_pages(positions);
        let fixed_bytes = fixed_bytes(shape, table_pages, instructions, residual_rows);
        let available = shared_memory;
        let stages = available.saturating_sub(fixed_bytes) / STAGE_BYTES;
        if stages < LEAST_STAGES {
            return Err(PlanError::SharedMemory { available, needed: fixed_bytes + LEAST_STAGES * STAGE_BYTES });
        }
        Ok(Self { fixed_bytes, stages, table_pages, instructions })
    }

    /// Dynamic shared memory that the kernel is launched with.
    #[must_use]
    pub fn shared_bytes(&self) -> usize {
        self.fixed_bytes - STATIC_BYTES + self.stages * STAGE_BYTES
    }
}

/// Bytes of everything but the ring: for each consumer warp the largest of its slice of a normed input (two elements), its
/// slice of another input (an element) and its queries (f32); partial sums; instructions; layers; the table of pages; the
/// worker's rows of the residual stream (f32); what is static.
fn fixed_bytes(shape: &Shape, table_pages: usize, instructions: usize, residual_rows: usize) -> usize {
    let slice = |columns: usize| padded(columns) / CONSUMERS;
    let inputs = [
        slice(shape.hidden) * 4,
        slice(shape.query_rows()) * 2,
        slice(shape.feed_forward) * 2,
        shape.group().min(UNIT_HEADS) * shape.head_dim * 4,
    ];
    let input = inputs.into_iter().max().unwrap_or(0).next_multiple_of(INPUT_ALIGNMENT);
    PARTIAL_SUMS
        + input * CONSUMERS
        + instructions * INSTRUCTION_BYTES
        + shape.layers * LAYER_BYTES
        + table_pages * 4
        + residual_rows * 4
        + STATIC_BYTES
}
