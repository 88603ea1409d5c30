//! Who published what an instruction reads, and who was the last to do so.

use std::collections::HashMap;
use std::ops::Range;

use plancher_program::gpu::{Attention, CONSUMERS, Instruction, Operation, Plan, Shape, padded};

use super::StepTrace;

/// An instruction's place: which worker, and its index in that worker's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Worker.
    pub worker: usize,
    /// Index in its list.
    pub index: usize,
}

/// Something that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// When, in the trace's nanoseconds.
    pub time: u64,
    /// By which instruction.
    pub place: Place,
}

/// A vector that workers publish parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    /// By which operation.
    pub operation: Operation,
    /// Of which layer.
    pub layer: u16,
}

impl std::fmt::Display for Vector {
    /// The slot in which it is exchanged, as the design names it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layer = self.layer;
        match self.operation {
            Operation::QueryKeyValue => write!(f, "query_key_value {layer}"),
            Operation::Attend => write!(f, "attention {layer}"),
            Operation::Combine => write!(f, "attended {layer}"),
            Operation::Output => write!(f, "x_feed_forward {layer}"),
            Operation::GateUp => write!(f, "gated {layer}"),
            Operation::Down => write!(f, "x_attention {}", layer + 1),
            Operation::Head => write!(f, "candidates"),
            Operation::Embed | Operation::End => write!(f, "nothing"),
        }
    }
}

/// Everything that was published in a step.
#[derive(Debug)]
pub struct Publications {
    shape: Shape,
    attention: Attention,
    active_splits: usize,
    by_vector: HashMap<Vector, Vec<(Range<usize>, Publication)>>,
}

impl Publications {
    /// Collects them.
    #[must_use]
    pub fn of(trace: &StepTrace, plan: &Plan) -> Self {
        let active_splits = plan.attention.active_splits(trace.position);
        let by_vector = HashMap::new();
        let mut all = Self { shape: plan.shape, attention: plan.attention, active_splits, by_vector };
        for (worker, own) in trace.workers.iter().enumerate() {
            for (index, traced) in own.instructions.iter().enumerate() {
                let Instruction { operation, layer, .. } = traced.instruction;
                let (Some(time), Some(elements)) = (traced.times.done(), all.published(&traced.instruction)) else {
                    continue;
                };
                let publication = Publication { time, place: Place { worker, index } };
                all.by_vector.entry(Vector { operation, layer }).or_default().push((elements, publication));
            }
        }
        all
    }

    /// The elements that an instruction publishes of its vector; `None` where it publishes nothing in this step.
    fn published(&self, instruction: &Instruction) -> Option<Range<usize>> {
        let (first, count) = (instruction.first as usize, instruction.count as usize);
        match instruction.operation {
            Operation::End | Operation::Embed => None,
            Operation::Attend => (count < self.active_splits).then(|| self.outputs(first)),
            Operation::Combine => (self.active_splits > 1).then_some(first..first + count),
            _ => Some(first..first + count),
        }
    }

    /// Attention's outputs of a unit.
    fn outputs(&self, kv_unit: usize) -> Range<usize> {
        let heads = self.attention.heads(kv_unit);
        heads.start * self.shape.head_dim..heads.end * self.shape.head_dim
    }

    /// What an instruction reads of others: the vector, and which of its elements the worker's first consumer warp
    /// reads, or all of its warps. Nothing for what reads none, or has nothing to do in this step.
    fn inputs(&self, instruction: &Instruction, first_warp: bool) -> Option<(Vector, Vec<Range<usize>>)> {
        let shape = &self.shape;
        let columns = |length: usize| if first_warp { padded(length) / CONSUMERS } else { length };
        let layer = instruction.layer;
        let before = layer.checked_sub(1);
        let of = |operation, layer, length| {
            let read = 0..columns(length);
            Some((Vector { operation, layer }, vec![read]))
        };
        let combines = self.active_splits > 1;
        match instruction.operation {
            Operation::QueryKeyValue | Operation::Head => of(Operation::Down, before?, shape.hidden),
            Operation::Attend => {
                self.published(instruction)?;
                let unit = instruction.first as usize;
                let key = shape.query_rows() + self.attention.kv_head(unit) * shape.head_dim;
                let value = key + shape.kv_rows();
                let rows = [self.outputs(unit), key..key + shape.head_dim, value..value + shape.head_dim];
                Some((Vector { operation: Operation::QueryKeyValue, layer }, rows.into()))
            }
            Operation::Combine => {
                let outputs = self.published(instruction)?;
                Some((Vector { operation: Operation::Attend, layer }, vec![outputs]))
            }
            // With one split, attention publishes the whole by itself.
            Operation::Output if combines => of(Operation::Combine, layer, shape.query_rows()),
            Operation::Output => of(Operation::Attend, layer, shape.query_rows()),
            Operation::GateUp => of(Operation::Output, layer, shape.hidden),
            Operation::Down => of(Operation::GateUp, layer, shape.feed_forward),
            Operation::End | Operation::Embed => None,
        }
    }

    /// Whether an instruction publishes something in this step: attention of a split without positions does not, nor does
    /// combining where there is one split.
    #[must_use]
    pub fn publishes(&self, instruction: &Instruction) -> bool {
        self.published(instruction).is_some()
    }

    /// The vector that an instruction reads of others, if it reads one in this step.
    #[must_use]
    pub fn vector(&self, instruction: &Instruction) -> Option<Vector> {
        self.inputs(instruction, false).map(|(vector, _)| vector)
    }

    /// The last publication of what an instruction reads.
    #[must_use]
    pub fn last_input(&self, instruction: &Instruction) -> Option<Publication> {
        let (vector, elements) = self.inputs(instruction, false)?;
        self.last_of(vector, &elements)
    }

    /// The same of the part that the first consumer warp reads, whose times a trace has.
    #[must_use]
    pub fn last_input_of_first_warp(&self, instruction: &Instruction) -> Option<Publication> {
        let (vector, elements) = self.inputs(instruction, true)?;
        self.last_of(vector, &elements)
    }

    fn last_of(&self, vector: Vector, elements: &[Range<usize>]) -> Option<Publication> {
        let overlaps =
            |part: &Range<usize>| elements.iter().any(|range| part.start < range.end && range.start < part.end);
        let parts = self.by_vector.get(&vector)?.iter();
        parts.filter(|(part, _)| overlaps(part)).map(|&(_, found)| found).max_by_key(|found| found.time)
    }

    /// The last candidate for the next token.
    #[must_use]
    pub fn last_candidate(&self) -> Option<Publication> {
        self.all(Vector { operation: Operation::Head, layer: self.shape.layers as u16 }).max_by_key(|found| found.time)
    }

    /// All publications of a vector.
    pub fn all(&self, vector: Vector) -> impl Iterator<Item = Publication> {
        self.by_vector.get(&vector).into_iter().flatten().map(|&(_, publication)| publication)
    }

    /// When the middle one of a vector's parts was published.
    #[must_use]
    pub fn middle(&self, vector: Vector) -> Option<u64> {
        let mut times: Vec<u64> = self.all(vector).map(|publication| publication.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }
}
