//! Which words every instruction writes and reads in a step, and which its worker clears: what the kernel does with a
//! plan, told as accesses to the exchange.

use std::ops::Range;

use crate::gpu::{Attention, Operation, PAGE, Plan, Slot, Unit};

/// Something that workers exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// A slot of a layer.
    Slot(usize, Slot),
    /// All workers' candidates for the next token.
    Candidates,
    /// Whether to stop.
    Stop,
}

const SLOTS: [Slot; 7] = [
    Slot::Attention,
    Slot::QueryKeyValue,
    Slot::Attended,
    Slot::FeedForward,
    Slot::Gated,
    Slot::PartialOutputs,
    Slot::PartialSums,
];

impl Edge {
    /// Bytes to which its loads are aligned.
    pub(super) fn alignment(self) -> usize {
        match self {
            Self::Slot(_, Slot::PartialSums) | Self::Candidates => 8,
            Self::Slot(..) => 16,
            Self::Stop => 4,
        }
    }

    /// Its number among a plan's edges.
    fn index(self, plan: &Plan) -> usize {
        match self {
            Self::Slot(layer, slot) => layer * SLOTS.len() + slot as usize,
            Self::Candidates => plan.shape.layers * SLOTS.len() + 1,
            Self::Stop => plan.shape.layers * SLOTS.len() + 2,
        }
    }
}

impl std::fmt::Display for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (layer, slot) = match self {
            Self::Candidates => return f.write_str("candidates"),
            Self::Stop => return f.write_str("stop"),
            Self::Slot(layer, slot) => (layer, slot),
        };
        let name = match slot {
            Slot::Attention => "x_attention",
            Slot::QueryKeyValue => "query_key_value",
            Slot::Attended => "attended",
            Slot::FeedForward => "x_feed_forward",
            Slot::Gated => "gated",
            Slot::PartialOutputs => "partial outputs",
            Slot::PartialSums => "partial sums",
        };
        write!(f, "{name} of layer {layer}")
    }
}

/// All of a plan's edges, by number.
pub(super) fn edges(plan: &Plan) -> impl Iterator<Item = Edge> + use<> {
    let layers = plan.shape.layers;
    let slots = (0..layers).flat_map(|layer| SLOTS.map(|slot| Edge::Slot(layer, slot)));
    slots.chain([Edge::Slot(layers, Slot::Attention), Edge::Candidates, Edge::Stop])
}

/// The bytes of an edge, from the start of a copy.
pub(super) fn range(plan: &Plan, edge: Edge) -> Range<usize> {
    let exchange = &plan.exchange;
    match edge {
        Edge::Slot(layer, slot) => exchange.slot(layer, slot),
        Edge::Candidates => exchange.candidates..exchange.candidates + 8 * plan.workers.len(),
        Edge::Stop => exchange.stop..exchange.stop + 4,
    }
}

/// An instruction's access to consecutive words of an edge, counted from the edge's first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) words: Range<u32>,
    pub(super) worker: u32,
    pub(super) instruction: u32,
    /// Whether the worker has waited for the arrivals of the step before.
    pub(super) late: bool,
}

/// All accesses to an edge in one step.
#[derive(Clone, Debug, Default)]
pub(super) struct EdgeAccesses {
    pub(super) writes: Vec<Access>,
    pub(super) reads: Vec<Access>,
    /// Of the copy that the step before has written.
    pub(super) clears: Vec<Access>,
}

/// One step: accesses by number of the edge.
pub(super) type Step = Vec<EdgeAccesses>;

/// `count` steps from position `start` on, the first ones of a launch.
pub(super) fn unroll(plan: &Plan, start: usize, count: usize) -> Vec<Step> {
    (0..count).map(|step| of_step(plan, start + step, step > 0)).collect()
}

/// What is collected of one instruction.
struct Recorder<'a> {
    plan: &'a Plan,
    step: &'a mut Step,
    worker: usize,
    instruction: usize,
}

/// Elements to words; rows beyond what a slot holds are nobody's.
fn words(elements: Range<usize>) -> Range<u32> {
    (elements.start / 2) as u32..elements.end.div_ceil(2) as u32
}

