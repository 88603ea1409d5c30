//! Helpers for tests of this and other crates (feature `testing`): valid stored rows of every type from a
//! seed.

mod rows;

pub use rows::{Random, random_row};
