//! Lists that the kernel can run, everything computed once, and streams that are what the lists consume.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{CheckError, Place};
use crate::gpu::{Instruction, LEAST_STAGES, Operation, Plan, STAGE_BYTES};

pub(super) fn check(plan: &Plan) -> Result<(), CheckError> {
    for worker in 0..plan.workers.len() {
        list(plan, worker)?;
        stream(plan, worker)?;
        residual(plan, worker)?;
    }
    coverage(plan)?;
    attention(plan)?;
    let bound = |what, value, bound| if value > bound { Err(CheckError::Bound { what, value, bound }) } else { Ok(()) };
    if plan.ring.stages < LEAST_STAGES {
        return bound("ring stages that are missing", LEAST_STAGES - plan.ring.stages, 0);
    }
    let shared = plan.ring.stages.saturating_mul(STAGE_BYTES).saturating_add(plan.ring.fixed_bytes);
    bound("shared memory", shared, plan.target.shared_memory)
}

/// Where an operation stands in a step, by layer and kind.
fn rank(instruction: &Instruction) -> (usize, u8) {
    match instruction.operation {
        Operation::Embed => (0, 0),
        Operation::End => (usize::MAX, 9),
        operation => (usize::from(instruction.layer), operation as u8),
    }
}

/// Operations in the order of a step, each (but several units of attention) at most once a layer, within their matrices.
fn list(plan: &Plan, worker: usize) -> Result<(), CheckError> {
    let list = &plan.workers[worker].instructions;
    let problem = |problem: String| Err(CheckError::List { worker, problem });
    if list.last() != Some(&Instruction::END) {
        return problem("the list has no `end` as its last instruction".to_owned());
    }
    if list.len() > plan.ring.instructions {
        return problem(format!("{} instructions, the kernel has room for {}", list.len(), plan.ring.instructions));
    }
    for (index, instruction) in list.iter().enumerate() {
        let place = || Place::new(plan, worker, index);
        let problem = |problem: String| Err(CheckError::Instruction { place: place(), problem });
        let Instruction { operation, layer, first, count, .. } = *instruction;
        let right_layer = match operation {
            Operation::Embed | Operation::End => layer == 0,
            Operation::Head => usize::from(layer) == plan.shape.layers,
            _ => usize::from(layer) < plan.shape.layers,
        };
        if !right_layer {
            return problem(format!("the model has {} layers", plan.shape.layers));
        }
        if let Some(before) = index.checked_sub(1).map(|before| &list[before])
            && (rank(before) > rank(instruction) || rank(before) == rank(instruction) && operation != Operation::Attend)
        {
            return problem(format!("comes behind `{}` of layer {}", before.operation, before.layer));
        }
        let rows = rows(plan, operation);
        let end = first as usize + count as usize;
        if rows > 0 && (count == 0 || end > rows) {
            return problem(format!("{count} rows from {first} on, of {rows}"));
        }
        // Two neighbouring results are one word: both are one worker's.
        if rows > 0
            && operation != Operation::Head
            && (!first.is_multiple_of(2) || (!end.is_multiple_of(2) && end != rows))
        {
            return problem(format!("{count} rows from {first} on are not whole words of two"));
        }
        // Pieces of eight outputs are combined at a time.
        if operation == Operation::Combine && (first % 8 != 0 || count % 8 != 0) {
            return problem(format!("{count} outputs from {first} on are not whole pieces of eight"));
        }
    }
    Ok(())
}

/// What an operation's `first` and `count` count; 0 where they do not.
fn rows(plan: &Plan, operation: Operation) -> usize {
    match operation {
        Operation::End | Operation::Attend => 0,
        Operation::Embed => plan.shape.hidden,
        Operation::Combine => plan.shape.query_rows(),
        _ => plan.product_of(operation).map_or(0, |product| product.rows),
    }
}

/// The producer takes as many stages of the stream as the consumers.
fn stream(plan: &Plan, worker: usize) -> Result<(), CheckError> {
    let list = &plan.workers[worker];
    let mut next = 0;
    let last = list.instructions.len() - 1;
    let error = |index: usize, field, value: usize, expected| {
        let place = Place::new(plan, worker, index.min(last));
        if value == expected { Ok(()) } else { Err(CheckError::Stream { place, field, value, expected }) }
    };
    for (index, instruction) in list.instructions.iter().enumerate() {
        let product = plan.product_of(instruction.operation);
        let expected = product.map_or(0, |product| product.stages(instruction.count as usize));
        error(index, "stages", instruction.stages as usize, expected)?;
        let first = list.first_stages.get(index).map_or(usize::MAX, |first| *first as usize);
        error(index, "first_stages", first, next)?;
        next += expected;
    }
    error(last, "first_stages.len()", list.first_stages.len(), list.instructions.len())?;
    error(last, "stages of the stream", list.stages as usize, next)
}

