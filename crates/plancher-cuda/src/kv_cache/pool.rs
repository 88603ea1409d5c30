//! Which blocks belong to which sequence.

use std::ops::Range;

use super::PAGE;

/// Blocks that are free, and those of each sequence in the order of its positions.
#[derive(Debug)]
pub(super) struct BlockPool {
    free: Vec<u32>,
    tables: Vec<Vec<u32>>,
    blocks_each: usize,
    total: usize,
}

impl BlockPool {
    /// `blocks` blocks, all free, and `sequences` empty sequences of up to `blocks_each` blocks.
    pub(super) fn new(blocks: usize, sequences: usize, blocks_each: usize) -> Self {
        // From the last to the first, so that the first is handed out first.
        let free = (0..blocks as u32).rev().collect();
        Self { free, tables: vec![Vec::new(); sequences], blocks_each, total: blocks }
    }

    pub(super) fn sequences(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn blocks_each(&self) -> usize {
        self.blocks_each
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn used(&self) -> usize {
        self.total - self.free.len()
    }

    /// Blocks that `sequence` still needs to hold `positions`.
    pub(super) fn needed(&self, sequence: usize, positions: usize) -> usize {
        positions.div_ceil(PAGE).saturating_sub(self.tables[sequence].len())
    }

    /// How many of those there are not.
    pub(super) fn missing(&self, sequence: usize, positions: usize) -> usize {
        self.needed(sequence, positions).saturating_sub(self.free.len())
    }

    /// Gives `sequence` the blocks it needs, as far as there are any; returns which entries of its table are new.
    pub(super) fn extend(&mut self, sequence: usize, positions: usize) -> Range<usize> {
        let first_kept = self.free.len() - self.needed(sequence, positions).min(self.free.len());
        let table = &mut self.tables[sequence];
        let start = table.len();
        table.extend(self.free.drain(first_kept..).rev());
        start..table.len()
    }

    /// Frees the blocks of `sequence` that hold no position below `positions`.
    pub(super) fn truncate(&mut self, sequence: usize, positions: usize) {
        let table = &mut self.tables[sequence];
        let kept = positions.div_ceil(PAGE).min(table.len());
        self.free.extend(table.drain(kept..).rev());
    }

    /// The blocks of `sequence`.
    pub(super) fn table(&self, sequence: usize) -> &[u32] {
        &self.tables[sequence]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_never_share_a_block_and_blocks_come_back() {
        let mut pool = BlockPool::new(5, 2, 4);
        assert_eq!(pool.extend(0, 33), 0..2);
        assert_eq!(pool.extend(1, 1), 0..1);
        assert_eq!(pool.extend(0, 64), 2..2, "two blocks hold 64 positions");
        assert_eq!(pool.extend(0, 65), 2..3);
        assert_eq!((pool.table(0), pool.table(1)), (&[0, 1, 3][..], &[2][..]));
        assert_eq!((pool.used(), pool.missing(1, 96)), (4, 1));
        pool.truncate(0, 32);
        assert_eq!((pool.table(0), pool.used(), pool.missing(1, 96)), (&[0][..], 2, 0));
        assert_eq!(pool.extend(1, 96), 1..3);
        let mut all: Vec<u32> = pool.table(0).iter().chain(pool.table(1)).copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), pool.used());
        pool.truncate(0, 0);
        pool.truncate(1, 0);
        assert_eq!(pool.used(), 0);
    }
}
