//! Sharing row tiles out over workers: contiguous whole tiles, balanced by bytes.

use std::ops::Range;

/// Tiles of equal size, one of the runs that a product is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) tiles: usize,
    pub(crate) tile_bytes: usize,
}

/// Remembers how much each worker has been given, so that the rounding of one product to whole tiles is made good
/// by the next and never adds up on one worker.
pub(crate) struct Balancer {
    /// Bytes given so far to workers `0..=w`.
    given: Vec<u128>,
    /// Bytes of all the products so far.
    total: u128,
}

impl Balancer {
    pub(crate) fn new(workers: usize) -> Self {
        Self { given: vec![0; workers], total: 0 }
    }

    /// Splits the concatenation of `runs` into one range of tiles per worker. Each boundary is one of the two tile
    /// edges about its fair place in this product (so every product is balanced in itself), and of these the one
    /// that brings the sum of all products so far nearer to its fair share.
    pub(crate) fn split(&mut self, runs: &[Run]) -> Vec<Range<usize>> {
        let workers = self.given.len() as u128;
        let bytes: u128 = runs.iter().map(|run| run.tiles as u128 * run.tile_bytes as u128).sum();
        self.total += bytes;
        let mut start = Edge { tiles: 0, bytes: 0 };
        let mut ranges = Vec::with_capacity(self.given.len());
        for (worker, given) in self.given.iter_mut().enumerate() {
            let share = worker as u128 + 1;
            // Positions and sums are compared in units of 1 / workers byte, to stay exact.
            let (below, above) = edges(runs, bytes * share, workers);
            let error = |edge: Edge| ((*given + edge.bytes) * workers).abs_diff(self.total * share);
            let nearest = if error(above) < error(below) { above } else { below };
            let end = if nearest.tiles < start.tiles { start } else { nearest };
            *given += end.bytes;
            ranges.push(start.tiles..end.tiles);
            start = end;
        }
        ranges
    }
}

/// A boundary between tiles: how many tiles, and how many bytes, lie before it.
#[derive(Clone, Copy)]
struct Edge {
    tiles: usize,
    bytes: u128,
}

/// The edges at or about `position / scale` bytes: the last one not beyond it and the first one not before it.
fn edges(runs: &[Run], position: u128, scale: u128) -> (Edge, Edge) {
    let mut before = Edge { tiles: 0, bytes: 0 };
    for run in runs {
        let tile = run.tile_bytes as u128;
        let run_end = before.bytes + run.tiles as u128 * tile;
        if run_end * scale > position {
            let tiles = (position - before.bytes * scale) / (tile * scale);
            let below = Edge { tiles: before.tiles + tiles as usize, bytes: before.bytes + tiles * tile };
            let exact = below.bytes * scale == position;
            let above = if exact { below } else { Edge { tiles: below.tiles + 1, bytes: below.bytes + tile } };
            return (below, above);
        }
        before = Edge { tiles: before.tiles + run.tiles, bytes: run_end };
    }
    (before, before)
}
