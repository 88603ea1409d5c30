//! What can be checked instruction by instruction: names, bounds, owners, the sequence of operations, and that an
//! instruction declares all that it touches.

use std::mem::{Discriminant, discriminant};

use super::{CheckError, Place};
use crate::footprint::{BufferIndex, NoBuffer, footprint};
use crate::{Access, AccessMode, BufferRole, MAX_WORKERS, Operation, Phase, Program};

pub(super) fn check(program: &Program) -> Result<(), CheckError> {
    let (lists, workers) = (program.workers.len(), program.target.workers);
    if lists != workers || workers == 0 || workers > MAX_WORKERS {
        return Err(CheckError::Workers { lists, workers });
    }
    let expected = sequence(program);
    let index = BufferIndex::new(&program.buffers);
    for worker in 0..workers {
        operations(program, worker, &expected)?;
        for instruction in 0..expected.len() {
            bounds(program, worker, instruction)?;
            declared(program, worker, instruction, &index)?;
        }
    }
    Ok(())
}

/// The operations of a step, in order; the segments are left out.
fn sequence(program: &Program) -> Vec<Operation> {
    let n_layers = program.buffers.iter().filter(|buffer| matches!(buffer.role, BufferRole::Cache(_))).count();
    let none = || 0..0;
    let mut sequence = vec![Operation::Embed];
    for layer in 0..n_layers {
        sequence.push(Operation::AddNormalize { layer, feed_forward: false });
        sequence.push(Operation::QueryKeyValue { layer, segments: none() });
        if program.target.phase == Phase::Prefill {
            sequence.push(Operation::Append { layer });
        }
        sequence.push(Operation::Attention { layer });
        sequence.push(Operation::AttentionOutput { layer, segments: none() });
        sequence.push(Operation::AddNormalize { layer, feed_forward: true });
        sequence.push(Operation::GateUp { layer, segments: none() });
        sequence.push(Operation::Down { layer, segments: none() });
    }
    sequence.push(Operation::AddNormalize { layer: n_layers, feed_forward: false });
    sequence.push(Operation::Head { segments: none() });
    sequence
}

/// What tells two operations apart, beside their segments.
fn identity(operation: &Operation) -> (Discriminant<Operation>, usize, bool) {
    let (layer, feed_forward) = match *operation {
        Operation::AddNormalize { layer, feed_forward } => (layer, feed_forward),
        Operation::QueryKeyValue { layer, .. }
        | Operation::Append { layer }
        | Operation::Attention { layer }
        | Operation::AttentionOutput { layer, .. }
        | Operation::GateUp { layer, .. }
        | Operation::Down { layer, .. } => (layer, false),
        Operation::Embed | Operation::Head { .. } => (0, false),
    };
    (discriminant(operation), layer, feed_forward)
}

fn operations(program: &Program, worker: usize, expected: &[Operation]) -> Result<(), CheckError> {
    let found = &program.workers[worker].instructions;
    for place in 0..expected.len().max(found.len()) {
        let (want, have) = (expected.get(place), found.get(place).map(|instruction| &instruction.operation));
        if want.map(identity) != have.map(identity) {
            let name = |operation: Option<&Operation>| operation.map_or("nothing".to_owned(), ToString::to_string);
            let (expected, found) = (name(want), name(have));
            return Err(CheckError::Operation { worker, instruction: place, expected, found });
        }
    }
    Ok(())
}

fn bounds(program: &Program, worker: usize, place: usize) -> Result<(), CheckError> {
    let instruction = &program.workers[worker].instructions[place];
    let out_of_bounds = |what: String, value, bound| {
        Err(CheckError::Bounds { place: Place::new(program, worker, place), what, value, bound })
    };
    let counters = instruction.waits.iter().map(|wait| wait.counter).chain(instruction.signals.iter().copied());
    for counter in counters {
        if counter.0 >= program.counters.len() {
            return out_of_bounds("counter".to_owned(), counter.0, program.counters.len());
        }
    }
    for access in &instruction.accesses {
        let Some(buffer) = program.buffers.get(access.buffer.0) else {
            return out_of_bounds("buffer".to_owned(), access.buffer.0, program.buffers.len());
        };
        if access.range.end > buffer.elements || access.range.start > access.range.end {
            return out_of_bounds(format!("range in {}", buffer.role), access.range.end, buffer.elements);
        }
        if let Some(owner) = buffer.owner.filter(|&owner| owner != worker) {
            let place = Place::new(program, worker, place);
            return Err(CheckError::PrivateBuffer { place, buffer: buffer.role.to_string(), owner });
        }
    }
    let (end, count) = (instruction.operation.segments().end, program.workers[worker].segments.len());
    if end > count || instruction.operation.segments().start > end {
        return out_of_bounds("segment".to_owned(), end, count);
    }
    Ok(())
}

fn declared(program: &Program, worker: usize, place: usize, index: &BufferIndex<'_>) -> Result<(), CheckError> {
    let list = &program.workers[worker];
    let instruction = &list.instructions[place];
    let segments = &list.segments[instruction.operation.segments()];
    let undeclared = |role: BufferRole| {
        let place = Place::new(program, worker, place);
        Err(CheckError::Undeclared { place, buffer: role.to_string() })
    };
    match footprint(&instruction.operation, segments, worker, program.target, index) {
        Err(NoBuffer(role)) => undeclared(role),
        Ok(touched) => match touched.iter().find(|touch| !instruction.accesses.iter().any(|a| covers(a, touch))) {
            Some(touch) => undeclared(program.buffers[touch.buffer.0].role),
            None => Ok(()),
        },
    }
}

fn covers(declared: &Access, touched: &Access) -> bool {
    declared.buffer == touched.buffer
        && declared.part.contains(touched.part)
        && declared.range.start <= touched.range.start
        && touched.range.end <= declared.range.end
        && (declared.mode == AccessMode::Write || touched.mode == AccessMode::Read)
}
