//! Where every weight lies in the streams, and a plain packer.
//!
//! A stage holds 2 KiB for each of the eight consumer warps: four fragments of 512 bytes, 16 bytes for each lane. Lane
//! `l` has `g = l / 4` and `j = l % 4`. Two fragments in a row cover 32 columns of a full tile, of which the lane has the
//! eight from `8 * j` on, of the tile's rows `g` and `g + 8`; of a half tile they cover 32 columns in each half of the
//! warp's columns, of row `g`. That is the order in which `mma.sync.m16n8k16` takes its first operand, up to an order of
//! the columns within 32 that the input shares.

use super::{CONSUMERS, Operation, Plan, Product, STAGE_ELEMENTS, TILE_ROWS};

/// Elements of a fragment.
const FRAGMENT: usize = 256;
/// Fragments of a warp in a stage.
const STAGE_FRAGMENTS: usize = 4;
/// Columns that two fragments cover.
const PAIR_COLUMNS: usize = 32;

/// Which part of which matrix a stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The matrix.
    pub product: Product,
    /// Its layer; the number of layers for the head.
    pub layer: usize,
    /// Which of the worker's instructions consumes it.
    pub instruction: usize,
    /// Rows of the matrix that its tile holds, from this one on (for gate and up: pairs).
    pub first_row: usize,
    /// How many rows (pairs) of the tile the matrix has; the others are zeros.
    pub rows: usize,
    /// Whether the tile is a half one.
    pub half: bool,
    /// Which of the tile's stages it is.
    pub stage: usize,
    columns: usize,
    warp_columns: usize,
    /// Rows of gate; 0 for other products.
    gate_rows: usize,
}

/// A place in a stored matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementSource {
    /// Of the matrix as stored: stacked query, key, value rows; all gate rows before all up rows.
    pub row: usize,
    /// Column.
    pub column: usize,
}

/// The bits of a row-major matrix of 16-bit elements.
#[derive(Clone, Copy, Debug)]
pub struct RowMajorBits<'a> {
    /// `(rows, stride)`.
    pub elements: &'a [u16],
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Plan {
    /// What stage `stage` of `worker`'s stream holds; `None` beyond its end.
    #[must_use]
    pub fn locate(&self, worker: usize, stage: usize) -> Option<Location> {
        let list = self.workers.get(worker)?;
        if stage >= list.stages as usize {
            return None;
        }
        // The last instruction that starts at or before it: those without stages start where the next one does.
        let instruction = list.first_stages.partition_point(|&first| first as usize <= stage) - 1;
        let instruction = (0..=instruction).rev().find(|&i| list.instructions[i].stages > 0)?;
        let words = list.instructions[instruction];
        let plan = self.product_of(words.operation)?;
        let within = stage - list.first_stages[instruction] as usize;
        let (tile, stage) = (within / plan.tile_stages(), within % plan.tile_stages());
        let count = words.count as usize;
        let half = tile == plan.tiles(count).full;
        let pairs = words.operation == Operation::GateUp;
        let tile_rows = if pairs { TILE_ROWS / 2 } else { TILE_ROWS };
        Some(Location {
            product: plan.product,
            layer: usize::from(words.layer),
            instruction,
            first_row: words.first as usize + tile * tile_rows,
            rows: (count - tile * tile_rows).min(tile_rows),
            half,
            stage,
            columns: plan.columns,
            warp_columns: plan.warp_columns(),
            gate_rows: if pairs { plan.rows } else { 0 },
        })
    }
}

impl Location {
    /// Which element of the matrix is the 16-bit element `index` of the stage, counted from 0 to [`STAGE_ELEMENTS`];
    /// `None` where it is a zero beyond the matrix.
    ///
    /// # Panics
    /// When `index` is not in the stage.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<ElementSource> {
        assert!(index < STAGE_ELEMENTS, "element {index} of a stage");
        let per_warp = STAGE_ELEMENTS / CONSUMERS;
        let (warp, in_warp) = (index / per_warp, index % per_warp);
        let (fragment, in_fragment) = (in_warp / FRAGMENT, in_warp % FRAGMENT);
        let (lane, in_lane) = (in_fragment / 8, in_fragment % 8);
        let (g, j) = (lane / 4, lane % 4);
        let fragment = self.stage * STAGE_FRAGMENTS + fragment;
        // A lane's 16 bytes are four words of two columns: the first operand's four registers.
        let (word, low_or_high) = (in_lane / 2, in_lane % 2);
        let column_in_pair = 8 * j + 4 * (fragment % 2) + 2 * (word / 2) + low_or_high;
        let mut column = warp * self.warp_columns + PAIR_COLUMNS * (fragment / 2) + column_in_pair;
        let mut row = g;
        if word % 2 == 1 {
            if self.half {
                column += self.warp_columns / 2;
            } else {
                row += TILE_ROWS / 2;
            }
        }
        if column >= self.columns {
            return None;
        }
        let row = self.row(row)?;
        Some(ElementSource { row, column })
    }

    /// The stored row that is row `row` of the tile.
    fn row(&self, row: usize) -> Option<usize> {
        let (row, stacked) = if self.product == Product::GateUp {
            (row % (TILE_ROWS / 2), if row < TILE_ROWS / 2 { 0 } else { self.gate_rows })
        } else {
            (row, 0)
        };
        (row < self.rows).then_some(stacked + self.first_row + row)
    }

    /// The stage's elements, from the matrix that it names.
    ///
    /// # Panics
    /// When `matrix` is smaller than the plan's.
    #[must_use]
    pub fn pack(&self, matrix: RowMajorBits<'_>) -> Vec<u16> {
        let element = |source: ElementSource| matrix.elements[source.row * matrix.stride + source.column];
        (0..STAGE_ELEMENTS).map(|index| self.source(index).map_or(0, element)).collect()
    }
}
