//! One decode step (or one prefill chunk) of a model as a *program*: an instruction list and a packed weight
//! stream for each of W workers, with the dependencies between instructions made explicit.
//!
//! [`lower`] turns a model's configuration into a list of operations, [`schedule`] cuts them into instructions for the
//! workers of a [`Target`], [`check`] proves the result safe to run, and [`pack_worker`] lays each worker's weights out
//! in the order in which it consumes them. What runs a program is a backend's business; [`Reference`] is the plain
//! executor that all of them are compared with, and [`Interpreter`] runs any program to the letter, slowly.

mod balance;
mod check;
mod error;
mod footprint;
pub mod gpu;
mod interpret;
mod lower;
mod math;
mod operation;
mod pack;
mod program;
mod reference;
mod row_major;
mod schedule;
mod summary;
mod vectors;

pub use check::{CheckError, Place, check};
pub use error::ProgramError;
pub use interpret::{Interpreter, Order};
pub use lower::{BufferSizes, Lowered, LoweredOperation, Matrix, lower};
pub use operation::Operation;
pub use pack::{PackProgress, TileLayout, pack_worker};
pub use program::{
    Access, AccessMode, Buffer, BufferId, BufferRole, Counter, CounterId, Instruction, Part, Phase, Program, Segment,
    Target, Wait, WorkerProgram,
};
pub use reference::Reference;
pub use row_major::RowMajor;
pub use schedule::{MAX_WORKERS, schedule};
pub use summary::{Summary, WorkerSummary, summary};
pub use vectors::{LayerVectors, Vectors};
