//! Whether all waits are met, decided by the exact checker of the CPU's programs (`crate::check`): the unrolled steps as
//! instructions that signal and wait. A set of words that are read together is a counter that their writers signal.
//!
//! A worker's warps run side by side where here one instruction follows the other: what can end in this order can end in
//! theirs, since nothing that a warp does keeps another from going on.

use std::collections::HashMap;

use super::accesses::{Access, Step};
use super::words::{in_order, overlapping};
use super::{CheckError, Place};
use crate::gpu::{Operation, Plan};
use crate::{Counter, CounterId, Instruction, Phase, Program, Target, Wait, WorkerProgram};

/// Instructions that an end counts as: it tells its candidate before it reads the others'.
const END_PARTS: usize = 2;

/// Steps in which every word has one writer.
pub(super) fn check(plan: &Plan, steps: &[Step]) -> Result<(), CheckError> {
    let lengths: Vec<usize> = plan.workers.iter().map(|list| list.instructions.len() + END_PARTS - 1).collect();
    let blank = Instruction {
        operation: crate::Operation::Embed,
        waits: Vec::new(),
        accesses: Vec::new(),
        signals: Vec::new(),
    };
    let list = |length: &usize| WorkerProgram {
        instructions: vec![blank.clone(); length * steps.len()],
        segments: Vec::new(),
        stream_bytes: 0,
    };
    let mut program = Program {
        target: Target { workers: plan.workers.len(), tile_rows: 1, kv_chunk: 1, phase: Phase::Decode },
        buffers: Vec::new(),
        counters: vec![Counter { name: "arrivals".to_owned() }],
        workers: lengths.iter().map(list).collect(),
    };
    for (step, edges) in steps.iter().enumerate() {
        let at = |access: &Access, reads: bool| {
            let worker = access.worker as usize;
            let instruction = access.instruction as usize;
            let is_end = plan.workers[worker].instructions[instruction].operation == Operation::End;
            (worker, step * lengths[worker] + instruction + usize::from(is_end && reads))
        };
        for edge in edges {
            let mut counters: HashMap<(u32, u32), (CounterId, u32)> = HashMap::new();
            let writes = in_order(&edge.writes);
            for read in &edge.reads {
                let (counter, value) = *counters.entry((read.words.start, read.words.end)).or_insert_with(|| {
                    let id = CounterId(program.counters.len());
                    program.counters.push(Counter { name: String::new() });
                    let writers = overlapping(&writes, read);
                    for write in writers {
                        let (worker, place) = at(write, false);
                        program.workers[worker].instructions[place].signals.push(id);
                    }
                    let value = writers.len() as u32;
                    (id, value)
                });
                let (worker, place) = at(read, true);
                program.workers[worker].instructions[place].waits.push(Wait { counter, value });
            }
            for clear in &edge.clears {
                let (worker, place) = at(clear, false);
                let waits = &mut program.workers[worker].instructions[place].waits;
                let all = Wait { counter: CounterId(0), value: (step * plan.workers.len()) as u32 };
                if !waits.contains(&all) {
                    waits.push(all);
                }
            }
        }
        for (worker, length) in lengths.iter().enumerate() {
            let last = (step + 1) * length - 1;
            program.workers[worker].instructions[last].signals.push(CounterId(0));
        }
    }
    crate::check::ends(&program).map_err(|error| {
        let (worker, unrolled) = match error {
            crate::CheckError::Cycle { place, .. } | crate::CheckError::MissingSignal { place, .. } => {
                (place.worker, place.instruction)
            }
            // `ends` says nothing else.
            _ => (0, 0),
        };
        let (step, instruction) = (unrolled / lengths[worker], unrolled % lengths[worker]);
        let last = plan.workers[worker].instructions.len() - 1;
        CheckError::Cycle { step, place: Place::new(plan, worker, instruction.min(last)) }
    })
}
