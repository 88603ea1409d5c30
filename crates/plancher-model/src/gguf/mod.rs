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

use std::path::{Path, PathBuf};

use crate::{Model, ModelError, Result, Weights};

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

/// The model's GGUF file, or the first of a split one, in a directory that has no `config.json`; nothing when it has no
/// GGUF file either.
///
/// # Errors
/// When there are several models; the message lists them.
pub(crate) fn in_directory(directory: &Path) -> Result<Option<PathBuf>> {
    /// Models that an error lists.
    const LISTED: usize = 10;
    if directory.join("config.json").exists() {
        return Ok(None);
    }
    let entries = std::fs::read_dir(directory).map_err(|e| ModelError::io(directory, e))?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut models: Vec<String> = names.filter(|name| is_model(name)).collect();
    models.sort();
    match models.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(directory.join(only))),
        several => {
            let mut list = several.iter().take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            if several.len() > LISTED {
                list.push_str(", …");
            }
            let looked = format!("it has no `config.json` but {} GGUF files: {list}", several.len());
            let hint = "name one of them".to_owned();
            Err(ModelError::NotFound { name: directory.display().to_string(), looked, hint })
        }
    }
}

/// Whether a file's name is that of a GGUF model: of parts only the first, and not the image projector beside one.
fn is_model(name: &str) -> bool {
    let is_gguf = Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let later_part = crate::source::is_shard(name) && !name.contains("-00001-of-");
    is_gguf && !later_part && !name.starts_with("mmproj")
}
