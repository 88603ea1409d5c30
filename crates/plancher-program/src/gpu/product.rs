//! The matrix products of a step: how their rows are cut into tiles, and the tiles into stages of the stream.
//!
//! A full tile is 16 rows, a half tile 8. Eight consumer warps split the columns: warp `w` owns `K / 8` consecutive ones
//! of the columns padded to a multiple of 512. A stage of 16 KiB holds four fragments of 512 bytes for each of them.

use serde::Serialize;

use super::{Partition, Shape};

/// Consumer warps of a worker: parts into which the columns are cut.
pub const CONSUMERS: usize = 8;
/// Bytes of a stage, the unit in which weights move.
pub const STAGE_BYTES: usize = 16 << 10;
/// 16-bit elements of a stage.
pub const STAGE_ELEMENTS: usize = STAGE_BYTES / 2;
/// Columns are padded with zeros to a multiple of this many.
pub const K_MULTIPLE: usize = 512;
/// Rows of a full tile.
pub const TILE_ROWS: usize = 16;

/// `columns` rounded up to whole stages of a full tile.
#[must_use]
pub fn padded(columns: usize) -> usize {
    columns.next_multiple_of(K_MULTIPLE)
}

/// A matrix product of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Query, key and value rows, stacked: `((n_heads + 2 * n_kv_heads) * head_dim, hidden)`.
    QueryKeyValue,
    /// The output projection: `(hidden, n_heads * head_dim)`.
    Output,
    /// Gate and up: `(2 * feed_forward, hidden)`, all gate rows before all up rows. Counted in pairs.
    GateUp,
    /// The down projection: `(hidden, feed_forward)`.
    Down,
    /// The head: `(vocab, hidden)`. Not part of a layer.
    Head,
}

impl Product {
    /// All of them, in the order of a step.
    pub const ALL: [Self; 5] = [Self::QueryKeyValue, Self::Output, Self::GateUp, Self::Down, Self::Head];
    /// Those of a layer, in order.
    pub const OF_LAYER: [Self; 4] = [Self::QueryKeyValue, Self::Output, Self::GateUp, Self::Down];

    /// Rows as instructions count them (pairs for [`Self::GateUp`]), and columns.
    #[must_use]
    pub fn size(self, shape: &Shape) -> (usize, usize) {
        match self {
            Self::QueryKeyValue => (shape.query_key_value_rows(), shape.hidden),
            Self::Output => (shape.hidden, shape.query_rows()),
            Self::GateUp => (shape.feed_forward, shape.hidden),
            Self::Down => (shape.hidden, shape.feed_forward),
            Self::Head => (shape.vocab, shape.hidden),
        }
    }

    /// Rows of the stored matrix.
    #[must_use]
    pub fn matrix_rows(self, shape: &Shape) -> usize {
        let (rows, _) = self.size(shape);
        if self == Self::GateUp { 2 * rows } else { rows }
    }

    /// The smallest number of rows (or pairs) that one worker can have.
    ///
    /// Rows of the residual stream have one owner for both products that add to it, so those two share the larger unit.
    pub(super) fn unit(self, shape: &Shape) -> usize {
        let own = |product: Self| {
            if has_half_tiles(padded(product.size(shape).1)) { TILE_ROWS / 2 } else { TILE_ROWS }
        };
        match self {
            Self::QueryKeyValue | Self::Head => own(self),
            Self::Output | Self::Down => own(Self::Output).max(own(Self::Down)),
            Self::GateUp => TILE_ROWS / 2,
        }
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::QueryKeyValue => "query/key/value",
            Self::Output => "output",
            Self::GateUp => "gate/up",
            Self::Down => "down",
            Self::Head => "head",
        })
    }
}

/// Whether a half tile of so many columns fills whole stages.
fn has_half_tiles(padded: usize) -> bool {
    padded.is_multiple_of(2 * K_MULTIPLE)
}

/// The tiles of an instruction, full ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Tiles of 16 rows (for [`Product::GateUp`], of 8 gate rows and the same 8 up rows).
    pub full: usize,
    /// Whether a tile of 8 rows follows.
    pub half: bool,
}

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductPlan {
    /// Which.
    pub product: Product,
    /// Rows, or pairs of gate and up.
    pub rows: usize,
    /// Columns of the matrix.
    pub columns: usize,
    /// Columns as packed, a multiple of [`K_MULTIPLE`].
    pub padded: usize,
    /// Who computes which rows.
    pub partition: Partition,
}

impl ProductPlan {
    pub(super) fn new(product: Product, shape: &Shape, workers: usize) -> Self {
        let (rows, columns) = product.size(shape);
        let partition = Partition::new(rows, product.unit(shape), workers);
        Self { product, rows, columns, padded: padded(columns), partition }
    }

    /// Columns of one consumer warp.
    #[must_use]
    pub fn warp_columns(&self) -> usize {
        self.padded / CONSUMERS
    }

    /// Stages of a full tile.
    #[must_use]
    pub fn tile_stages(&self) -> usize {
        self.padded / K_MULTIPLE
    }

    /// The tiles of an instruction for `count` rows. The rest after full tiles is a half tile when it has at most 8 rows
    /// and half tiles fill whole stages, else one more full tile whose missing rows are zeros.
    #[must_use]
    pub fn tiles(&self, count: usize) -> Tiles {
        if self.product == Product::GateUp {
            return Tiles { full: count.div_ceil(TILE_ROWS / 2), half: false };
        }
        let rest = count % TILE_ROWS;
        let half = (1..=TILE_ROWS / 2).contains(&rest) && has_half_tiles(self.padded);
        Tiles { full: count / TILE_ROWS + usize::from(rest > 0 && !half), half }
    }

    /// Stages of an instruction for `count` rows.
    #[must_use]
    pub fn stages(&self, count: usize) -> usize {
        let tiles = self.tiles(count);
        tiles.full * self.tile_stages() + if tiles.half { self.tile_stages() / 2 } else { 0 }
    }
}
