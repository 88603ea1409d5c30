//! Attention of one unit over one split: each consumer attends to its pages, which come through the ring; the newest row
//! comes from the step itself. The finalizer merges what the consumers found.

use super::consumer::Consumer;
use super::element::split;
use super::machine::{Key, Seat, Wait};
use super::producer::{page_bytes, page_stages};
use super::worker::Chunk;
use crate::gpu::{CONSUMERS, Instruction, PAGE, Slot};
use crate::math::{rms_norm_in_place, rotate};

/// A query head and what it has seen so far.
struct Head {
    high: Vec<f32>,
    low: Vec<f32>,
    maximum: f32,
    sum: f32,
    out: Vec<f32>,
}

/// A page's `(32, head_dim)` keys and values.
struct Page {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The key and the value of the step.
struct Newest {
    key: Vec<u16>,
    value: Vec<u16>,
}

pub(super) async fn consume(consumer: &mut Consumer<'_>, step: usize, instruction: &Instruction) {
    let seat = consumer.seat;
    let (model, position) = (seat.machine.model, seat.machine.task.position + step);
    let (attention, layer) = (&model.plan.attention, usize::from(instruction.layer));
    let split = instruction.count as usize;
    if split >= attention.active_splits(position) {
        return;
    }
    let newest_page = position / PAGE;
    let is_mine = |page: usize| attention.warp_of_page(page) == seat.warp;
    let has_newest = attention.split_of_page(newest_page) == split && is_mine(newest_page);
    let stages = page_stages(&seat, instruction, position);
    let mut heads = Vec::new();
    if has_newest || stages.iter().flatten().any(|&page| is_mine(page)) {
        heads = queries(&seat, step, instruction).await;
    }
    let newest = if has_newest { Some(newest(&seat, step, instruction).await) } else { None };

    let first = model.window_start(layer, position);
    let head_dim = model.plan.shape.head_dim;
    let mut attend = |page: usize, bytes: &[u8]| {
        let mut content = Page::new(bytes, |bits| model.element(bits));
        if let Some(newest) = newest.as_ref().filter(|_| page == newest_page) {
            let at = position % PAGE * head_dim..(position % PAGE + 1) * head_dim;
            let row = |row: &[u16]| row.iter().map(|&bits| model.element(bits)).collect::<Vec<_>>();
            content.keys[at.clone()].copy_from_slice(&row(&newest.key));
            content.values[at].copy_from_slice(&row(&newest.value));
        }
        let rows = first.saturating_sub(page * PAGE)..(position + 1 - page * PAGE).min(PAGE);
        // To base 2.
        let scale = model.config.layers[layer].attention_scale * std::f32::consts::LOG2_E;
        for head in &mut heads {
            attend_page(head, &content, rows.clone(), scale, |x| super::element::split(model.plan.target.element, x));
        }
    };
    for pages in stages {
        seat.wait(Wait::Landed(consumer.stage)).await;
        seat.own().with_stage(consumer.stage, |stage| {
            for (page, bytes) in pages.iter().zip(stage.chunks_exact(page_bytes(head_dim))) {
                if is_mine(*page) {
                    attend(*page, bytes);
                }
            }
        });
        consumer.release().await;
    }
    if has_newest && position.is_multiple_of(PAGE) {
        attend(newest_page, &vec![0; page_bytes(head_dim)]);
    }
    let values = heads.into_iter().flat_map(|head| [head.maximum, head.sum].into_iter().chain(head.out)).collect();
    consumer.deliver(Chunk { values, squares: 0.0 }).await;
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
        let query = prepare(seat, layer, step, &bits, norm);
        let (high, low) = query.into_iter().map(|x| split(model.plan.target.element, x)).unzip();
        heads.push(Head { high, low, maximum: f32::NEG_INFINITY, sum: 0.0, out: vec![0.0; head_dim] });
    }
    heads
}

