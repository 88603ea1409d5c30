//! The consumers: each multiplies its eighth of the columns of everything that its worker computes, in the order of the
//! tensor cores' fragments, and attends to its pages.

use super::attention;
use super::element::{clamp, split};
use super::machine::{Seat, Wait};
use super::model::Tile;
use super::worker::Chunk;
use crate::gpu::{CONSUMERS, Element, Instruction, Operation, STAGE_BYTES, Slot, TILE_ROWS, padded};

/// Fragments of a stage, each with its own accumulator.
const FRAGMENTS: usize = 4;
const FRAGMENT_BYTES: usize = 512;
/// What is published of the residual stream is this much smaller, so that f16 has room for outliers.
pub(super) const RESIDUAL_SCALE: f32 = 1.0 / 64.0;

/// A consumer's columns of a product's input.
struct Input {
    high: Vec<f32>,
    /// What rounding has left; nothing of what was exchanged as elements.
    low: Vec<f32>,
    /// Of a normed input, before the norm's weights.
    squares: f32,
}

/// Sums of `(fragments of a stage, rows, high and low)`.
type Accumulators = [[[f32; 2]; TILE_ROWS]; FRAGMENTS];

pub(super) struct Consumer<'a> {
    pub(super) seat: Seat<'a>,
    /// Stages of the ring and chunks of sums so far.
    pub(super) stage: usize,
    chunk: usize,
    /// With norms behind branches: this consumer's columns of the residual stream, branches of this step that are in it,
    /// and branches of the run.
    residual: Vec<f32>,
    taken_up: usize,
    branches: usize,
}

pub(super) async fn run(seat: Seat<'_>) {
    let mut consumer = Consumer { seat, stage: 0, chunk: 0, residual: Vec::new(), taken_up: 0, branches: 0 };
    let machine = seat.machine;
    for step in 0..machine.task.steps {
        seat.wait(Wait::Step(step)).await;
        consumer.residual.clear();
        consumer.taken_up = 0;
        for (index, instruction) in machine.model.lists[seat.worker].iter().enumerate() {
            seat.at(step, index);
            let layer = usize::from(instruction.layer);
            let input = match instruction.operation {
                Operation::QueryKeyValue | Operation::Head => consumer.normed(step, 2 * layer).await,
                Operation::GateUp => consumer.normed(step, 2 * layer + 1).await,
                Operation::Output => consumer.elements(machine.slot(step, layer, Slot::Attended), instruction).await,
                Operation::Down => consumer.elements(machine.slot(step, layer, Slot::Gated), instruction).await,
                Operation::Attend => {
                    attention::consume(&mut consumer, step, instruction).await;
                    continue;
                }
                Operation::Embed | Operation::Combine | Operation::End => continue,
            };
            consumer.multiply(instruction, &input).await;
        }
    }
}

