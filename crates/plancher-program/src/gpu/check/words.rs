//! The words of the exchange over several steps: one writer a word and step, cleared in time, and every use of a copy in
//! order with the uses before.
//!
//! A word that is there is its own signal and orders nothing else. Order across workers comes from arrivals alone: at the
//! head of step `t`, before it clears, a worker waits (acquire) until all workers have arrived (release) `t` times, and
//! an arrival is the last thing in a step. No worker can arrive for the `t + 1`st time before all have `t` times, so
//! whatever a worker does from there on is behind all that others did up to step `t - 1`; and what it does before, behind
//! all up to step `t - 2`. Within a worker a step is behind the one before.

use super::accesses::{Access, EdgeAccesses, Step, edges};
use super::error::Use;
use super::{CheckError, Place};
use crate::gpu::{COPIES, Plan};

/// How copies and arrivals go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    /// Copies of every word.
    pub(super) copies: usize,
    /// Whether workers wait for arrivals before they clear.
    pub(super) waits: bool,
}

impl Protocol {
    /// That of the kernel.
    pub(super) const KERNEL: Self = Self { copies: COPIES, waits: true };

    /// Whether `second` is behind all that others did in `first_step`, in every execution.
    fn is_behind(self, second: &Access, second_step: usize, first_step: usize) -> bool {
        self.waits && first_step + usize::from(!second.late) < second_step
    }
}

/// Checks steps that follow each other, the first ones of a launch: before it all words are cleared.
pub(super) fn check(plan: &Plan, steps: &[Step], protocol: Protocol) -> Result<(), CheckError> {
    for (edge, name) in edges(plan).enumerate() {
        let slot = || name.to_string();
        let place = |access: &Access| Place::new(plan, access.worker as usize, access.instruction as usize);
        let sorted: Vec<EdgeAccesses> = steps.iter().map(|step| sorted(&step[edge])).collect();
        for (step, now) in sorted.iter().enumerate() {
            for (what, accesses) in [("written", &now.writes), ("cleared", &now.clears)] {
                if let Some(pair) = accesses.windows(2).find(|pair| pair[1].words.start < pair[0].words.end) {
                    let (first, second, word) = (place(&pair[0]), place(&pair[1]), pair[1].words.start as usize);
                    return Err(CheckError::Twice { step, word, slot: slot(), what, first, second });
                }
            }
            for (n, read) in now.reads.iter().enumerate() {
                if n > 0 && now.reads[n - 1].words == read.words {
                    continue;
                }
                if let Some(word) = missing(read, &now.writes) {
                    return Err(CheckError::NoWriter { step, place: place(read), word, slot: slot() });
                }
            }
            let Some(next) = sorted.get(step + 1) else { continue };
            for write in &now.writes {
                if let Some(word) = missing(write, &next.clears) {
                    return Err(CheckError::NotCleared { step, place: place(write), word, slot: slot() });
                }
            }
            // The copy's next use, if it comes before the clearing, is looked at as if it came behind it.
            let again = sorted.get(step + protocol.copies);
            let pairs = [
                ("reading", step, &now.reads, "clearing", step + 1, &next.clears),
                ("writing", step, &now.writes, "clearing", step + 1, &next.clears),
                (
                    "clearing",
                    step + 1,
                    &next.clears,
                    "writing",
                    step + protocol.copies,
                    again.map_or(&NONE, |a| &a.writes),
                ),
                (
                    "clearing",
                    step + 1,
                    &next.clears,
                    "reading",
                    step + protocol.copies,
                    again.map_or(&NONE, |a| &a.reads),
                ),
            ];
            for (first_what, first_step, firsts, second_what, second_step, seconds) in pairs {
                let fault = unordered(protocol, firsts, first_step, seconds, second_step);
                let Some((first, second)) = fault else { continue };
                return Err(CheckError::Unordered {
                    slot: slot(),
                    word: first.words.start.max(second.words.start) as usize,
                    first: Use { what: first_what, step: first_step as u32, place: place(first) },
                    second: Use { what: second_what, step: second_step as u32, place: place(second) },
                });
            }
        }
    }
    Ok(())
}

static NONE: Vec<Access> = Vec::new();

/// Each kind in order of its words.
fn sorted(accesses: &EdgeAccesses) -> EdgeAccesses {
    let EdgeAccesses { writes, reads, clears } = accesses;
    EdgeAccesses { writes: in_order(writes), reads: in_order(reads), clears: in_order(clears) }
}

pub(super) fn in_order(accesses: &[Access]) -> Vec<Access> {
    let mut sorted = accesses.to_vec();
    sorted.sort_unstable_by_key(|access| (access.words.start, access.words.end, access.worker, access.instruction));
    sorted
}

/// Two uses of the same words that are not in order.
fn unordered<'a>(
    protocol: Protocol,
    firsts: &'a [Access],
    first_step: usize,
    seconds: &'a [Access],
    second_step: usize,
) -> Option<(&'a Access, &'a Access)> {
    let exposed = seconds.iter().filter(|second| !protocol.is_behind(second, second_step, first_step));
    let overlap = |a: &Access, b: &Access| a.words.start < b.words.end && b.words.start < a.words.end;
    let mut pairs = exposed.filter_map(|second| {
        let first = firsts.iter().find(|first| first.worker != second.worker && overlap(first, second))?;
        Some((first, second))
    });
    pairs.next()
}

/// The first word of `access` that none of `others` has; these are in order and apart.
fn missing(access: &Access, others: &[Access]) -> Option<usize> {
    let mut next = access.words.start;
    for other in overlapping(others, access) {
        if other.words.start > next {
            break;
        }
        next = other.words.end;
    }
    (next < access.words.end).then_some(next as usize)
}

/// Those of `others`, in order and apart, that have words of `access`.
pub(super) fn overlapping<'a>(others: &'a [Access], access: &Access) -> &'a [Access] {
    let first = others.partition_point(|other| other.words.end <= access.words.start);
    let length = others[first..].partition_point(|other| other.words.start < access.words.end);
    &others[first..first + length]
}
