//! The trace as the kernel writes it (with `TRACE` set, for one step), and as the rest of the program reads it.
//!
//! The buffer is 64-bit words, times of the device's global clock in nanoseconds, 0 where nothing happened. Instruction
//! `i` of worker `w` has the 8 words at `(w * INSTRUCTIONS + i) * 8`; behind all of them each worker has 4.

use plancher_program::gpu::{Instruction, Operation, Plan};
use serde::Serialize;

use crate::{CudaError, Result};

/// Words of an instruction.
pub(super) const WORDS: usize = 8;
/// Words of a worker, behind those of all instructions.
pub(super) const WORKER_WORDS: usize = 4;

/// Words of the buffer for a plan's kernel.
#[must_use]
pub fn buffer_words(plan: &Plan) -> usize {
    plan.workers.len() * (plan.ring.instructions * WORDS + WORKER_WORDS)
}

/// When one instruction of one worker did what, in nanoseconds since the first worker began the step. `None`: it does
/// not do that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// The first consumer warp began.
    pub began: Option<u64>,
    /// The first consumer warp had its input.
    pub input: Option<u64>,
    /// The first consumer warp was done.
    pub finished: Option<u64>,
    /// How long it waited for weights to land, the first of which it fetches before its input.
    pub weights: u64,
    /// The finalizer had the first of the partial sums of all warps (of [`Operation::Combine`]: all parts).
    pub summed: Option<u64>,
    /// The result was published.
    pub published: Option<u64>,
    /// How often the first consumer warp looked for its input in vain.
    pub polls: u64,
    /// The producer had asked for the last of the instruction's bytes.
    pub issued: Option<u64>,
}

/// What the first consumer warp did between the beginning and the end of an instruction, one after the other, by the times
/// at which each phase ended. Waits for weights are known by their sum; they are put where they most likely were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The beginning.
    pub began: u64,
    /// It had waited for the first weights, where they came after an input that was there at the first look.
    pub fetched: u64,
    /// It had waited for its input.
    pub input: u64,
    /// It had waited for weights.
    pub landed: u64,
    /// It had computed.
    pub finished: u64,
}

impl Times {
    /// What the first consumer warp did; `None` where it had nothing to do.
    #[must_use]
    pub fn phases(&self) -> Option<Phases> {
        let (began, finished) = (self.began?, self.finished?);
        let input = self.input.unwrap_or(began);
        // Without a look in vain, what kept it from its input was that it waited for weights first.
        let early = if self.polls == 0 { self.weights.min(input - began) } else { 0 };
        let landed = input + (self.weights - early).min(finished - input);
        Some(Phases { began, fetched: began + early, input, landed, finished })
    }

    /// When others could see the result: it was published or, where that is not stamped, done.
    #[must_use]
    pub fn done(&self) -> Option<u64> {
        self.published.or(self.finished)
    }
}

/// An instruction and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Traced {
    /// What it does.
    pub instruction: Instruction,
    /// When.
    pub times: Times,
}

/// A worker's part of the step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerTrace {
    /// It began the step.
    pub began: u64,
    /// It knew the step's token.
    pub token: u64,
    /// It had ended the step.
    pub ended: u64,
    /// How long its producer could not ask for bytes because the ring was full.
    pub ring_full: u64,
    /// Its instructions in order, without the end.
    pub instructions: Vec<Traced>,
}

/// One step of all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTrace {
    /// The position that the step appended, from 0.
    pub position: usize,
    /// All workers.
    pub workers: Vec<WorkerTrace>,
    /// What the clock ticks in: the greatest common divisor of all times, in nanoseconds.
    pub tick: u64,
}

