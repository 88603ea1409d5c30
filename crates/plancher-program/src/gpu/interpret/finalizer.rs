//! The finalizer: adds what the consumers of its worker have found, in their order, finishes it, publishes it, and clears
//! what it published in the step before. It keeps the worker's rows of the residual stream, and ends every step by finding
//! the next token as all other finalizers do.

use super::attention::merge;
use super::consumer::RESIDUAL_SCALE;
use super::element::{clamp, ordered_bits, pack, round};
use super::machine::{Key, Seat, Wait};
use super::model::Tile;
use super::worker::Chunk;
use crate::gpu::{CONSUMERS, Element, Instruction, Operation, Product, Slot};
use crate::math::activate;
use plancher_model::{FeedForward, LayerTensor, TensorKey};

/// What is chosen where no logit is finite.
const NO_TOKEN: u32 = u32::MAX;

struct Finalizer<'a> {
    seat: Seat<'a>,
    step: usize,
    /// Chunks taken so far.
    chunk: usize,
    first_row: usize,
    residual: Vec<f32>,
    /// Whether all workers are known to be done with the step before.
    may_clear: bool,
    /// The best candidate of this worker's rows of the head; 0 for none.
    best: u64,
}

pub(super) async fn run(seat: Seat<'_>) {
    let task = &seat.machine.task;
    let mut token = task.token;
    let mut finalizer =
        Finalizer { seat, step: 0, chunk: 0, first_row: 0, residual: Vec::new(), may_clear: true, best: 0 };
    for step in 0..task.steps {
        let own = seat.own();
        own.token.set(token);
        own.begun.set(step + 1);
        seat.notify();
        finalizer.step = step;
        finalizer.may_clear = step == 0;
        finalizer.best = 0;
        for (index, instruction) in seat.machine.model.lists[seat.worker].iter().enumerate() {
            seat.at(step, index);
            finalizer.perform(token, instruction).await;
        }
        if !task.chooses {
            return;
        }
        let (next, stop) = finalizer.choose().await;
        token = next;
        seat.machine.arrivals.set(seat.machine.arrivals.get() + 1);
        seat.machine.notify(Key::Arrivals);
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
                    self.tile(instruction, &tile, &chunks).await;
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
    async fn tile(&mut self, instruction: &Instruction, tile: &Tile, chunks: &[Chunk; CONSUMERS]) {
        let model = self.seat.machine.model;
        let layer = usize::from(instruction.layer);
        let squares: f32 = chunks.iter().map(|chunk| chunk.squares).sum();
        let mean = squares / model.config.hidden_size as f32;
        let factor = 1.0 / (RESIDUAL_SCALE * (mean + model.config.norm_eps).sqrt());
        let sum = |row: usize| chunks.iter().map(|chunk| chunk.values[row]).fold(0.0, |sum, value| sum + value);
        let rows = tile.first..tile.first + tile.rows;
        let values = rows.clone().map(|row| row - tile.first);
        match instruction.operation {
            Operation::QueryKeyValue => {
                let values =
                    values.map(|row| model.round(sum(row) * factor + self.bias(instruction, tile.first + row)));
                self.exchange(layer, Slot::QueryKeyValue, tile.first, &values.collect::<Vec<_>>()).await;
            }
            Operation::GateUp => {
                let FeedForward::Dense { activation, size } = model.config.layers[layer].feed_forward else { return };
                let gated = values.map(|row| {
                    let gate = sum(row) * factor + self.bias(instruction, tile.first + row);
                    let up = sum(row + 8) * factor + self.bias(instruction, size + tile.first + row);
                    model.round(clamp(model.plan.target.element, activate(activation, gate) * up))
                });
                self.exchange(layer, Slot::Gated, tile.first, &gated.collect::<Vec<_>>()).await;
            }
            Operation::Output | Operation::Down => {
                let branch = values.map(|row| sum(row) + self.bias(instruction, tile.first + row)).collect::<Vec<_>>();
                let own = &mut self.residual[tile.first - self.first_row..][..tile.rows];
                own.iter_mut().zip(&branch).for_each(|(x, branch)| *x += branch);
                // Norms behind branches need the whole branch: then every consumer keeps its columns of the stream.
                let published: &[f32] = if model.plan.shape.post_norms { &branch } else { own };
                let bits: Vec<_> = published.iter().map(|x| round(Element::F16, x * RESIDUAL_SCALE)).collect();
                if instruction.operation == Operation::Output {
                    self.exchange(layer, Slot::FeedForward, tile.first, &bits).await;
                } else {
                    self.exchange(layer + 1, Slot::Attention, tile.first, &bits).await;
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

    /// Publishes elements of a slot from `first` on, and clears what the step before published of them.
    async fn exchange(&mut self, layer: usize, slot: Slot, first: usize, elements: &[u16]) {
        self.publish(layer, slot, first, elements).await;
        self.clear(layer, slot, first, elements.len()).await;
    }

    async fn publish(&self, layer: usize, slot: Slot, first: usize, elements: &[u16]) {
        let start = self.seat.machine.slot(self.step, layer, slot) + first / 2;
        for (word, pair) in elements.chunks_exact(2).enumerate() {
            self.seat.publish(start + word, pack(pair[0], pair[1])).await;
        }
    }

    async fn clear(&mut self, layer: usize, slot: Slot, first: usize, elements: usize) {
        if let Some(before) = self.step.checked_sub(1) {
            self.wait_to_clear().await;
            let start = self.seat.machine.slot(before, layer, slot) + first / 2;
            for word in start..start + elements / 2 {
                self.seat.clear(word).await;
            }
        }
    }

    /// All workers must be done with the step before.
    async fn wait_to_clear(&mut self) {
        if !self.may_clear {
            let workers = self.seat.machine.workers.len();
            self.seat.wait(Wait::Arrivals(workers * self.step)).await;
            self.may_clear = true;
        }
    }

    /// How many splits are active in this step, and were in the step before.
    fn active_splits(&self) -> (usize, usize) {
        let (attention, position) = (&self.seat.machine.model.plan.attention, self.seat.machine.task.position);
        let active = |step: usize| attention.active_splits(position + step);
        (active(self.step), self.step.checked_sub(1).map_or(0, active))
    }

    async fn attend(&mut self, instruction: &Instruction) {
        let model = self.seat.machine.model;
        let (shape, layer) = (&model.plan.shape, usize::from(instruction.layer));
        let split = instruction.count as usize;
        let heads = model.plan.attention.heads(instruction.first as usize);
        let (active, before) = self.active_splits();
        if split < active {
            let chunks = self.take().await;
            for (number, head) in heads.clone().enumerate() {
                let (maximum, sum, out) = merge(&chunks, number, shape.head_dim);
                let elements: Vec<_> = out.into_iter().map(|x| model.round(x)).collect();
                if active == 1 {
                    self.publish(layer, Slot::Attended, head * shape.head_dim, &elements).await;
                    continue;
                }
                let row = split * shape.n_heads + head;
                self.publish(layer, Slot::PartialOutputs, row * shape.head_dim, &elements).await;
                let words = self.seat.machine.slot(self.step, layer, Slot::PartialSums) + 2 * row;
                for (word, x) in [maximum, sum].into_iter().enumerate() {
                    let x = if x.is_nan() { f32::from_bits(0x7fff_ffff) } else { x };
                    self.seat.publish(words + word, x.to_bits()).await;
                }
            }
            self.seat.turn().await;
        }
        if before == 1 && split == 0 {
            self.clear(layer, Slot::Attended, heads.start * shape.head_dim, heads.len() * shape.head_dim).await;
        } else if before > 1 && split < before {
            let row = split * shape.n_heads + heads.start;
            let elements = heads.len() * shape.head_dim;
            self.clear(layer, Slot::PartialOutputs, row * shape.head_dim, elements).await;
            // A word each is as much as two elements.
            self.clear(layer, Slot::PartialSums, 4 * row, 4 * heads.len()).await;
        }
    }

    /// The worker's share of the attention outputs from those of all active splits.
    async fn combine(&mut self, instruction: &Instruction) {
        let (machine, model) = (self.seat.machine, self.seat.machine.model);
        let (shape, layer) = (&model.plan.shape, usize::from(instruction.layer));
        let (first, count) = (instruction.first as usize, instruction.count as usize);
        let (active, before) = self.active_splits();
        if active > 1 {
            let outputs = machine.slot(self.step, layer, Slot::PartialOutputs);
            let sums = machine.slot(self.step, layer, Slot::PartialSums);
            // Heads are whole eights of outputs.
            for at in (first..first + count).step_by(8) {
                let head = at / shape.head_dim;
                let mut parts = Vec::new();
                for split in 0..active {
                    let row = split * shape.n_heads + head;
                    for word in 2 * row..2 * row + 2 {
                        self.seat.wait(Wait::Word(sums + word)).await;
                    }
                    let state = |word: usize| f32::from_bits(machine.word(sums + 2 * row + word));
                    let elements = self.seat.read(outputs, split * shape.query_rows() + at, 8).await;
                    parts.push((state(0), state(1), elements));
                }
                let maximum = parts.iter().map(|part| part.0).fold(f32::NEG_INFINITY, f32::max);
                let (mut sum, mut out) = (0.0, [0.0; 8]);
                for (own, part_sum, elements) in &parts {
                    let weight = (own - maximum).exp2() * part_sum;
                    sum += weight;
                    for (out, &bits) in out.iter_mut().zip(elements) {
                        *out += weight * model.element(bits);
                    }
                }
                let elements = out.map(|x| model.round(x / sum));
                self.publish(layer, Slot::Attended, at, &elements).await;
            }
            self.seat.turn().await;
        }
        if before > 1 {
            self.clear(layer, Slot::Attended, first, count).await;
        }
    }

    /// The next token, as every worker finds it, and whether the run ends with it.
    async fn choose(&mut self) -> (u32, bool) {
        let (seat, machine) = (self.seat, self.seat.machine);
        let own = machine.candidate(self.step, seat.worker);
        seat.publish_wide(own, self.best).await;
        let stop = machine.stop_word(self.step);
        if seat.worker == 0 {
            let tokens = machine.tokens.borrow().clone();
            let asked = (machine.task.stop.borrow_mut())(&tokens);
            seat.publish(stop, u32::from(asked)).await;
        }
        if let Some(before) = self.step.checked_sub(1) {
            self.wait_to_clear().await;
            seat.clear_wide(machine.candidate(before, seat.worker)).await;
            if seat.worker == 0 {
                seat.clear(machine.stop_word(before)).await;
            }
        }
        seat.turn().await;
        let mut best = 0;
        for worker in 0..machine.workers.len() {
            let word = machine.candidate(self.step, worker);
            seat.wait(Wait::Word(word + 1)).await;
            best = best.max(u64::from(machine.word(word + 1)) << 32 | u64::from(machine.word(word)));
        }
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