impl Recorder<'_> {
    fn access(&self, words: Range<u32>, late: bool) -> Access {
        Access { words, worker: self.worker as u32, instruction: self.instruction as u32, late }
    }
    fn edge(&mut self, edge: Edge) -> &mut EdgeAccesses {
        &mut self.step[edge.index(self.plan)]
    }
    fn write(&mut self, layer: usize, slot: Slot, words: Range<u32>) {
        let access = self.access(words, false);
        self.edge(Edge::Slot(layer, slot)).writes.push(access);
    }
    fn read(&mut self, layer: usize, slot: Slot, words: Range<u32>) {
        let access = self.access(words, false);
        self.edge(Edge::Slot(layer, slot)).reads.push(access);
    }
    fn clear(&mut self, edge: Edge, words: Range<u32>) {
        let access = self.access(words, true);
        self.edge(edge).clears.push(access);
    }
    fn read_all(&mut self, layer: usize, slot: Slot) {
        let bytes = self.plan.exchange.slot(layer, slot);
        self.read(layer, slot, 0..(bytes.len() / 4) as u32);
    }
}

/// The words of a unit's outputs and of its sums in the slots of partial results.
fn partials(plan: &Plan, unit: Unit) -> (Range<u32>, Range<u32>) {
    let shape = &plan.shape;
    let (heads, base) = (plan.attention.heads(unit.kv_unit), unit.split * shape.n_heads);
    let outputs = (base + heads.start) * shape.head_dim..(base + heads.end) * shape.head_dim;
    (words(outputs), 2 * (base + heads.start) as u32..2 * (base + heads.end) as u32)
}

fn of_step(plan: &Plan, position: usize, clears: bool) -> Step {
    let mut step = vec![EdgeAccesses::default(); edges(plan).count()];
    for (worker, list) in plan.workers.iter().enumerate() {
        let mut recorder = Recorder { plan, step: &mut step, worker, instruction: 0 };
        let mut cleared = !clears;
        for (index, instruction) in list.instructions.iter().enumerate() {
            recorder.instruction = index;
            let layer = usize::from(instruction.layer);
            let rows = instruction.first as usize..instruction.first as usize + instruction.count as usize;
            if matches!(instruction.operation, Operation::Head | Operation::End) && !cleared {
                cleared = true;
                clear(&mut recorder, position - 1);
            }
            match instruction.operation {
                Operation::Embed => {}
                Operation::QueryKeyValue => {
                    if layer > 0 {
                        recorder.read_all(layer, Slot::Attention);
                    }
                    recorder.write(layer, Slot::QueryKeyValue, words(rows));
                }
                Operation::Attend => {
                    let unit = Unit { kv_unit: instruction.first as usize, split: instruction.count as usize };
                    attend(&mut recorder, layer, unit, position);
                }
                Operation::Combine => combine(&mut recorder, layer, rows, position),
                Operation::Output => {
                    recorder.read_all(layer, Slot::Attended);
                    recorder.write(layer, Slot::FeedForward, words(rows));
                }
                Operation::GateUp => {
                    recorder.read_all(layer, Slot::FeedForward);
                    recorder.write(layer, Slot::Gated, words(rows));
                }
                Operation::Down => {
                    recorder.read_all(layer, Slot::Gated);
                    recorder.write(layer + 1, Slot::Attention, words(rows));
                }
                Operation::Head => recorder.read_all(layer, Slot::Attention),
                Operation::End => end(&mut recorder),
            }
        }
    }
    step
}

/// The candidate and the word that says whether to stop.
fn end(recorder: &mut Recorder<'_>) {
    let worker = recorder.worker as u32;
    let candidate = recorder.access(2 * worker..2 * worker + 2, true);
    let candidates = recorder.access(0..2 * recorder.plan.workers.len() as u32, true);
    let edge = recorder.edge(Edge::Candidates);
    edge.writes.push(candidate);
    edge.reads.push(candidates);
    let (early, late) = (recorder.access(0..1, false), recorder.access(0..1, true));
    let edge = recorder.edge(Edge::Stop);
    if worker == 0 {
        edge.writes.push(early);
    }
    edge.reads.push(late);
}

