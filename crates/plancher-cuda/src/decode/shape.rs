//! What of a device decides how a decode step is cut.

use crate::Properties;

/// Shared memory that the slices of a product take where there is plenty: it keeps the memory busy (64 KiB under way on
/// each multiprocessor do on Hopper), and leaves room for the kernel that comes next.
const RING: usize = 64 << 10;

/// The device, as far as the kernels care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) multiprocessors: usize,
    /// The most dynamic shared memory of a block, in bytes.
    pub(super) shared_per_block: usize,
    /// What the slices of a product should take of it.
    pub(super) ring: usize,
    /// Whether blocks can form clusters.
    pub(super) clusters: bool,
}

impl Shape {
    /// A small device of the latest kind: what the catalogue compiles for.
    pub(super) const SMALL: Self =
        Self { multiprocessors: 24, shared_per_block: 82 << 10, ring: 32 << 10, clusters: true };

    pub(super) fn of(properties: &Properties) -> Self {
        // The kernels have up to 17 KiB of static shared memory beside the dynamic one.
        let shared_per_block = (properties.shared_memory_per_block as usize).saturating_sub(17 << 10);
        Self {
            multiprocessors: properties.multiprocessors.max(1) as usize,
            shared_per_block,
            // Two products and an attention share a multiprocessor.
            ring: RING.min(properties.shared_memory_per_multiprocessor as usize / 3),
            clusters: properties.architecture().has_bulk_copies(),
        }
    }
}