/// Rows of the residual stream stay with one worker: the same in every instruction that touches them.
fn residual(plan: &Plan, worker: usize) -> Result<(), CheckError> {
    let list = &plan.workers[worker].instructions;
    let own = |operation| list.iter().find(|i| i.operation == operation).map(|i| (i.first, i.count));
    let embedded = own(Operation::Embed);
    for (index, instruction) in list.iter().enumerate() {
        let adds = matches!(instruction.operation, Operation::Output | Operation::Down);
        if adds && embedded != Some((instruction.first, instruction.count)) {
            let place = Place::new(plan, worker, index);
            let problem = match embedded {
                Some((first, count)) => format!("its worker keeps {count} rows of the residual stream from {first} on"),
                None => "its worker keeps no rows of the residual stream".to_owned(),
            };
            return Err(CheckError::Instruction { place, problem });
        }
    }
    Ok(())
}

/// Everything that has rows is computed once.
fn coverage(plan: &Plan) -> Result<(), CheckError> {
    let mut found: BTreeMap<(usize, Operation), Vec<Range<usize>>> = BTreeMap::new();
    for list in &plan.workers {
        for i in list.instructions.iter().filter(|i| rows(plan, i.operation) > 0) {
            let range = i.first as usize..i.first as usize + i.count as usize;
            found.entry((usize::from(i.layer), i.operation)).or_default().push(range);
        }
    }
    let layers = 0..plan.shape.layers;
    let of_layer =
        [Operation::QueryKeyValue, Operation::Combine, Operation::Output, Operation::GateUp, Operation::Down];
    let once = [(0, Operation::Embed), (plan.shape.layers, Operation::Head)];
    for (layer, operation) in layers.flat_map(|layer| of_layer.map(|operation| (layer, operation))).chain(once) {
        let mut ranges = found.remove(&(layer, operation)).unwrap_or_default();
        ranges.sort_unstable_by_key(|range| range.start);
        let end = rows(plan, operation);
        let mut next = 0;
        for range in ranges.into_iter().chain(std::iter::once(end..end)) {
            let times = match range.start.cmp(&next) {
                std::cmp::Ordering::Less => 2,
                std::cmp::Ordering::Greater => 0,
                std::cmp::Ordering::Equal => {
                    next = range.end;
                    continue;
                }
            };
            let index = next.min(range.start);
            let item = if operation == Operation::Combine { "output" } else { "row" };
            return Err(CheckError::Coverage { operation, layer, item, index, times });
        }
    }
    Ok(())
}

/// Every split of every unit once a layer, and by a worker that has no other split.
fn attention(plan: &Plan) -> Result<(), CheckError> {
    let (units, splits, layers) = (plan.attention.kv_units, plan.attention.splits, plan.shape.layers);
    let mut times = vec![0_usize; units * splits * layers];
    for (worker, list) in plan.workers.iter().enumerate() {
        let mut own = None;
        for (index, i) in list.instructions.iter().enumerate().filter(|(_, i)| i.operation == Operation::Attend) {
            let problem =
                |problem: String| Err(CheckError::Instruction { place: Place::new(plan, worker, index), problem });
            let (unit, split) = (i.first as usize, i.count as usize);
            if unit >= units || split >= splits {
                return problem(format!("split {split} of unit {unit}, of {splits} and {units}"));
            }
            if *own.get_or_insert(split) != split {
                return problem(format!("split {split} where its worker keeps the pages of another"));
            }
            times[(usize::from(i.layer) * units + unit) * splits + split] += 1;
        }
    }
    match times.iter().position(|&times| times != 1) {
        None => Ok(()),
        Some(at) => {
            let (layer, index, times) = (at / splits / units, at % (splits * units), times[at]);
            Err(CheckError::Coverage {
                operation: Operation::Attend,
                layer,
                item: "unit * splits + split",
                index,
                times,
            })
        }
    }
}
