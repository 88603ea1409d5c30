//! Helpers for tests of this and other crates (feature `testing`): valid stored rows of every type from a seed, a
//! writer of GGUF files, and a converter from model directories to GGUF. They panic on misuse.

mod convert;
mod gguf_writer;
mod rows;

pub use convert::convert_to_gguf;
pub use gguf_writer::GgufWriter;
pub use rows::{Random, encode_row, random_row};
