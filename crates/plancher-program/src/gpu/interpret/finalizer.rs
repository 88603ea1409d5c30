//! The finalizer: adds what the consumers of its worker have found, in their order, finishes it, publishes it, and clears
//! what it published in the step before. It keeps the worker's rows of the residual stream, and ends every step by finding
//! the next token as all other finalizers do.

use super::attention::merge;
use super::consumer::RESIDUAL_SCALE;
use super::element::{clamp, ordered_bits, pack, round};
use super::machine::{Seat, Wait};
use super::memory::Change;
use super::model::Tile;
use super::worker::{Chunk, add_up};
use crate::gpu::{CONSUMERS, Element, Instruction, Operation, Product, Slot};
use crate::math::activate;
use plancher_model::{FeedForward, LayerTensor, TensorKey};

/// What is chosen where no logit is finite.
const NO_TOKEN: u32 = u32::MAX;
/// Splits that are combined at once.
const MOST_SPLITS: usize = 16;

struct Finalizer<'a> {
    seat: Seat<'a>,
    step: usize,
    /// Chunks taken so far.
    chunk: usize,
    first_row: usize,
    residual: Vec<f32>,
    /// Whether the step before has been cleared.
    cleared: bool,
    /// The best candidate of this worker's rows of the head; 0 for none.
    best: u64,
}

pub(super) async fn run(seat: Seat<'_>) {
    let task = &seat.machine.task;
    let mut token = task.token;
    let mut finalizer =
        Finalizer { seat, step: 0, chunk: 0, first_row: 0, residual: Vec::new(), cleared: false, best: 0 };
    for step in 0..task.steps {
        let own = seat.own();
        own.token.set(token);
        own.begun.set(step + 1);
        seat.notify();
        finalizer.step = step;
        finalizer.cleared = false;
        finalizer.best = 0;
        let stop = seat.worker == 0 && {
            let tokens = seat.machine.tokens.borrow().clone();
            (task.stop.borrow_mut())(&tokens)
        };
        for (index, instruction) in seat.machine.model.lists[seat.worker].iter().enumerate() {
            seat.at(step, index);
            if matches!(instruction.operation, Operation::Head | Operation::End) && !finalizer.cleared {
                finalizer.cleared = true;
                if seat.worker == 0 {
                    seat.store(Change::Publish { word: seat.machine.stop_word(step), value: u32::from(stop) });
                }
                finalizer.clear_before().await;
            }
            finalizer.perform(token, instruction).await;
        }
        if !task.chooses {
            return;
        }
        let (next, stop) = finalizer.choose().await;
        token = next;
        seat.store(Change::Arrive);
        if stop {
            return;
        }
    }
}

