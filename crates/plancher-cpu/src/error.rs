//! The error of this crate.

use plancher_program::ProgramError;

use crate::kernels::IsaError;
use crate::{OutOfMemory, PoolError};

/// Why an executor could not be made, or a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The model cannot become a program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A worker could not be started, or panicked.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The instruction set asked for cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// An option is out of range.
    #[error("`{option}` is `{value}`: {problem}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its value.
        value: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A worker waited in vain.
    #[error(
        "worker {worker} waited {seconds} s before `{instruction}` for `{counter}`, which had {seen} of {value} signals"
    )]
    Stuck {
        /// Which worker.
        worker: usize,
        /// What it wanted to do.
        instruction: String,
        /// The counter it waited for.
        counter: String,
        /// Signals that had arrived.
        seen: u32,
        /// Signals that it needed.
        value: u32,
        /// How long it waited.
        seconds: u64,
    },
}
