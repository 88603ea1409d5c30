//! Attention of one unit over one split: each consumer attends to its pages, which come through the ring; the newest row
//! comes from the step itself. The finalizer merges what the consumers found.

use std::ops::Range;

use super::consumer::Consumer;
use super::element::split as split_element;
use super::machine::{Key, Seat, Wait};
use super::producer::{page_bytes, page_stages};
use super::worker::Chunk;
use crate::gpu::{CONSUMERS, Instruction, PAGE, Slot};
use crate::math::{rms_norm_in_place, rotate};

/// A query head and what it has seen so far.
struct Head {
    query: Vec<f32>,
    maximum: f32,
    sum: f32,
    /// With the high and with the low parts of the weights.
    out: Vec<[f32; 2]>,
}

/// `(32, head_dim)` each.
struct Page {
    keys: Vec<f32>,
    values: Vec<f32>,
}

pub(super) async fn consume(consumer: &mut Consumer<'_>, step: usize, instruction: &Instruction) {
    let seat = consumer.seat;
    let (model, position) = (seat.machine.model, seat.machine.task.position + step);
    let (attention, layer) = (&model.plan.attention, usize::from(instruction.layer));
    let split = instruction.count as usize;
    if split >= attention.active_splits(position) {
        return;
    }
    // The newest position goes to another consumer than the rest of its page.
    let newest_page = position / PAGE;
    let has_newest = attention.split_of_page(newest_page) == split && (newest_page + 4) % CONSUMERS == seat.warp;
    let is_mine = |page: usize| attention.warp_of_page(page) == seat.warp;
    let stages = page_stages(&seat, instruction, position);
    let mut heads = Vec::new();
    if has_newest || stages.iter().flatten().any(|&page| is_mine(page)) {
        heads = queries(&seat, step, instruction).await;
    }
    // To base 2.
    let scale = model.config.layers[layer].attention_scale * std::f32::consts::LOG2_E;
    if has_newest {
        let (key, value) = newest(&seat, step, instruction).await;
        for head in &mut heads {
            head.maximum = dot(&head.query, &key) * scale;
            head.sum = 1.0;
            head.out = value.iter().map(|&value| [value, 0.0]).collect();
        }
    }
    let first = model.window_start(layer, position);
    for pages in stages {
        seat.wait(Wait::Landed(consumer.stage)).await;
        seat.own().with_stage(consumer.stage, |stage| {
            let contents = stage.chunks_exact(page_bytes(model.plan.shape.head_dim));
            for (&page, bytes) in pages.iter().zip(contents).filter(|(page, _)| is_mine(**page)) {
                let content = Page::new(bytes, |bits| model.element(bits));
                let rows = first.saturating_sub(page * PAGE)..(position - page * PAGE).min(PAGE);
                for head in &mut heads {
                    head.attend(&content, rows.clone(), scale, |x| split_element(model.plan.target.element, x));
                }
            }
        });
        consumer.release().await;
    }
    let state = |head: Head| {
        let out = head.out.into_iter().map(|[high, low]| high + low);
        [head.maximum, head.sum].into_iter().chain(out).collect::<Vec<_>>()
    };
    consumer.deliver(Chunk { values: heads.into_iter().flat_map(state).collect(), squares: 0.0 }).await;
}

/// The prepared query heads of a unit.
async fn queries(seat: &Seat<'_>, step: usize, instruction: &Instruction) -> Vec<Head> {
    let model = seat.machine.model;
    let (layer, head_dim) = (usize::from(instruction.layer), model.plan.shape.head_dim);
    let slot = seat.machine.slot(step, layer, Slot::QueryKeyValue);
    let mut heads = Vec::new();
    for head in model.plan.attention.heads(instruction.first as usize) {
        let bits = seat.read(slot, head * head_dim, head_dim).await;
        let norm = model.vectors.layers[layer].query_norm.as_deref();
        let query = prepare(seat, layer, step, &bits, norm).into_iter().map(|bits| model.element(bits)).collect();
        heads.push(Head { query, maximum: f32::NEG_INFINITY, sum: 0.0, out: vec![[0.0; 2]; head_dim] });
    }
    heads
}