impl StepTrace {
    /// Reads what a kernel of `plan` left in a buffer that was zeros, of the step that appended `position`.
    ///
    /// # Errors
    /// If the buffer is not of the plan's size, or times contradict each other: the message names worker, instruction
    /// and times.
    pub fn parse(buffer: &[u64], plan: &Plan, position: usize) -> Result<Self> {
        let (want, found) = (buffer_words(plan), buffer.len());
        if found != want {
            return Err(broken(&format!("it has `{found}` words, and those of its plan are `{want}`")));
        }
        let instructions = plan.ring.instructions;
        let (times, ends) = buffer.split_at(plan.workers.len() * instructions * WORDS);
        // The finalizer's stamp; the consumers may have been faster.
        let begins = ends.chunks_exact(WORKER_WORDS).enumerate().map(|(worker, end)| {
            let own = times[worker * instructions * WORDS..][..instructions * WORDS].chunks_exact(WORDS);
            own.map(|time| time[0]).find(|&began| began > 0).map_or(end[0], |began| began.min(end[0]))
        });
        let begins: Vec<u64> = begins.collect();
        let Some(origin) = begins.iter().copied().min().filter(|&origin| origin > 0) else {
            return Err(broken("a worker has not begun the step"));
        };
        let is_time = |index: &usize| !matches!(index % WORDS, 3 | 6);
        let stamps = (0..times.len()).filter(is_time).map(|index| times[index]).filter(|&time| time > 0);
        let tick = stamps.fold(0, |tick, time| greatest_common_divisor(tick, time.abs_diff(origin)));
        // The producer runs ahead: its first times may lie in the step before.
        let since = |time: u64| (time > 0).then(|| time.saturating_sub(origin));
        let mut workers = Vec::with_capacity(plan.workers.len());
        for (worker, list) in plan.workers.iter().enumerate() {
            let own = times[worker * instructions * WORDS..].chunks_exact(WORDS);
            let list = list.instructions.iter().filter(|instruction| instruction.operation != Operation::End);
            let traced = list.zip(own).map(|(&instruction, time)| {
                let times = Times {
                    began: since(time[0]),
                    input: since(time[1]),
                    finished: since(time[2]),
                    weights: time[3],
                    summed: since(time[4]),
                    published: since(time[5]),
                    polls: time[6],
                    issued: since(time[7]),
                };
                Traced { instruction, times }
            });
            let ends = &ends[worker * WORKER_WORDS..][..WORKER_WORDS];
            let (Some(began), Some(token), Some(ended)) = (since(begins[worker]), since(ends[1]), since(ends[2]))
            else {
                return Err(broken(&format!("worker {worker} has not ended the step")));
            };
            workers.push(WorkerTrace { began, token, ended, ring_full: ends[3], instructions: traced.collect() });
        }
        let trace = Self { position, workers, tick };
        trace.check()?;
        Ok(trace)
    }

    /// Whether times are in the only order that they can have.
    fn check(&self) -> Result<()> {
        for (index, worker) in self.workers.iter().enumerate() {
            let ends = [("began", Some(worker.began)), ("token", Some(worker.token)), ("ended", Some(worker.ended))];
            in_order(&ends).map_err(|problem| broken(&format!("worker {index}: {problem}")))?;
            let mut before = worker.began;
            for (number, Traced { instruction, times }) in worker.instructions.iter().enumerate() {
                let consumer = [
                    ("before", Some(before)),
                    ("began", times.began),
                    ("input", times.input),
                    ("finished", times.finished),
                    ("ended", Some(worker.ended)),
                ];
                let finalizer =
                    [("summed", times.summed), ("published", times.published), ("ended", Some(worker.ended))];
                in_order(&consumer).and_then(|()| in_order(&finalizer)).map_err(|problem| {
                    let Instruction { operation, layer, .. } = instruction;
                    broken(&format!("worker {index}, instruction {number} ({operation} of layer {layer}): {problem}"))
                })?;
                before = times.finished.unwrap_or(before);
            }
        }
        Ok(())
    }

    /// When the first worker's step began and the last one's ended, in nanoseconds.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        let began = self.workers.iter().map(|worker| worker.began).min().unwrap_or(0);
        (began, self.workers.iter().map(|worker| worker.ended).max().unwrap_or(0))
    }

    /// How long the step took the average worker, in nanoseconds.
    #[must_use]
    pub fn duration(&self) -> f64 {
        let total: u64 = self.workers.iter().map(|worker| worker.ended - worker.began).sum();
        total as f64 / self.workers.len().max(1) as f64
    }

    /// All instructions of all workers.
    pub(super) fn instructions(&self) -> impl Iterator<Item = &Traced> {
        self.workers.iter().flat_map(|worker| &worker.instructions)
    }
}

/// Whether those times that are there do not fall.
fn in_order(times: &[(&str, Option<u64>)]) -> std::result::Result<(), String> {
    let mut there = times.iter().filter_map(|&(name, time)| Some((name, time?)));
    let Some(mut last) = there.next() else { return Ok(()) };
    for next in there {
        if next.1 < last.1 {
            return Err(format!("`{}` at {} ns is before `{}` at {} ns", next.0, next.1, last.0, last.1));
        }
        last = next;
    }
    Ok(())
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn broken(problem: &str) -> CudaError {
    CudaError::Unsupported(format!("the megakernel's trace cannot be read: {problem}"))
}
