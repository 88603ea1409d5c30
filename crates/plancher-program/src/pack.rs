//! Packing: each worker's weights as one contiguous stream, in the order in which it consumes them.
//! The order is the program's; how the bytes of one tile are arranged is the backend's, behind [`TileLayout`].
//!
//! Every worker may pack its own stream on its own thread, so that the memory is its own by first touch. All go
//! through the tensors in the same order, and source pages are released as they have been read, so that at no time
//! much more than one copy of the weights is resident.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use plancher_model::{DType, TensorKey, TensorView, Weights};

use crate::{Program, ProgramError, Segment};

/// How a backend arranges the rows of one weight tile.
pub trait TileLayout: Sync {
    /// Rows of a tile.
    fn tile_rows(&self) -> usize;

    /// Bytes of one packed tile of `columns` inputs; `None` when `columns` does not suit `dtype` or the size
    /// overflows.
    fn tile_bytes(&self, dtype: DType, columns: usize) -> Option<usize>;

    /// Packs rows `first_row .. first_row + tile_rows` of `view` into `out`; rows beyond the matrix are zeros.
    ///
    /// # Panics
    /// When `out` is not [`TileLayout::tile_bytes`] long.
    fn pack_tile(&self, view: &TensorView<'_>, first_row: usize, out: &mut [u8]);

    /// Writes row `row` of a packed tile as f32 into `out`, `(columns)`: the inverse of
    /// [`TileLayout::pack_tile`], for tests and the interpreter.
    ///
    /// # Panics
    /// When `tile` is not [`TileLayout::tile_bytes`] long for `dtype` and `out.len()` columns, or `row` is not below
    /// [`TileLayout::tile_rows`].
    fn unpack_row(&self, dtype: DType, tile: &[u8], row: usize, out: &mut [f32]);
}

/// What all the packing workers share: how much is done, and which tensors are done.
#[derive(Debug)]
pub struct PackProgress {
    /// Tiles of each tensor not packed yet.
    remaining: HashMap<TensorKey, AtomicUsize>,
    packed: AtomicUsize,
}

impl PackProgress {
    /// Nothing packed yet.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let mut remaining = HashMap::<TensorKey, AtomicUsize>::new();
        for segment in program.workers.iter().flat_map(|worker| &worker.segments) {
            *remaining.entry(segment.tensor).or_default().get_mut() += segment.tiles.len();
        }
        Self { remaining, packed: AtomicUsize::new(0) }
    }

    /// Stream bytes written so far, of all workers.
    pub fn packed_bytes(&self) -> usize {
        self.packed.load(Ordering::Relaxed)
    }

    /// Counts the tiles of a packed segment; true when its tensor is now packed everywhere.
    fn finish(&self, segment: &Segment) -> bool {
        let tiles = segment.tiles.len();
        self.remaining.get(&segment.tensor).is_some_and(|left| left.fetch_sub(tiles, Ordering::Relaxed) == tiles)
    }
}

/// Source bytes that are read before their pages are released.
const RELEASE_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;

/// Fills the stream of `worker`. Call it once for every worker of `program`, on any threads, with one `progress`.
///
/// # Errors
/// When `weights` lacks a tensor of the stream, or has it in another shape or type than the program was made for.
///
/// # Panics
/// When `out` is not [`crate::WorkerProgram::stream_bytes`] long, or the program has not passed the checker.
pub fn pack_worker(
    program: &Program,
    worker: usize,
    weights: &Weights,
    layout: &dyn TileLayout,
    out: &mut [u8],
    progress: &PackProgress,
) -> Result<(), ProgramError> {
    let list = &program.workers[worker];
    assert_eq!(out.len(), list.stream_bytes, "the stream of worker {worker}");
    for segment in &list.segments {
        let view = source(segment, weights)?;
        let bytes = &mut out[segment.offset..segment.offset + segment.bytes];
        pack_segment(segment, &view, weights, layout, bytes, progress);
        if progress.finish(segment) {
            // The pages that two workers shared are still there.
            weights.release(segment.tensor);
        }
    }
    Ok(())
}

fn source<'a>(segment: &Segment, weights: &'a Weights) -> Result<TensorView<'a>, ProgramError> {
    let key = segment.tensor;
    let view = weights.get(key).ok_or(ProgramError::MissingTensor { key })?;
    let (expected, found) = ((segment.rows, segment.columns), (view.rows(), view.columns()));
    if expected != found {
        return Err(ProgramError::Shape { key, expected, found });
    }
    if view.dtype() != segment.dtype {
        return Err(ProgramError::Tile { key, columns: view.columns(), dtype: view.dtype() });
    }
    Ok(view)
}

fn pack_segment(
    segment: &Segment,
    view: &TensorView<'_>,
    weights: &Weights,
    layout: &dyn TileLayout,
    out: &mut [u8],
    progress: &PackProgress,
) {
    let tile_rows = layout.tile_rows();
    let row_bytes = view.row_bytes();
    let file = &weights.files()[view.tensor.file];
    let source = |tile: usize| view.tensor.offset + (tile * tile_rows).min(view.rows()) * row_bytes;
    let tile_bytes = segment.bytes / segment.tiles.len();
    let batch = (RELEASE_BYTES / (tile_rows * row_bytes).max(1)).max(1);
    let mut released = source(segment.tiles.start);
    let mut tile = segment.tiles.start;
    for tiles in out.chunks_mut(batch * tile_bytes) {
        for out in tiles.chunks_exact_mut(tile_bytes) {
            layout.pack_tile(view, tile * tile_rows, out);
            tile += 1;
        }
        progress.packed.fetch_add(tiles.len(), Ordering::Relaxed);
        // Only whole pages that hold nothing but this worker's rows; the last one is seen to with the next batch.
        let end = source(tile);
        file.release(released..end);
        released = released.max(end / PAGE * PAGE);
    }
}