/// The step's own key and value; the first unit of their head appends them.
async fn newest(seat: &Seat<'_>, step: usize, instruction: &Instruction) -> (Vec<f32>, Vec<f32>) {
    let (machine, model) = (seat.machine, seat.machine.model);
    let (layer, shape) = (usize::from(instruction.layer), &model.plan.shape);
    let unit = instruction.first as usize;
    let kv_head = model.plan.attention.kv_head(unit);
    let slot = machine.slot(step, layer, Slot::QueryKeyValue);
    let first = shape.query_rows() + kv_head * shape.head_dim;
    let key = seat.read(slot, first, shape.head_dim).await;
    let value = seat.read(slot, first + shape.kv_rows(), shape.head_dim).await;
    let key = prepare(seat, layer, step, &key, model.vectors.layers[layer].key_norm.as_deref());
    if model.plan.attention.heads(unit).start == kv_head * shape.group() {
        machine.cache.borrow_mut().append(layer, kv_head, machine.task.position + step, &key, &value);
        machine.notify(Key::Cache);
        seat.turn().await;
    }
    let values = |row: Vec<u16>| row.into_iter().map(|bits| model.element(bits)).collect();
    (values(key), values(value))
}

/// Norm and rotary embedding of a head, where the layer has them: elements again.
fn prepare(seat: &Seat<'_>, layer: usize, step: usize, bits: &[u16], norm: Option<&[f32]>) -> Vec<u16> {
    let model = seat.machine.model;
    let mut head: Vec<f32> = bits.iter().map(|&bits| model.element(bits)).collect();
    if let Some(norm) = norm {
        rms_norm_in_place(&mut head, norm, model.config.norm_eps);
    }
    if let Some(rope) = model.config.layers[layer].rope {
        rotate(&mut head, &model.config.ropes[rope], seat.machine.task.position + step);
    }
    head.into_iter().map(|x| model.round(x)).collect()
}

impl Page {
    /// Of what lies in the ring.
    fn new(bytes: &[u8], element: impl Fn(u16) -> f32) -> Self {
        let mut keys: Vec<f32> =
            bytes.as_chunks::<2>().0.iter().map(|&bits| element(u16::from_le_bytes(bits))).collect();
        let values = keys.split_off(keys.len() / 2);
        Self { keys, values }
    }
}

/// As the tensor cores add: exact products, one rounding at the end.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

impl Head {
    /// Takes the rows of a page into the running softmax. `split`: into a high and a low element.
    fn attend(&mut self, page: &Page, rows: Range<usize>, scale: f32, split: impl Fn(f32) -> (f32, f32)) {
        if rows.is_empty() {
            return;
        }
        let head_dim = self.query.len();
        let row_of = |row: usize| row * head_dim..(row + 1) * head_dim;
        let scores = rows.clone().map(|row| dot(&self.query, &page.keys[row_of(row)]) * scale);
        let scores: Vec<f32> = scores.collect();
        let maximum = scores.iter().copied().fold(self.maximum, f32::max);
        let correction = (self.maximum - maximum).exp2();
        let weights: Vec<f32> = scores.iter().map(|score| (score - maximum).exp2()).collect();
        self.maximum = maximum;
        self.sum = self.sum * correction + weights.iter().sum::<f32>();
        let mut sums: Vec<_> = self.out.iter().map(|out| out.map(|x| f64::from(x * correction))).collect();
        for (row, &weight) in rows.zip(&weights) {
            let (high, low) = split(weight);
            for (sums, value) in sums.iter_mut().zip(&page.values[row_of(row)]) {
                sums[0] += f64::from(high) * f64::from(*value);
                sums[1] += f64::from(low) * f64::from(*value);
            }
        }
        self.out = sums.into_iter().map(|sums| sums.map(|sum| sum as f32)).collect();
    }
}

/// What all consumers together have found for one head: its maximum, its sum and its output, divided by the sum.
pub(super) fn merge(chunks: &[Chunk; CONSUMERS], head: usize, head_dim: usize) -> (f32, f32, Vec<f32>) {
    let (mut maximum, mut sum, mut out) = (f32::NEG_INFINITY, 0.0, vec![0.0; head_dim]);
    let parts = chunks.iter().filter(|chunk| !chunk.values.is_empty());
    for part in parts.map(|chunk| &chunk.values[head * (head_dim + 2)..(head + 1) * (head_dim + 2)]) {
        if part[0] == f32::NEG_INFINITY {
            continue;
        }
        let larger = part[0].max(maximum);
        let (before, weight) = ((maximum - larger).exp2(), (part[0] - larger).exp2());
        maximum = larger;
        sum = sum * before + part[1] * weight;
        for (out, value) in out.iter_mut().zip(&part[2..]) {
            *out = *out * before + value * weight;
        }
    }
    // A window may leave a split without positions.
    let factor = if maximum == f32::NEG_INFINITY { 0.0 } else { 1.0 / sum };
    for value in &mut out {
        *value *= factor;
    }
    (maximum, sum, out)
}
