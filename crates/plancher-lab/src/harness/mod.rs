//! The harness: it believes nothing. It makes the inputs, poisons what is to be written, guards what must not be, launches a
//! [`Candidate`], and holds what is there afterwards against double precision; it times by the device's clock, beside the
//! ceiling of the same minute.

mod bench;
mod candidate;
mod cases;
mod ceiling;
mod clocks;
mod judgement;
mod launch;
mod memory;
mod problem;
mod small;
mod timing;
mod tools;
mod traffic;

pub use bench::{Bench, Instance};
pub use candidate::{Candidate, KernelCandidate, Run};
pub use cases::Limits;
pub use ceiling::Ceilings;
pub use clocks::times_disagree;
pub use judgement::Judgement;
pub use launch::{launch, replay};
pub use problem::{Array, Problem, Role, TOO_PRECISE};
pub use small::{SmallCase, small_cases, try_small};
pub use timing::Effort;
pub(crate) use timing::label;

/// Memory for the arrays of the five cases and of the points that are timed, in bytes, and for the ceilings beside them.
pub(crate) fn memory_needed(problems: impl Iterator<Item = Problem>, l2: u64) -> u64 {
    // Arrays of each of up to eight instances, with two of partial sums.
    let points = problems.map(|problem| timing::memory_of(&problem, l2)).max().unwrap_or(0);
    let scratch = points / 64;
    memory::arena_bytes(8 * 5, points.max(cases::CASE_BYTES) + 2 * scratch)
}

/// Memory for the arrays of one problem alone, in bytes.
pub(crate) fn memory_for_one(problem: &Problem) -> u64 {
    // Two arrays of partial sums beside them.
    let bytes = timing::bytes_of(problem);
    memory::arena_bytes(5, bytes + bytes / 32)
}
