//! The static checker: proves before the first run that a program can neither hang nor race, and that its streams are
//! what its instructions consume.
//!
//! A program that passes
//! - names only buffers, counters and workers that it has, within their bounds, and private ones only by their owner;
//! - performs on every worker all operations of its phase, in the order of the model;
//! - declares all that its instructions touch ([`Instruction::accesses`](crate::Instruction::accesses));
//! - consumes each stream from front to back without gaps, and covers every tile of every matrix once;
//! - ends, whatever the speeds of its workers: every wait is met;
//! - orders, whatever the speeds of its workers, any two accesses to the same memory of which one writes, and orders
//!   them as the model does.
//!
//! The last two are decided exactly, not approximately: see `order.rs`.

mod error;
mod order;
mod stream;
mod structure;

pub use error::{CheckError, Place};
pub(crate) use order::ends;

use crate::{Program, TileLayout};

/// Checks that `program`, with streams packed by `layout`, is safe to run.
///
/// # Errors
/// The first thing found wrong, naming worker, instruction, counter or buffer.
pub fn check(program: &Program, layout: &dyn TileLayout) -> Result<(), CheckError> {
    structure::check(program)?;
    stream::check(program, layout)?;
    order::check(program)
}