impl Consumer<'_> {
    /// This consumer's columns of a row of so many: those that exist, and how many there are with padding.
    fn columns(&self, columns: usize) -> (std::ops::Range<usize>, usize) {
        let share = padded(columns) / CONSUMERS;
        let first = self.seat.warp * share;
        (first.min(columns)..(first + share).min(columns), share)
    }

    /// An input that was exchanged as elements.
    async fn elements(&self, slot: usize, instruction: &Instruction) -> Input {
        let model = self.seat.machine.model;
        let columns = model.plan.product_of(instruction.operation).map_or(0, |product| product.columns);
        let (columns, share) = self.columns(columns);
        let bits = self.seat.read(slot, columns.start, columns.len()).await;
        let mut high: Vec<f32> = bits.into_iter().map(|bits| model.element(bits)).collect();
        high.resize(share, 0.0);
        Input { high, low: vec![0.0; share], squares: 0.0 }
    }

    /// The normed residual stream after `edge` branches, without the factor 1 / rms.
    async fn normed(&mut self, step: usize, edge: usize) -> Input {
        let model = self.seat.machine.model;
        let (columns, share) = self.columns(model.config.hidden_size);
        let x = self.residual(step, edge).await;
        let norm = &model.vectors.norm(edge / 2, edge % 2 == 1)[columns];
        let element = model.plan.target.element;
        let normed = x.iter().zip(norm).map(|(x, norm)| split(element, clamp(element, x * norm)));
        let (mut high, mut low): (Vec<_>, Vec<_>) = normed.unzip();
        high.resize(share, 0.0);
        low.resize(share, 0.0);
        Input { high, low, squares: x.iter().map(|x| x * x).sum() }
    }

    /// This consumer's columns of the residual stream after `edge` branches, times [`RESIDUAL_SCALE`].
    async fn residual(&mut self, step: usize, edge: usize) -> Vec<f32> {
        let model = self.seat.machine.model;
        let (columns, _) = self.columns(model.config.hidden_size);
        let embedded =
            columns.clone().map(|column| model.embedding(self.seat.own().token.get(), column) * RESIDUAL_SCALE);
        if !model.plan.shape.post_norms {
            if edge == 0 {
                return embedded.collect();
            }
            return self.published(step, edge).await;
        }
        if self.taken_up == 0 && self.residual.is_empty() {
            self.residual = embedded.collect();
        }
        // A worker that had no rows in between has several branches to take up.
        while self.taken_up < edge {
            self.taken_up += 1;
            let branch = self.published(step, self.taken_up).await;
            let own = self.seat.own();
            own.leave_squares(self.seat.warp, branch.iter().map(|x| x * x).sum());
            self.seat.notify();
            self.seat.wait(Wait::Squares(self.branches)).await;
            let factor = model.inverse_rms(own.squares(self.branches));
            self.branches += 1;
            let norm = model.vectors.post_norm(self.taken_up / 2, self.taken_up % 2 == 1);
            let norm = norm.map(|norm| &norm[columns.clone()]).unwrap_or_default();
            for ((x, branch), norm) in self.residual.iter_mut().zip(&branch).zip(norm) {
                *x += branch * factor * norm * RESIDUAL_SCALE;
            }
        }
        self.residual.clone()
    }

    /// This consumer's columns of what the owners of rows published after branch `edge`, as they did.
    async fn published(&self, step: usize, edge: usize) -> Vec<f32> {
        let machine = self.seat.machine;
        let slot = if edge % 2 == 1 { Slot::FeedForward } else { Slot::Attention };
        let (columns, _) = self.columns(machine.model.config.hidden_size);
        let bits = self.seat.read(machine.slot(step, edge / 2, slot), columns.start, columns.len()).await;
        bits.into_iter().map(|bits| super::element::value(Element::F16, bits)).collect()
    }

    async fn multiply(&mut self, instruction: &Instruction, input: &Input) {
        let element = self.seat.machine.model.plan.target.element;
        let start = self.seat.warp * STAGE_BYTES / CONSUMERS;
        // Where all columns are padding, products are zeros.
        let is_padding = input.high.iter().chain(&input.low).all(|&x| x == 0.0);
        for tile in self.seat.machine.model.tiles(instruction) {
            let mut sums = Accumulators::default();
            for stage in 0..tile.stages {
                self.seat.wait(Wait::Landed(self.stage)).await;
                if !is_padding {
                    self.seat.own().with_stage(self.stage, |bytes| {
                        let bytes = &bytes[start..start + STAGE_BYTES / CONSUMERS];
                        multiply_stage(element, bytes, &tile, stage, input, &mut sums);
                    });
                }
                self.release().await;
            }
            self.deliver(Chunk { values: tile_sums(&sums, &tile), squares: input.squares }).await;
        }
    }

    /// The consumer is done with the stage.
    pub(super) async fn release(&mut self) {
        self.stage += 1;
        self.seat.own().used[self.seat.warp].set(self.stage);
        self.seat.notify();
        self.seat.turn().await;
    }

    pub(super) async fn deliver(&mut self, chunk: Chunk) {
        self.seat.wait(Wait::Buffer(self.chunk)).await;
        self.chunk += 1;
        self.seat.own().deliver(self.seat.warp, chunk);
        self.seat.notify();
    }
}

/// Adds a stage's products. Lane `(g, j)` of a fragment has rows `g` and `g + 8` of four of its sixteen columns; in a half
/// tile the second row is row `g` again, of columns from the second half of the consumer's.
fn multiply_stage(element: Element, bytes: &[u8], tile: &Tile, stage: usize, input: &Input, sums: &mut Accumulators) {
    for (number, (fragment, sums)) in bytes.chunks_exact(FRAGMENT_BYTES).zip(sums.iter_mut()).enumerate() {
        let number = stage * FRAGMENTS + number;
        let first = number / 2 * 32 + number % 2 * 4;
        for (row, sums) in sums.iter_mut().enumerate() {
            let lower = row >= TILE_ROWS / 2;
            let first = if lower && tile.half { first + input.high.len() / 2 } else { first };
            // One instruction adds its products and the accumulator as if exactly, and rounds once.
            let mut exact = sums.map(f64::from);
            for j in 0..4 {
                let lane = &fragment[(row % 8 * 4 + j) * 16..][..16];
                for pair in 0..2 {
                    let word = 2 * pair + usize::from(lower);
                    for low_or_high in 0..2 {
                        let at = word * 4 + low_or_high * 2;
                        let bits = u16::from_le_bytes([lane[at], lane[at + 1]]);
                        let weight = f64::from(super::element::value(element, bits));
                        let column = first + 8 * j + 2 * pair + low_or_high;
                        exact[0] += weight * f64::from(input.high[column]);
                        exact[1] += weight * f64::from(input.low[column]);
                    }
                }
            }
            *sums = exact.map(|sum| sum as f32);
        }
    }
}

/// A consumer's sums of the rows of a tile: over accumulators, then the halves of a half tile, then high and low.
fn tile_sums(sums: &Accumulators, tile: &Tile) -> Vec<f32> {
    let of =
        |row: usize, part: usize| (sums[0][row][part] + sums[1][row][part]) + (sums[2][row][part] + sums[3][row][part]);
    if tile.half {
        return (0..8).map(|row| (of(row, 0) + of(row + 8, 0)) + (of(row, 1) + of(row + 8, 1))).collect();
    }
    (0..TILE_ROWS).map(|row| of(row, 0) + of(row, 1)).collect()
}
