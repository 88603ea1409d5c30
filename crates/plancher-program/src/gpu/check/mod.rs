//! The static checker of a plan: proves before the first launch that the kernel's workers can neither wait for ever nor
//! read a word of the wrong step, and that each stream is what its instructions consume.
//!
//! A plan that passes
//! - has lists that the kernel can run: operations in the order of the model, within bounds, rows of the residual stream
//!   with one owner, one split of attention a worker;
//! - computes every row of every matrix, every output of attention and every split of every unit once;
//! - consumes each stream from front to back without gaps, and fits its shared memory;
//! - reads every page of the past once, whatever the position, and in a worker that appended it itself;
//! - lays out the exchange without overlaps, aligned for vector loads;
//! - for some steps from the first position on, and around positions where another split of attention wakes up, with all
//!   copies used again:
//!   every word that is read has one writer in that step; every word written is cleared, behind all that read it, and in
//!   front of all that use its copy again; and all waits are met.
//!
//! What orders accesses is the kernel's, not the plan's: a worker's own order, and the arrivals that it waits for once a
//! step (see `words.rs`). A word that is there orders nothing but itself.

mod accesses;
mod error;
mod layout;
mod order;
mod pages;
mod structure;
mod words;

pub use error::{CheckError, Place, Use};

use std::collections::BTreeSet;

use super::{COPIES, PAGE, Plan, SPLIT_PAGES};

/// Steps that are looked at together: every copy is used twice.
const STEPS: usize = 6;

/// Checks that a plan is safe to launch.
///
/// # Errors
/// The first thing found wrong, naming worker, instruction and slot.
pub fn check(plan: &Plan) -> Result<(), CheckError> {
    structure::check(plan)?;
    layout::check(plan)?;
    pages::check(plan)?;
    for start in starts(plan) {
        let steps = accesses::unroll(plan, start, STEPS);
        words::check(plan, &steps, words::Protocol::KERNEL)?;
        // Waits are met or not whatever was there before: until a copy is used again is enough.
        order::check(plan, &steps[..=COPIES])?;
    }
    Ok(())
}

/// Positions to start from: the first one, and a little before those at which the second and the last split wake up. All
/// splits take part in the last steps; in between there are only fewer of them.
fn starts(plan: &Plan) -> BTreeSet<usize> {
    let splits = plan.attention.splits;
    let borders = [1, splits - 1].into_iter().filter(|split| (1..splits).contains(split));
    let starts = borders.map(|split| split * PAGE * SPLIT_PAGES - STEPS / 2);
    std::iter::once(0).chain(starts.filter(|start| start + STEPS <= plan.target.positions)).collect()
}

#[cfg(test)]
mod tests;
