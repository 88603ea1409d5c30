//! GGUF files, versions 2 and 3, single and split: the container, and the step from llama.cpp's names to a
//! [`Model`].
//!
//! [`Gguf::parse`] checks the whole structure of a file before anything uses it and borrows from its bytes, so that
//! reading costs no more memory than the lists of names. The format is that of GGML's `docs/gguf.md`; keys and
//! tensor names are those that llama.cpp's `convert_hf_to_gguf.py` writes.

mod config;
mod container;
mod cursor;
mod ggml_type;
mod metadata;
mod rope;
mod split;
mod tensors;
mod text;

use std::path::Path;

use crate::{Model, Result, Weights};

pub use container::{Gguf, GgufTensor};
pub use ggml_type::GgmlType;
pub use metadata::{GgufMetadata, GgufValue};

/// Opens the model in the GGUF file `path`, with all parts of a split one.
///
/// # Errors
/// When a file is missing, malformed or describes what is not supported.
pub(crate) fn open(path: &Path) -> Result<Model> {
    let files = split::map_parts(path)?;
    let (config, tensors, text) = {
        let parts = split::parse_parts(&files)?;
        let stored = tensors::Stored::index(&files, &parts)?;
        let config = config::read(&parts[0].metadata, &stored)?;
        let tensors = tensors::collect(&config, &stored)?;
        (config, tensors, text::read(&parts[0].metadata)?)
    };
    Ok(Model {
        path: path.to_owned(),
        config,
        weights: Weights::new(files, tensors)?,
        generation: text.generation,
        tokenizer: text.tokenizer,
        chat_template: text.chat_template,
    })
}
