//! The error of this crate: why a model cannot become a program for a target.

use plancher_model::TensorKey;

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
        dtype: plancher_model::DType,
    },
    /// The sizes of a stream add up to more than memory can hold.
    #[error("the weight stream of worker {worker} is too large")]
    TooLarge {
        /// Which worker.
        worker: usize,
    },
}