impl Finalizer<'_> {
    async fn perform(&mut self, token: u32, instruction: &Instruction) {
        let model = self.seat.machine.model;
        let (first, count) = (instruction.first as usize, instruction.count as usize);
        match instruction.operation {
            Operation::End => {}
            Operation::Embed => {
                self.first_row = first;
                self.residual = (first..first + count).map(|row| model.embedding(token, row)).collect();
            }
            Operation::Attend => self.attend(instruction).await,
            Operation::Combine => self.combine(instruction).await,
            _ => {
                for tile in model.tiles(instruction) {
                    let chunks = self.take().await;
                    self.tile(instruction, &tile, &chunks);
                    self.seat.turn().await;
                }
            }
        }
    }

    async fn take(&mut self) -> [Chunk; CONSUMERS] {
        self.seat.wait(Wait::Sums(self.chunk)).await;
        self.chunk += 1;
        let chunks = self.seat.own().take();
        self.seat.notify();
        chunks
    }

    /// Finishes the rows of a tile.
    fn tile(&mut self, instruction: &Instruction, tile: &Tile, chunks: &[Chunk; CONSUMERS]) {
        let model = self.seat.machine.model;
        let layer = usize::from(instruction.layer);
        let factor = model.inverse_rms(add_up(std::array::from_fn(|consumer| chunks[consumer].squares)));
        let sum = |row: usize| add_up(std::array::from_fn(|consumer| chunks[consumer].values[row]));
        let rows = tile.first..tile.first + tile.rows;
        let values = rows.clone().map(|row| row - tile.first);
        match instruction.operation {
            Operation::QueryKeyValue => {
                let values =
                    values.map(|row| model.round(sum(row) * factor + self.bias(instruction, tile.first + row)));
                self.publish(layer, Slot::QueryKeyValue, tile.first, &values.collect::<Vec<_>>());
            }
            Operation::GateUp => {
                let FeedForward::Dense { activation, size } = model.config.layers[layer].feed_forward else { return };
                let gated = values.map(|row| {
                    let gate = sum(row) * factor + self.bias(instruction, tile.first + row);
                    let up = sum(row + 8) * factor + self.bias(instruction, size + tile.first + row);
                    model.round(clamp(model.plan.target.element, activate(activation, gate) * up))
                });
                self.publish(layer, Slot::Gated, tile.first, &gated.collect::<Vec<_>>());
            }
            Operation::Output | Operation::Down => {
                let branch = values.map(|row| sum(row) + self.bias(instruction, tile.first + row)).collect::<Vec<_>>();
                let own = &mut self.residual[tile.first - self.first_row..][..tile.rows];
                own.iter_mut().zip(&branch).for_each(|(x, branch)| *x += branch);
                // Norms behind branches need the whole branch: then every consumer keeps its columns of the stream.
                let published: &[f32] = if model.plan.shape.post_norms { &branch } else { own };
                let bits: Vec<_> = published.iter().map(|x| round(Element::F16, x * RESIDUAL_SCALE)).collect();
                if instruction.operation == Operation::Output {
                    self.publish(layer, Slot::FeedForward, tile.first, &bits);
                } else {
                    self.publish(layer + 1, Slot::Attention, tile.first, &bits);
                }
            }
            _ => {
                for row in rows {
                    let logit = sum(row - tile.first) * factor;
                    self.seat.machine.logits.borrow_mut()[row] = logit;
                    self.best = self.best.max(u64::from(ordered_bits(logit)) << 32 | u64::from(!(row as u32)));
                }
            }
        }
    }

    /// The bias of a row of the stacked matrix; 0 where there is none.
    fn bias(&self, instruction: &Instruction, row: usize) -> f32 {
        use LayerTensor::{AttentionOutput, Down, Gate, Key, Query, Up, Value};
        let model = self.seat.machine.model;
        let shape = &model.plan.shape;
        let parts: &[(LayerTensor, usize)] = match model.plan.product_of(instruction.operation).map(|p| p.product) {
            Some(Product::QueryKeyValue) => {
                &[(Query, shape.query_rows()), (Key, shape.kv_rows()), (Value, shape.kv_rows())]
            }
            Some(Product::Output) => &[(AttentionOutput, shape.hidden)],
            Some(Product::GateUp) => &[(Gate, shape.feed_forward), (Up, shape.feed_forward)],
            Some(Product::Down) => &[(Down, shape.hidden)],
            _ => &[],
        };
        let mut row = row;
        for &(tensor, rows) in parts {
            if row < rows {
                let key = TensorKey::Layer(usize::from(instruction.layer), tensor);
                return model.vectors.bias(key).map_or(0.0, |bias| bias[row]);
            }
            row -= rows;
        }
        0.0
    }

    /// Publishes elements of a slot from `first` on.
    fn publish(&self, layer: usize, slot: Slot, first: usize, elements: &[u16]) {
        let start = self.seat.machine.slot(self.step, layer, slot) + first / 2;
        for (word, pair) in elements.chunks_exact(2).enumerate() {
            self.seat.store(Change::Publish { word: start + word, value: pack(pair[0], pair[1]) });
        }
    }

    /// Clears what workers published in the step before where this one has rows now, once all are done with that step.
    async fn clear_before(&self) {
        let (seat, machine) = (self.seat, self.seat.machine);
        let Some(before) = self.step.checked_sub(1) else { return };
        seat.wait(Wait::Arrivals(machine.workers.len() * self.step)).await;
        let shape = &machine.model.plan.shape;
        let active = self.active_splits(before);
        for instruction in &machine.model.lists[seat.worker] {
            let layer = usize::from(instruction.layer);
            let rows = (instruction.first as usize, instruction.count as usize);
            let (slot, (first, count)) = match instruction.operation {
                Operation::QueryKeyValue => (machine.slot(before, layer, Slot::QueryKeyValue), rows),
                // Whoever wrote them.
                Operation::Combine => (machine.slot(before, layer, Slot::Attended), rows),
                Operation::Output => (machine.slot(before, layer, Slot::FeedForward), rows),
                Operation::GateUp => (machine.slot(before, layer, Slot::Gated), rows),
                Operation::Down => (machine.slot(before, layer + 1, Slot::Attention), rows),
                Operation::Attend if active > 1 && rows.1 < active => {
                    let heads = machine.model.plan.attention.heads(rows.0);
                    let row = rows.1 * shape.n_heads + heads.start;
                    // A word each is as much as two elements.
                    let sums = machine.slot(before, layer, Slot::PartialSums);
                    self.clear(sums, 4 * row, 4 * heads.len());
                    let outputs = machine.slot(before, layer, Slot::PartialOutputs);
                    (outputs, (row * shape.head_dim, heads.len() * shape.head_dim))
                }
                _ => continue,
            };
            self.clear(slot, first, count);
            seat.turn().await;
        }
        seat.store(Change::ClearWide { word: machine.candidate(before, seat.worker) });
        if seat.worker == 0 {
            seat.store(Change::Clear { word: machine.stop_word(before) });
        }
    }

    fn clear(&self, slot: usize, first: usize, elements: usize) {
        let start = slot + first / 2;
        for word in start..start + elements / 2 {
            self.seat.store(Change::Clear { word });
        }
    }

    /// How many splits are active in a step.
    fn active_splits(&self, step: usize) -> usize {
        self.seat.machine.model.plan.attention.active_splits(self.seat.machine.task.position + step)
    }

    async fn attend(&mut self, instruction: &Instruction) {
        let model = self.seat.machine.model;
        let (shape, layer) = (&model.plan.shape, usize::from(instruction.layer));
        let split = instruction.count as usize;
        let active = self.active_splits(self.step);
        if split >= active {
            return;
        }
        let chunks = self.take().await;
        for (number, head) in model.plan.attention.heads(instruction.first as usize).enumerate() {
            let (maximum, sum, out) = merge(&chunks, number, shape.head_dim);
            let elements: Vec<_> = out.into_iter().map(|x| model.round(x)).collect();
            if active == 1 {
                self.publish(layer, Slot::Attended, head * shape.head_dim, &elements);
                continue;
            }
            let row = split * shape.n_heads + head;
            self.publish(layer, Slot::PartialOutputs, row * shape.head_dim, &elements);
            let words = self.seat.machine.slot(self.step, layer, Slot::PartialSums) + 2 * row;
            for (word, x) in [maximum, sum].into_iter().enumerate() {
                let x = if x.is_nan() { f32::from_bits(0x7fff_ffff) } else { x };
                self.seat.store(Change::Publish { word: words + word, value: x.to_bits() });
            }
        }
        self.seat.turn().await;
    }

    /// The worker's share of the attention outputs from those of all active splits.
    async fn combine(&mut self, instruction: &Instruction) {
        let (machine, model) = (self.seat.machine, self.seat.machine.model);
        let (shape, layer) = (&model.plan.shape, usize::from(instruction.layer));
        let (first, count) = (instruction.first as usize, instruction.count as usize);
        let active = self.active_splits(self.step);
        if active == 1 {
            return;
        }
        let outputs = machine.slot(self.step, layer, Slot::PartialOutputs);
        let sums = machine.slot(self.step, layer, Slot::PartialSums);
        // Heads are whole eights of outputs.
        for at in (first..first + count).step_by(8) {
            let head = at / shape.head_dim;
            let mut states = [(f32::NEG_INFINITY, 0.0); MOST_SPLITS];
            let mut parts = [[0.0; 9]; MOST_SPLITS];
            for split in 0..active {
                let words = sums + 2 * (split * shape.n_heads + head);
                for word in words..words + 2 {
                    self.seat.wait(Wait::Word(word)).await;
                }
                states[split] = (f32::from_bits(machine.word(words)), f32::from_bits(machine.word(words + 1)));
                let elements = self.seat.read(outputs, split * shape.query_rows() + at, 8).await;
                for (part, bits) in parts[split].iter_mut().zip(elements) {
                    *part = model.element(bits);
                }
            }
            let maximum = states.iter().map(|state| state.0).fold(f32::NEG_INFINITY, f32::max);
            for (part, (own, sum)) in parts.iter_mut().zip(states) {
                let weight = if own == f32::NEG_INFINITY { 0.0 } else { sum * (own - maximum).exp2() };
                part[8] = 1.0;
                *part = part.map(|x| x * weight);
            }
            // In halves, as lanes add.
            for half in [8, 4, 2, 1] {
                let (low, high) = parts.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    for (low, high) in low.iter_mut().zip(high) {
                        *low += *high;
                    }
                }
            }
            let factor = 1.0 / parts[0][8];
            let elements: Vec<_> = parts[0][..8].iter().map(|x| model.round(x * factor)).collect();
            self.publish(layer, Slot::Attended, at, &elements);
        }
        self.seat.turn().await;
    }

    /// The next token, as every worker finds it, and whether the run ends with it.
    async fn choose(&self) -> (u32, bool) {
        let (seat, machine) = (self.seat, self.seat.machine);
        let word = machine.candidate(self.step, seat.worker);
        seat.store(Change::PublishWide { word, value: self.best });
        seat.turn().await;
        let mut best = 0;
        for worker in 0..machine.workers.len() {
            let word = machine.candidate(self.step, worker);
            seat.wait(Wait::Word(word + 1)).await;
            best = best.max(u64::from(machine.word(word + 1)) << 32 | u64::from(machine.word(word)));
        }
        let stop = machine.stop_word(self.step);
        seat.wait(Wait::Word(stop)).await;
        let bits = (best >> 32) as u32;
        // Infinities have the ordered bits 0xff800000 and 0x007fffff.
        let token = if bits > 0x007f_ffff && bits < 0xff80_0000 { !(best as u32) } else { NO_TOKEN };
        if seat.worker == 0 {
            machine.tokens.borrow_mut().push(token);
        }
        let ends = token == NO_TOKEN || machine.task.end_tokens.contains(&token);
        (token, ends || machine.word(stop) == 1)
    }
}
