//! One decode step (or one prefill chunk) of a model as a *program*: an instruction list and a packed weight
//! stream for each of W workers, with the dependencies between instructions made explicit.
//!
//! [`lower`] turns a model's configuration into a list of operations, [`schedule`](schedule::schedule)
//! cuts them into instructions for the workers of a [`Target`], [`check`](check::check) proves the result safe to run,
//! and [`pack`](pack) lays each worker's weights out in the order in which it consumes them. What runs a program is a
//! backend's business; [`reference`] is the plain executor that all of them are compared with.

mod error;
mod operation;
pub mod pack;
mod program;

pub use error::ProgramError;
pub use operation::Operation;
pub use program::{
    Access, AccessMode, Buffer, BufferId, BufferRole, Counter, CounterId, Instruction, Part, Phase, Program, Segment,
    Target, Wait, WorkerProgram,
};
