//! Upper bounds on what a file may claim, in one place. Every size of a configuration passes through
//! [`size`]; the bounds are far above any real model and low enough that the product of any two sizes, times
//! the bytes of an element, fits in 64 bits. Downstream arithmetic on a checked configuration cannot overflow.

use std::path::Path;

use crate::{ModelError, Result};

/// Rows of the embedding.
pub(crate) const VOCABULARY: usize = 1 << 24;
/// Elements of the residual stream, rows of a feed-forward matrix.
pub(crate) const WIDTH: usize = 1 << 24;
/// Decoder layers.
pub(crate) const LAYERS: usize = 1 << 12;
/// Attention heads.
pub(crate) const HEADS: usize = 1 << 14;
/// Elements of a head.
pub(crate) const HEAD_DIM: usize = 1 << 14;
/// Positions.
pub(crate) const CONTEXT: usize = 1 << 31;

/// `value` of `field` as a size from 1 to `maximum`.
///
/// # Errors
/// When it is zero or absurd.
pub(crate) fn size(path: &Path, field: &str, value: u64, maximum: usize) -> Result<usize> {
    match usize::try_from(value) {
        Ok(size) if (1..=maximum).contains(&size) => Ok(size),
        _ => Err(ModelError::invalid(path, field, format!("is {value}, expected 1 to {maximum}"))),
    }
}
