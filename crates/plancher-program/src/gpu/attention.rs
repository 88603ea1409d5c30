//! How attention is cut: into units of at most eight query heads that share a key and value head, and each unit into
//! splits by position, so that a long context is read by all workers.

use std::ops::Range;

use super::{CONSUMERS, Shape};

/// Positions of a page of the cache.
pub const PAGE: usize = 32;
/// Consecutive pages that belong to one split: one for each consumer warp.
pub const SPLIT_PAGES: usize = CONSUMERS;
/// Query heads that a worker takes at a time.
const UNIT_HEADS: usize = 8;
/// The most splits.
const MOST_SPLITS: usize = 16;

/// One split of one unit: what an attention instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// `kv_head * blocks of heads + block`.
    pub kv_unit: usize,
    /// Which split of its positions.
    pub split: usize,
}

/// How attention is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Units before splitting: `n_kv_heads * ceil(group / 8)`.
    pub kv_units: usize,
    /// Parts into which the positions of a unit are cut, at most.
    pub splits: usize,
    group: usize,
    workers: usize,
}

impl Attention {
    pub(super) fn new(shape: &Shape, workers: usize) -> Self {
        let group = shape.group();
        let kv_units = shape.n_kv_heads * group.div_ceil(UNIT_HEADS);
        Self { kv_units, splits: (workers / kv_units).clamp(1, MOST_SPLITS), group, workers }
    }

    /// Who computes a unit's split.
    #[must_use]
    pub fn worker(&self, unit: Unit) -> usize {
        (unit.kv_unit + self.kv_units * unit.split) % self.workers
    }

    /// What `worker` computes, in the order of its instructions: one split of one unit, or, when there are more units
    /// than workers, several units.
    pub fn units(&self, worker: usize) -> impl Iterator<Item = Unit> + use<> {
        let Self { kv_units, splits, workers, .. } = *self;
        let all = if worker < workers { kv_units * splits } else { 0 };
        (worker..all).step_by(workers).map(move |n| Unit { kv_unit: n % kv_units, split: n / kv_units })
    }

    /// The key and value head of a unit.
    #[must_use]
    pub fn kv_head(&self, kv_unit: usize) -> usize {
        kv_unit / self.blocks()
    }

    /// The query heads of a unit.
    #[must_use]
    pub fn heads(&self, kv_unit: usize) -> Range<usize> {
        let (first, block) = (self.kv_head(kv_unit) * self.group, kv_unit % self.blocks());
        first + block * UNIT_HEADS..first + ((block + 1) * UNIT_HEADS).min(self.group)
    }

    /// Units of a key and value head.
    fn blocks(&self) -> usize {
        self.group.div_ceil(UNIT_HEADS)
    }

    /// How many splits have positions to read when the position `position`, counted from 0, is being appended.
    #[must_use]
    pub fn active_splits(&self, position: usize) -> usize {
        self.splits.min(position / (PAGE * SPLIT_PAGES) + 1)
    }

    /// The split that reads a page.
    #[must_use]
    pub fn split_of_page(&self, page: usize) -> usize {
        page / SPLIT_PAGES % self.splits
    }

    /// The consumer warp that reads a page.
    #[must_use]
    pub fn warp_of_page(&self, page: usize) -> usize {
        page % SPLIT_PAGES
    }

    /// Pages of one split for `positions` positions: entries of the table of pages that a worker keeps.
    #[must_use]
    pub fn table_pages(&self, positions: usize) -> usize {
        positions.div_ceil(PAGE).div_ceil(SPLIT_PAGES * self.splits) * SPLIT_PAGES
    }
}
