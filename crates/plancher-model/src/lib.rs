//! What a model is: its configuration, its weights (safetensors, GGUF), its tokenizer and chat template,
//! and where models are found.
//!
//! The entry point is [`Model::open`]: it reads a directory or a GGUF file and returns a normalised
//! [`ModelConfig`] and [`Weights`], the same whatever the file format was. Nothing downstream knows
//! where a tensor came from.

mod chat;
mod config;
mod dequantize;
mod dtype;
mod dummy;
mod error;
mod facts;
mod gguf;
mod huggingface;
mod json;
mod limits;
mod model;
mod presets;
mod rope;
mod rope_scaling;
mod safetensors;
mod shapes;
mod source;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
mod tokenizer;

pub use chat::{ChatMessage, ChatOptions, ChatTemplate};
pub use config::{Activation, Architecture, FeedForward, LayerConfig, ModelConfig};
pub use dequantize::{dequantize, f8_e4m3_to_f32, k_scales_and_minimums, q3_k_scales};
pub use dtype::DType;
pub use dummy::{DummyFill, DummyTensor};
pub use error::ModelError;
pub use facts::{ModelFacts, TensorFacts};
pub use gguf::{GgmlType, Gguf, GgufMetadata, GgufTensor, GgufValue};
pub use model::{GenerationDefaults, Model};
pub use presets::shape_names;
pub use rope::{Rope, RopeLayout};
pub use safetensors::{StoredTensor, read_safetensors_header};
pub use source::{ModelName, PRESETS, Preset, PullEvent, Pulling, RepositoryName, SourceSettings, pull, resolve};
pub use tensor::{LayerTensor, MappedFile, Scale, Tensor, TensorKey, TensorView, Weights};
pub use tokenizer::{DecodeStream, GgufVocabulary, Tokenizer};

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, ModelError>;
