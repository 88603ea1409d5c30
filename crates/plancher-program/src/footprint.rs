//! What an instruction must touch, by what it computes: the one place that says so. The scheduler declares it, and
//! the checker demands that a program declares no less.

use std::collections::HashMap;
use std::ops::Range;

use plancher_model::{LayerTensor, TensorKey};

use crate::{Access, AccessMode, Buffer, BufferId, BufferRole, Operation, Part, Phase, Segment, Target};

/// Buffers by role and owner.
pub(crate) struct BufferIndex<'a> {
    buffers: &'a [Buffer],
    ids: HashMap<(BufferRole, Option<usize>), BufferId>,
}

impl<'a> BufferIndex<'a> {
    pub(crate) fn new(buffers: &'a [Buffer]) -> Self {
        let ids = buffers.iter().enumerate().map(|(i, buffer)| ((buffer.role, buffer.owner), BufferId(i))).collect();
        Self { buffers, ids }
    }

    fn find(&self, role: BufferRole, worker: usize) -> Option<BufferId> {
        self.ids.get(&(role, Some(worker))).or_else(|| self.ids.get(&(role, None))).copied()
    }
}

/// A role for which a program has no buffer.
pub(crate) struct NoBuffer(pub(crate) BufferRole);

struct Footprint<'a> {
    index: &'a BufferIndex<'a>,
    worker: usize,
    accesses: Vec<Access>,
}

impl Footprint<'_> {
    fn touch(
        &mut self,
        role: BufferRole,
        part: Part,
        range: Option<Range<usize>>,
        mode: AccessMode,
    ) -> Result<(), NoBuffer> {
        let buffer = self.index.find(role, self.worker).ok_or(NoBuffer(role))?;
        let range = range.unwrap_or(0..self.index.buffers[buffer.0].elements);
        self.accesses.push(Access { buffer, part, range, mode });
        Ok(())
    }

    fn read(&mut self, role: BufferRole, part: Part) -> Result<(), NoBuffer> {
        self.touch(role, part, None, AccessMode::Read)
    }

    fn write(&mut self, role: BufferRole, part: Part) -> Result<(), NoBuffer> {
        self.touch(role, part, None, AccessMode::Write)
    }
}

/// The buffer that rows of `tensor` go to.
pub(crate) fn product_of(tensor: TensorKey) -> Option<BufferRole> {
    Some(match tensor {
        TensorKey::Head => BufferRole::Logits,
        TensorKey::Layer(_, LayerTensor::Query) => BufferRole::Queries,
        TensorKey::Layer(_, LayerTensor::Key) => BufferRole::Keys,
        TensorKey::Layer(_, LayerTensor::Value) => BufferRole::Values,
        TensorKey::Layer(_, LayerTensor::AttentionOutput | LayerTensor::Down) => BufferRole::Delta,
        TensorKey::Layer(_, LayerTensor::Gate | LayerTensor::Up) => BufferRole::Activation,
        _ => return None,
    })
}

/// Everything that `operation` touches when `worker` performs it; `segments` are those that it consumes.
pub(crate) fn footprint(
    operation: &Operation,
    segments: &[Segment],
    worker: usize,
    target: Target,
    index: &BufferIndex<'_>,
) -> Result<Vec<Access>, NoBuffer> {
    let mut f = Footprint { index, worker, accesses: Vec::new() };
    let decode = target.phase == Phase::Decode;
    // What a worker keeps to itself: in decode its private buffers, in prefill its share of the positions.
    let share = if decode { Part::Whole } else { Part::Positions(worker) };
    match *operation {
        Operation::Embed => f.write(BufferRole::Hidden, share)?,
        Operation::AddNormalize { layer, feed_forward } => {
            if layer > 0 || feed_forward {
                f.read(BufferRole::Delta, share)?;
            }
            f.write(BufferRole::Hidden, share)?;
            f.write(BufferRole::Normed, share)?;
        }
        Operation::Append { layer } => {
            let kept = Part::Chunks(worker);
            f.write(BufferRole::Queries, kept)?;
            f.write(BufferRole::Keys, kept)?;
            f.read(BufferRole::Values, kept)?;
            f.write(BufferRole::Cache(layer), kept)?;
        }
        Operation::Attention { layer } if decode => {
            f.read(BufferRole::Queries, Part::Whole)?;
            f.read(BufferRole::Keys, Part::Whole)?;
            f.read(BufferRole::Values, Part::Whole)?;
            f.write(BufferRole::Cache(layer), Part::Chunks(worker))?;
            let partials = index.find(BufferRole::Partials, worker).ok_or(NoBuffer(BufferRole::Partials))?;
            let part = index.buffers[partials.0].elements / target.workers;
            let range = worker * part..(worker + 1) * part;
            f.touch(BufferRole::Partials, Part::Whole, Some(range), AccessMode::Write)?;
        }
        Operation::Attention { layer } => {
            f.read(BufferRole::Queries, Part::Units(worker))?;
            f.read(BufferRole::Cache(layer), Part::Whole)?;
            f.write(BufferRole::Attention, Part::Units(worker))?;
        }
        Operation::QueryKeyValue { .. }
        | Operation::AttentionOutput { .. }
        | Operation::GateUp { .. }
        | Operation::Down { .. }
        | Operation::Head { .. } => product(&mut f, operation, segments, target)?,
    }
    Ok(f.accesses)
}

/// A matrix product: its whole input, and the rows of its tiles. Without tiles it touches nothing.
fn product(f: &mut Footprint<'_>, operation: &Operation, segments: &[Segment], target: Target) -> Result<(), NoBuffer> {
    if segments.is_empty() {
        return Ok(());
    }
    match operation {
        Operation::AttentionOutput { .. } if target.phase == Phase::Decode => {
            f.read(BufferRole::Partials, Part::Whole)?;
            f.write(BufferRole::Attention, Part::Whole)?;
        }
        Operation::AttentionOutput { .. } => f.read(BufferRole::Attention, Part::Whole)?,
        Operation::Down { .. } => f.read(BufferRole::Activation, Part::Whole)?,
        _ => f.read(BufferRole::Normed, Part::Whole)?,
    }
    for segment in segments {
        // Gate and up go to the same rows; one access says so.
        let shared = matches!(segment.tensor, TensorKey::Layer(_, LayerTensor::Up));
        if let (Some(role), false) = (product_of(segment.tensor), shared) {
            f.touch(role, Part::Whole, Some(segment.output_rows(target.tile_rows)), AccessMode::Write)?;
        }
    }
    Ok(())
}
