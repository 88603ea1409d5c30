//! Streams: each is consumed from front to back without gaps, holds tiles of the right size, and all of them
//! together hold every tile of every matrix once.

use std::collections::HashMap;
use std::ops::Range;

use plancher_model::{LayerTensor, TensorKey};

use super::CheckError;
use crate::{Operation, Program, Segment, TileLayout, WorkerProgram};

pub(super) fn check(program: &Program, layout: &dyn TileLayout) -> Result<(), CheckError> {
    for (worker, list) in program.workers.iter().enumerate() {
        contiguous(worker, list, layout)?;
        consumed(worker, list)?;
    }
    coverage(program)
}

fn wrong(worker: usize, segment: usize, problem: impl Into<String>) -> CheckError {
    CheckError::Stream { worker, segment, problem: problem.into() }
}

/// Offsets and sizes.
fn contiguous(worker: usize, list: &WorkerProgram, layout: &dyn TileLayout) -> Result<(), CheckError> {
    let mut end = 0usize;
    for (number, segment) in list.segments.iter().enumerate() {
        let wrong = |problem| wrong(worker, number, problem);
        if segment.offset != end {
            return Err(wrong(format!("starts at byte {}, the one before ends at {end}", segment.offset)));
        }
        let tiles = segment.rows.div_ceil(layout.tile_rows());
        if segment.tiles.is_empty() || segment.tiles.end > tiles {
            return Err(wrong(format!("has tiles {:?} of {tiles} in `{}`", segment.tiles, segment.tensor)));
        }
        let bytes = layout
            .tile_bytes(segment.dtype, segment.columns)
            .and_then(|tile| tile.checked_mul(segment.tiles.len()))
            .ok_or_else(|| wrong(format!("{} columns of {} have no tile", segment.columns, segment.dtype)))?;
        if segment.bytes != bytes {
            return Err(wrong(format!("has {} bytes, its tiles have {bytes}", segment.bytes)));
        }
        end = end.checked_add(bytes).ok_or_else(|| wrong("the stream is too large".to_owned()))?;
    }
    if list.stream_bytes != end {
        let problem = format!("the stream has {} bytes, its segments have {end}", list.stream_bytes);
        return Err(wrong(worker, list.segments.len(), problem));
    }
    Ok(())
}

/// Instructions take the segments one after the other, each those of its own matrices.
fn consumed(worker: usize, list: &WorkerProgram) -> Result<(), CheckError> {
    let mut next = 0;
    for (place, instruction) in list.instructions.iter().enumerate() {
        let Some(matrices) = matrices(&instruction.operation) else { continue };
        let range = instruction.operation.segments();
        if range.start != next {
            let problem = format!("instruction {place} ({}) starts at segment {}", instruction.operation, range.start);
            return Err(wrong(worker, next, problem));
        }
        next = range.end;
        fits(&instruction.operation, &matrices, &list.segments[range.clone()]).map_err(|problem| {
            wrong(worker, range.start, format!("instruction {place} ({}): {problem}", instruction.operation))
        })?;
    }
    if next != list.segments.len() {
        return Err(wrong(worker, next, "no instruction consumes it"));
    }
    Ok(())
}

/// The matrices of a product, in the order of consumption.
fn matrices(operation: &Operation) -> Option<Vec<TensorKey>> {
    let of_layer = |layer: usize, tensors: &[LayerTensor]| {
        Some(tensors.iter().map(|&tensor| TensorKey::Layer(layer, tensor)).collect())
    };
    match *operation {
        Operation::QueryKeyValue { layer, .. } => {
            of_layer(layer, &[LayerTensor::Query, LayerTensor::Key, LayerTensor::Value])
        }
        Operation::AttentionOutput { layer, .. } => of_layer(layer, &[LayerTensor::AttentionOutput]),
        Operation::GateUp { layer, .. } => of_layer(layer, &[LayerTensor::Gate, LayerTensor::Up]),
        Operation::Down { layer, .. } => of_layer(layer, &[LayerTensor::Down]),
        Operation::Head { .. } => Some(vec![TensorKey::Head]),
        Operation::Embed | Operation::AddNormalize { .. } | Operation::Append { .. } | Operation::Attention { .. } => {
            None
        }
    }
}

fn fits(operation: &Operation, matrices: &[TensorKey], segments: &[Segment]) -> Result<(), String> {
    let mut left = matrices.iter();
    for segment in segments {
        if !left.any(|&tensor| tensor == segment.tensor) {
            return Err(format!("`{}` is not its next matrix", segment.tensor));
        }
    }
    if matches!(operation, Operation::GateUp { .. }) {
        match segments {
            [] => {}
            [gate, up] if gate.tiles == up.tiles && gate.rows == up.rows => {}
            _ => return Err("gate and up do not pair".to_owned()),
        }
    }
    Ok(())
}

/// Every matrix that any worker's products have is there, the same for all, each of its tiles once.
fn coverage(program: &Program) -> Result<(), CheckError> {
    let mut shares = HashMap::<TensorKey, Vec<Range<usize>>>::new();
    let mut first = HashMap::<TensorKey, &Segment>::new();
    for (worker, list) in program.workers.iter().enumerate() {
        for (number, segment) in list.segments.iter().enumerate() {
            let known = first.entry(segment.tensor).or_insert(segment);
            if (known.dtype, known.rows, known.columns) != (segment.dtype, segment.rows, segment.columns) {
                let problem = format!("`{}` has another shape or type than elsewhere", segment.tensor);
                return Err(wrong(worker, number, problem));
            }
            shares.entry(segment.tensor).or_default().push(segment.tiles.clone());
        }
    }
    let operations = program.workers.iter().flat_map(|list| &list.instructions).map(|i| &i.operation);
    for tensor in operations.filter_map(matrices).flatten() {
        // Every worker has every operation: look at each matrix once.
        let Some(segment) = first.remove(&tensor) else {
            if shares.contains_key(&tensor) {
                continue;
            }
            return Err(CheckError::Coverage { tensor, tile: 0, times: 0 });
        };
        let shares = shares.get_mut(&tensor).map(Vec::as_mut_slice).unwrap_or_default();
        shares.sort_unstable_by_key(|share| share.start);
        let mut next = 0;
        for share in shares {
            if share.start != next {
                let (tile, times) = if share.start > next { (next, 0) } else { (share.start, 2) };
                return Err(CheckError::Coverage { tensor, tile, times });
            }
            next = share.end;
        }
        if next != segment.rows.div_ceil(program.target.tile_rows) {
            return Err(CheckError::Coverage { tensor, tile: next, times: 0 });
        }
    }
    Ok(())
}
