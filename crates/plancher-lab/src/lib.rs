//! The lab: measured exercises for GPU kernels, step by step, and the harness that judges them.
//!
//! A *step* ([`catalogue`]) is one operation (SAXPY, transpose, reduction, matrix product) and a list of *versions*: kernel
//! files, each of which changes one thing. A file is complete by itself: it includes nothing, and says in its
//! [`Directives`] how it is launched, so that a learner's file and ours go through the same [`harness`]. What a run measured
//! is a [`record::LabRun`], from which every [`verdict`] can be computed again, without a GPU.

#![deny(unsafe_code)]

pub mod catalogue;
mod compile;
mod directives;
pub mod engine;
mod error;
pub mod harness;
mod includes;
mod parameters;
mod plural;
pub mod profile;
mod reading;
pub mod record;
pub mod sanitizer;
mod shape;
pub mod step;
pub mod verdict;

pub use compile::{CompileReport, Compiled, Target, compile, compile_only};
pub use directives::{Directives, Grid, MOST_THREADS, Operand, TensorMap};
pub use error::{LabError, Result};
pub use plural::plural;
pub use reading::read_run;
pub use shape::{Dtype, Operation, Shape};
pub use step::{Step, Version};