/// The step's own key and value; the first unit of their head appends them.
async fn newest(seat: &Seat<'_>, step: usize, instruction: &Instruction) -> Newest {
    let (machine, model) = (seat.machine, seat.machine.model);
    let (layer, shape) = (usize::from(instruction.layer), &model.plan.shape);
    let unit = instruction.first as usize;
    let kv_head = model.plan.attention.kv_head(unit);
    let slot = machine.slot(step, layer, Slot::QueryKeyValue);
    let first = shape.query_rows() + kv_head * shape.head_dim;
    let key = seat.read(slot, first, shape.head_dim).await;
    let value = seat.read(slot, first + shape.kv_rows(), shape.head_dim).await;
    let key = prepare(seat, layer, step, &key, model.vectors.layers[layer].key_norm.as_deref());
    let key: Vec<_> = key.into_iter().map(|x| model.round(x)).collect();
    if model.plan.attention.heads(unit).start == kv_head * shape.group() {
        machine.cache.borrow_mut().append(layer, kv_head, machine.task.position + step, &key, &value);
        machine.notify(Key::Cache);
        seat.turn().await;
    }
    Newest { key, value }
}

/// Norm and rotary embedding of a head, where the layer has them.
fn prepare(seat: &Seat<'_>, layer: usize, step: usize, bits: &[u16], norm: Option<&[f32]>) -> Vec<f32> {
    let model = seat.machine.model;
    let mut head: Vec<f32> = bits.iter().map(|&bits| model.element(bits)).collect();
    if let Some(norm) = norm {
        rms_norm_in_place(&mut head, norm, model.config.norm_eps);
    }
    if let Some(rope) = model.config.layers[layer].rope {
        rotate(&mut head, &model.config.ropes[rope], seat.machine.task.position + step);
    }
    head
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

/// Takes the rows of a page into a running softmax.
fn attend_page(
    head: &mut Head,
    page: &Page,
    rows: std::ops::Range<usize>,
    scale: f32,
    split: impl Fn(f32) -> (f32, f32),
) {
    let head_dim = head.high.len();
    let row = |all: &[f32], row: usize| all[row * head_dim..(row + 1) * head_dim].to_vec();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    let scores = rows.clone().map(|r| {
        let key = row(&page.keys, r);
        (dot(&head.high, &key) + dot(&head.low, &key)) * scale
    });
    let scores: Vec<f32> = scores.collect();
    let maximum = scores.iter().copied().fold(head.maximum, f32::max);
    let correction = (head.maximum - maximum).exp2();
    head.maximum = maximum;
    head.sum *= correction;
    let weights: Vec<f32> = scores.iter().map(|score| (score - maximum).exp2()).collect();
    head.sum += weights.iter().sum::<f32>();
    let mut sums = vec![[0.0f64; 2]; head_dim];
    for (r, &weight) in rows.zip(&weights) {
        let (high, low) = split(weight);
        for (sums, value) in sums.iter_mut().zip(row(&page.values, r)) {
            sums[0] += f64::from(high) * f64::from(value);
            sums[1] += f64::from(low) * f64::from(value);
        }
    }
    for (out, sums) in head.out.iter_mut().zip(sums) {
        *out = *out * correction + (sums[0] as f32 + sums[1] as f32);
    }
}

/// What all consumers together have found for one head: its maximum, its sum and its output, divided by the sum.
pub(super) fn merge(chunks: &[Chunk; CONSUMERS], head: usize, head_dim: usize) -> (f32, f32, Vec<f32>) {
    let parts = chunks.iter().filter(|chunk| !chunk.values.is_empty());
    let parts = parts.map(|chunk| &chunk.values[head * (head_dim + 2)..(head + 1) * (head_dim + 2)]);
    let maximum = parts.clone().map(|part| part[0]).fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut out) = (0.0, vec![0.0; head_dim]);
    for part in parts.filter(|part| part[0] > f32::NEG_INFINITY) {
        let factor = (part[0] - maximum).exp2();
        sum += factor * part[1];
        for (out, value) in out.iter_mut().zip(&part[2..]) {
            *out += factor * value;
        }
    }
    // A window may leave a split without positions.
    if sum > 0.0 {
        for value in &mut out {
            *value /= sum;
        }
    }
    (maximum, sum, out)
}
