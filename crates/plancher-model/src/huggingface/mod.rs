//! Model directories in the Hugging Face layout: `config.json`, safetensors weights,
//! `generation_config.json`, tokenizer and chat template.

mod config;
pub(crate) mod dummy;
mod families;
mod float8;
mod generation;
mod layers;
mod rope;
mod shards;
mod tensors;

use std::path::Path;

use crate::json::{Fields, read_object};
use crate::{ChatTemplate, Model, Result, Tokenizer};

/// Opens the model in `directory`.
///
/// # Errors
/// When a file is missing, malformed or describes what is not supported.
pub(crate) fn open(directory: &Path) -> Result<Model> {
    let path = directory.join("config.json");
    let object = read_object(&path)?;
    let fields = Fields::new(&path, &object);
    let mut described = config::read(&path, &object)?;
    let float8 = float8::read(fields)?;
    let generation = generation::read(directory, fields)?;
    let shards = shards::Shards::open(directory)?;
    let weights = tensors::collect(directory, &mut described, float8.as_ref(), shards)?;
    Ok(Model {
        path: directory.to_owned(),
        config: described.config,
        weights,
        generation,
        tokenizer: Tokenizer::from_directory(directory)?,
        chat_template: ChatTemplate::from_directory(directory)?,
    })
}
