//! What of a device decides how a decode step is cut.

use crate::Properties;

/// Shared memory that the slices of a product take where there is plenty: 64 KiB under way on each multiprocessor keep
/// the memory busy on Hopper; a little more covers the time between two kernels.
const RING: usize = 80 << 10;
/// Shared memory that the system takes of each block.
const RESERVED: usize = 1 << 10;
/// Static shared memory of a product: sums of its warps, for one or two sequences.
const PRODUCT_STATIC: usize = 3 << 10;
/// The most static shared memory of a product.
const LARGEST_STATIC: usize = 17 << 10;

/// The device, as far as the kernels care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) multiprocessors: usize,
    /// The most dynamic shared memory of a block, in bytes.
    pub(super) shared_per_block: usize,
    /// What the slices of a product should take of it.
    pub(super) ring: usize,
    /// What a product asks for even where it needs less: so much that exactly two fit on a multiprocessor, beside an
    /// attention. Blocks of the next product then spread over all of them evenly, instead of piling up where the last
    /// one ended first.
    pub(super) footprint: usize,
    /// Whether blocks can form clusters.
    pub(super) clusters: bool,
}

impl Shape {
    /// A small device of the latest kind: what the catalogue compiles for.
    pub(super) const SMALL: Self =
        Self { multiprocessors: 24, shared_per_block: 82 << 10, ring: 32 << 10, footprint: 0, clusters: true };

    /// The shape of a device on which an attention takes `attention` bytes of a multiprocessor's shared memory.
    pub(super) fn of(properties: &Properties, attention: usize) -> Self {
        let total = properties.shared_memory_per_multiprocessor as usize;
        let half = total.saturating_sub(attention + RESERVED) / 2;
        let footprint = if 3 * half > total { half.saturating_sub(RESERVED + PRODUCT_STATIC) } else { 0 };
        Self {
            multiprocessors: properties.multiprocessors.max(1) as usize,
            shared_per_block: (properties.shared_memory_per_block as usize).saturating_sub(LARGEST_STATIC),
            ring: RING.min(if footprint > 0 { footprint } else { total / 3 }),
            footprint,
            clusters: properties.architecture().has_bulk_copies(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_products_and_an_attention_share_a_multiprocessor_and_three_products_do_not() {
        let total = 228 << 10;
        let properties = Properties {
            multiprocessors: 132,
            shared_memory_per_multiprocessor: total as u32,
            shared_memory_per_block: 227 << 10,
            compute_capability: (9, 0),
            ..Properties::default()
        };
        for attention in [20 << 10, 50 << 10, 66 << 10] {
            let shape = Shape::of(&properties, attention);
            let product = shape.footprint + PRODUCT_STATIC + RESERVED;
            assert!(2 * product + attention + RESERVED <= total && 3 * product > total, "{shape:?}");
            assert!(shape.ring <= shape.footprint);
        }
        assert_eq!(Shape::of(&properties, 100 << 10).footprint, 0);
    }
}
