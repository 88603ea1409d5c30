//! Helpers for tests of this and other crates (feature `testing`): valid stored rows of every type from a seed, a
//! writer of GGUF files, a converter from model directories to GGUF, and the bodies of the fuzz targets. They
//! panic on misuse.

mod check_chat;
mod convert;
mod fuzz;
mod gguf_writer;
mod rows;

pub use check_chat::check_chat_template;
pub use convert::convert_to_gguf;
pub use fuzz::{check_gguf, check_safetensors_header};
pub use gguf_writer::GgufWriter;
pub use rows::{Random, encode_row, random_row};
