//! The names that tensors have in Hugging Face checkpoints, and the step from stored tensors to roles: every
//! tensor that the configuration calls for is looked up, its type and shape checked.

use std::collections::HashMap;
use std::path::Path;

use crate::safetensors::StoredTensor;
use crate::{DType, LayerTensor, ModelConfig, ModelError, Result, Tensor, TensorKey, Weights};

use super::config::Described;
use super::float8::{self, Float8};
use super::shards::Shards;

/// What may stand before `embed_tokens`: the plain models, and the two spellings of multimodal ones.
pub(super) const PREFIXES: [&str; 3] = ["model.", "language_model.model.", "model.language_model."];

/// Rows of a stored tensor that have a role.
pub(super) struct Source {
    pub(super) key: TensorKey,
    pub(super) name: String,
    first_row: usize,
    /// Rows of the whole stored tensor.
    stored_rows: usize,
}

/// Finds the tensors of `described` among the `shards` of `directory`; unties the head in its configuration
/// when the checkpoint holds a different one.
pub(super) fn collect(
    directory: &Path,
    described: &mut Described,
    float8: Option<&Float8>,
    shards: Shards,
) -> Result<Weights> {
    let finder = Finder { directory, config: &described.config, float8, shards: &shards };
    let prefix = finder.prefix()?;
    let mut tensors = HashMap::new();
    for source in sources(described, prefix) {
        tensors.insert(source.key, finder.find(&source)?);
    }
    let head = head_name(prefix);
    let own_head = if described.config.tied_embeddings && !finder.differs(&head, &embedding_name(prefix)) {
        tensors[&TensorKey::Embedding].clone()
    } else {
        finder.find(&Source {
            key: TensorKey::Head,
            name: head,
            first_row: 0,
            stored_rows: described.config.vocab_size,
        })?
    };
    described.config.tied_embeddings = tensors[&TensorKey::Embedding] == own_head;
    tensors.insert(TensorKey::Head, own_head);
    Weights::new(shards.files, tensors)
}

fn embedding_name(prefix: &str) -> String {
    format!("{prefix}embed_tokens.weight")
}

pub(super) fn head_name(prefix: &str) -> String {
    if prefix == "language_model.model." { "language_model.lm_head.weight" } else { "lm_head.weight" }.to_owned()
}

/// All tensors but the head.
pub(super) fn sources(described: &Described, prefix: &str) -> Vec<Source> {
    let config = &described.config;
    let whole = |key: TensorKey, name: String| Source { key, name, first_row: 0, stored_rows: config.shape(key).0 };
    let mut sources = vec![
        whole(TensorKey::Embedding, embedding_name(prefix)),
        whole(TensorKey::OutputNorm, format!("{prefix}norm.weight")),
    ];
    for (i, layer) in config.layers.iter().enumerate() {
        let mut add = |tensor: LayerTensor, name: &str| {
            sources.push(whole(TensorKey::Layer(i, tensor), format!("{prefix}layers.{i}.{name}")));
        };
        add(LayerTensor::AttentionNorm, "input_layernorm.weight");
        if layer.post_norms {
            add(LayerTensor::PostAttentionNorm, "post_attention_layernorm.weight");
            add(LayerTensor::FeedForwardNorm, "pre_feedforward_layernorm.weight");
            add(LayerTensor::PostFeedForwardNorm, "post_feedforward_layernorm.weight");
        } else {
            add(LayerTensor::FeedForwardNorm, "post_attention_layernorm.weight");
        }
        if layer.qk_norm {
            add(LayerTensor::QueryNorm, "self_attn.q_norm.weight");
            add(LayerTensor::KeyNorm, "self_attn.k_norm.weight");
        }
        if described.query_key_value_bias {
            add(LayerTensor::QueryBias, "self_attn.q_proj.bias");
            add(LayerTensor::KeyBias, "self_attn.k_proj.bias");
            add(LayerTensor::ValueBias, "self_attn.v_proj.bias");
        }
        if described.attention_output_bias {
            add(LayerTensor::AttentionOutputBias, "self_attn.o_proj.bias");
        }
        if described.mlp_bias {
            add(LayerTensor::GateBias, "mlp.gate_proj.bias");
            add(LayerTensor::UpBias, "mlp.up_proj.bias");
            add(LayerTensor::DownBias, "mlp.down_proj.bias");
        }
        add(LayerTensor::AttentionOutput, "self_attn.o_proj.weight");
        add(LayerTensor::Down, "mlp.down_proj.weight");
        if !described.fused {
            add(LayerTensor::Query, "self_attn.q_proj.weight");
            add(LayerTensor::Key, "self_attn.k_proj.weight");
            add(LayerTensor::Value, "self_attn.v_proj.weight");
            add(LayerTensor::Gate, "mlp.gate_proj.weight");
            add(LayerTensor::Up, "mlp.up_proj.weight");
            continue;
        }
        for (parts, name) in [
            (&[LayerTensor::Query, LayerTensor::Key, LayerTensor::Value][..], "self_attn.qkv_proj.weight"),
            (&[LayerTensor::Gate, LayerTensor::Up], "mlp.gate_up_proj.weight"),
        ] {
            let rows = |tensor: LayerTensor| config.shape(TensorKey::Layer(i, tensor)).0;
            let stored_rows = parts.iter().map(|&part| rows(part)).sum();
            let mut first_row = 0;
            for &part in parts {
                let name = format!("{prefix}layers.{i}.{name}");
                sources.push(Source { key: TensorKey::Layer(i, part), name, first_row, stored_rows });
                first_row += rows(part);
            }
        }
    }
    sources
}

