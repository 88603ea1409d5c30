//! The error of this crate: why a model cannot become a program for a target.

use plancher_model::{DType, TensorKey};

use crate::{CheckError, Phase};

/// Why lowering or scheduling failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The model lacks a matrix or vector that its configuration calls for.
    #[error("tensor `{key}` is missing")]
    MissingTensor {
        /// Its role.
        key: TensorKey,
    },
    /// A stored tensor does not have the shape that the configuration calls for.
    #[error("tensor `{key}` has shape ({}, {}), expected ({}, {})", found.0, found.1, expected.0, expected.1)]
    Shape {
        /// Its role.
        key: TensorKey,
        /// Rows and columns that the configuration calls for.
        expected: (usize, usize),
        /// Rows and columns stored.
        found: (usize, usize),
    },
    /// A value of the configuration is out of range.
    #[error("configuration field `{field}` is `{value}`: {problem}")]
    Config {
        /// Which field.
        field: String,
        /// Its value.
        value: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A feed-forward kind that has no lowering.
    #[error("layer {layer}: this kind of feed-forward is not supported")]
    UnsupportedFeedForward {
        /// Which layer.
        layer: usize,
    },
    /// A field of the target is out of range.
    #[error("target field `{field}` is `{value}`: {problem}")]
    Target {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The target's layout has no tile for a matrix.
    #[error("tensor `{key}` with {columns} columns of {dtype} does not fit the target's tiles")]
    Tile {
        /// Its role.
        key: TensorKey,
        /// Its columns.
        columns: usize,
        /// Its encoding.
        dtype: DType,
    },
    /// The sizes of a stream add up to more than memory can hold.
    #[error("the weight stream of worker {worker} is too large")]
    TooLarge {
        /// Which worker.
        worker: usize,
    },
    /// A program is not safe to run.
    #[error("unsafe program: {0}")]
    Unsafe(#[from] CheckError),
    /// A program is for another phase than it is to be run in.
    #[error("the program is for {found:?}, expected one for {expected:?}")]
    Phase {
        /// What it is to be run for.
        expected: Phase,
        /// What it is for.
        found: Phase,
    },
    /// Two programs that are to share streams lay them out differently.
    #[error("the decode and the prefill program have different streams")]
    StreamsDiffer,
}
