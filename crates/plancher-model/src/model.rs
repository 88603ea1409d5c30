//! A model as a whole, opened from a directory or a GGUF file.

use std::path::{Path, PathBuf};

use crate::{ChatTemplate, DummyFill, ModelConfig, Result, Tokenizer, Weights};

/// What the model's own files say about how to generate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Tokens that end a generation.
    pub end_tokens: Vec<u32>,
    /// The token that begins a text, when the tokenizer adds one.
    pub begin_token: Option<u32>,
    /// `temperature` of `generation_config.json`.
    pub temperature: Option<f32>,
    /// `top_k`.
    pub top_k: Option<usize>,
    /// `top_p`.
    pub top_p: Option<f32>,
    /// `min_p`.
    pub min_p: Option<f32>,
    /// `repetition_penalty`.
    pub repetition_penalty: Option<f32>,
}

/// A model: configuration, weights, and what the files say about text.
#[derive(Debug)]
pub struct Model {
    /// Where it was opened.
    pub path: PathBuf,
    /// The normalised configuration.
    pub config: ModelConfig,
    /// The stored tensors.
    pub weights: Weights,
    /// End tokens and sampling defaults.
    pub generation: GenerationDefaults,
    /// Text to tokens and back; nothing in a directory without `tokenizer.json`.
    pub tokenizer: Option<Tokenizer>,
    /// How a conversation becomes a prompt; nothing when the files have no chat template.
    pub chat_template: Option<ChatTemplate>,
}

impl Model {
    /// Opens a model directory (Hugging Face layout, or with no more than one GGUF file in it), a GGUF file, or the first
    /// file of a split GGUF.
    ///
    /// # Errors
    /// When anything in the files is missing, malformed or not supported; the message names file and field.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return crate::gguf::open(path);
        }
        match crate::gguf::in_directory(path)? {
            Some(file) => crate::gguf::open(&file),
            None => crate::huggingface::open(path),
        }
    }

    /// The model that a `config.json` describes, with random weights (see [`DummyFill`]): `name` is such a file, a
    /// directory that holds one, or one of [`crate::shape_names`].
    ///
    /// # Errors
    /// When there is no such thing, or it describes what is not supported.
    pub fn dummy(name: &str, fill: DummyFill) -> Result<Self> {
        let path = Path::new(name);
        if path.exists() { crate::huggingface::dummy::open_file(path, fill) } else { crate::presets::open(name, fill) }
    }
}