/// Looks tensors up among the shards.
struct Finder<'a> {
    directory: &'a Path,
    config: &'a ModelConfig,
    float8: Option<&'a Float8>,
    shards: &'a Shards,
}

impl Finder<'_> {
    fn prefix(&self) -> Result<&'static str> {
        let found = PREFIXES.into_iter().find(|prefix| self.shards.tensors.contains_key(&embedding_name(prefix)));
        found.ok_or_else(|| self.missing(&embedding_name(PREFIXES[0])))
    }

    fn missing(&self, name: &str) -> ModelError {
        ModelError::MissingTensor { path: self.directory.to_owned(), tensor: name.to_owned() }
    }

    /// Whether `name` is stored with other content than `other`. Checkpoints whose configuration wrongly says
    /// that the head is tied are read as transformers reads them: by what is stored.
    fn differs(&self, name: &str, other: &str) -> bool {
        let (Some(a), Some(b)) = (self.shards.tensors.get(name), self.shards.tensors.get(other)) else { return false };
        let (stored_a, stored_b) = (&a.1, &b.1);
        stored_a.dtype != stored_b.dtype
            || stored_a.shape != stored_b.shape
            || self.shards.bytes(a) != self.shards.bytes(b)
    }

    fn find(&self, source: &Source) -> Result<Tensor> {
        let name = &source.name;
        let located = self.shards.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let (file, stored) = (located.0, &located.1);
        let path = self.shards.path(file);
        let dtype = float_type(path, name, stored)?;
        let (rows, columns) = self.config.shape(source.key);
        let expected = if source.key.is_vector() { vec![columns] } else { vec![source.stored_rows, columns] };
        if stored.shape != expected {
            let problem = format!("has shape {:?}, but `config.json` makes it {expected:?}", stored.shape);
            return Err(ModelError::invalid(path, name, problem));
        }
        let unconfigured = Float8::default();
        let float8 = match self.float8 {
            // Factors that are there are not ignored only because the configuration does not mention them.
            None if float8::has_factors(self.shards, name) => Some(&unconfigured),
            configured => configured,
        };
        let scale = match float8 {
            Some(float8) if dtype == DType::F8_E4M3 => {
                let range = source.first_row..source.first_row + rows;
                float8.scale(path, self.shards, name, range, source.stored_rows, columns)?
            }
            _ => crate::Scale::One,
        };
        // The header was checked against shape and type, so a row has this many bytes.
        let row_bytes = stored.bytes / source.stored_rows.max(1);
        let offset = stored.offset + if source.key.is_vector() { 0 } else { source.first_row * row_bytes };
        Ok(Tensor { name: name.clone(), dtype, rows, columns, file, offset, scale })
    }
}

/// The type of a stored tensor, if it is one that can be read.
pub(super) fn float_type(path: &Path, name: &str, stored: &StoredTensor) -> Result<DType> {
    Ok(match stored.dtype.as_str() {
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "F8_E4M3" => DType::F8_E4M3,
        other => {
            return Err(ModelError::UnsupportedType {
                path: path.to_owned(),
                tensor: name.to_owned(),
                dtype: other.to_owned(),
            });
        }
    })
}