/// An active split reads its queries; that of the new position also reads its key and value.
fn attend(recorder: &mut Recorder<'_>, layer: usize, unit: Unit, position: usize) {
    let plan = recorder.plan;
    let (attention, shape): (&Attention, _) = (&plan.attention, &plan.shape);
    let active = attention.active_splits(position);
    if unit.split >= active {
        return;
    }
    let (heads, kv_head) = (attention.heads(unit.kv_unit), attention.kv_head(unit.kv_unit));
    let queries = heads.start * shape.head_dim..heads.end * shape.head_dim;
    recorder.read(layer, Slot::QueryKeyValue, words(queries.clone()));
    if attention.split_of_page(position / PAGE) == unit.split {
        for first in [shape.query_rows(), shape.query_rows() + shape.kv_rows()] {
            let first = first + kv_head * shape.head_dim;
            recorder.read(layer, Slot::QueryKeyValue, words(first..first + shape.head_dim));
        }
    }
    if active == 1 {
        recorder.write(layer, Slot::Attended, words(queries));
    } else {
        let (outputs, sums) = partials(plan, unit);
        recorder.write(layer, Slot::PartialOutputs, outputs);
        recorder.write(layer, Slot::PartialSums, sums);
    }
}

/// Reads what all active splits say of its outputs, where there are several.
fn combine(recorder: &mut Recorder<'_>, layer: usize, outputs: Range<usize>, position: usize) {
    let (attention, shape) = (&recorder.plan.attention, &recorder.plan.shape);
    let (active, query_rows, head_dim, n_heads) =
        (attention.active_splits(position), shape.query_rows(), shape.head_dim, shape.n_heads);
    if active == 1 {
        return;
    }
    let heads = outputs.start / head_dim..outputs.end.div_ceil(head_dim);
    for split in 0..active {
        let base = split * query_rows;
        recorder.read(layer, Slot::PartialOutputs, words(base + outputs.start..base + outputs.end));
        let base = split * n_heads;
        recorder.read(layer, Slot::PartialSums, 2 * (base + heads.start) as u32..2 * (base + heads.end) as u32);
    }
    recorder.write(layer, Slot::Attended, words(outputs));
}

/// What a worker clears of the step at `position`: by its rows in layer 0, as the kernel does, and its units.
fn clear(recorder: &mut Recorder<'_>, position: usize) {
    let plan = recorder.plan;
    let list = &plan.workers[recorder.worker].instructions;
    let own = |operation| {
        let found = list.iter().rfind(|i| i.layer == 0 && i.operation == operation);
        found.map_or(0..0, |i| words(i.first as usize..i.first as usize + i.count as usize))
    };
    let slots = [
        (0, Slot::QueryKeyValue, own(Operation::QueryKeyValue)),
        (0, Slot::Attended, own(Operation::Combine)),
        (0, Slot::FeedForward, own(Operation::Output)),
        (0, Slot::Gated, own(Operation::GateUp)),
        (1, Slot::Attention, own(Operation::Down)),
    ];
    for layer in 0..plan.shape.layers {
        for (further, slot, words) in &slots {
            if !words.is_empty() {
                recorder.clear(Edge::Slot(layer + further, *slot), words.clone());
            }
        }
    }
    let active = plan.attention.active_splits(position);
    for instruction in list.iter().filter(|i| active > 1 && i.operation == Operation::Attend) {
        let unit = Unit { kv_unit: instruction.first as usize, split: instruction.count as usize };
        if unit.split < active {
            let (outputs, sums) = partials(plan, unit);
            let layer = usize::from(instruction.layer);
            recorder.clear(Edge::Slot(layer, Slot::PartialOutputs), outputs);
            recorder.clear(Edge::Slot(layer, Slot::PartialSums), sums);
        }
    }
    let worker = recorder.worker as u32;
    recorder.clear(Edge::Candidates, 2 * worker..2 * worker + 2);
    if worker == 0 {
        recorder.clear(Edge::Stop, 0..1);
    }
}
