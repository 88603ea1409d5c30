//! The names that tensors have in GGUF files, and the step from stored tensors to roles: every tensor that the
//! configuration calls for is looked up, its type and shape checked, and none may be left over.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::container::{Gguf, GgufTensor};
use super::ggml_type::GgmlType;
use crate::{Architecture, DType, LayerTensor, MappedFile, ModelConfig, ModelError, Result, Scale, Tensor, TensorKey};

/// `(vocab_size, hidden_size)`.
pub(super) const EMBEDDING: &str = "token_embd.weight";
/// `(vocab_size, hidden_size)`; absent when the embedding serves.
pub(super) const HEAD: &str = "output.weight";
/// Divisors of the rotary frequencies.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The tensors of all parts by name.
pub(super) struct Stored<'a> {
    path: &'a Path,
    files: &'a [MappedFile],
    tensors: HashMap<&'a str, (usize, &'a GgufTensor<'a>)>,
}

impl<'a> Stored<'a> {
    pub(super) fn index(files: &'a [MappedFile], parts: &'a [Gguf<'a>]) -> Result<Self> {
        let mut tensors = HashMap::new();
        for (file, part) in parts.iter().enumerate() {
            for tensor in &part.tensors {
                if tensors.insert(tensor.name, (file, tensor)).is_some() {
                    let problem = "is in two parts of the split file";
                    return Err(ModelError::invalid(files[file].path(), tensor.name, problem));
                }
            }
        }
        Ok(Self { path: files[0].path(), files, tensors })
    }

    /// An error about the tensor `name`.
    pub(super) fn invalid(&self, name: &str, problem: impl Into<String>) -> ModelError {
        let file = self.tensors.get(name).map_or(0, |tensor| tensor.0);
        ModelError::invalid(self.files[file].path(), name, problem)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Rows of the matrix `name`.
    pub(super) fn rows(&self, name: &str) -> Result<usize> {
        Ok(self.get(name)?.1.rows())
    }

    fn get(&self, name: &str) -> Result<(usize, &'a GgufTensor<'a>)> {
        let missing = || ModelError::MissingTensor { path: self.path.to_owned(), tensor: name.to_owned() };
        self.tensors.get(name).copied().ok_or_else(missing)
    }

    /// The tensor `name` of `rows × columns` elements.
    fn find(&self, name: &str, rows: usize, columns: usize) -> Result<Tensor> {
        let (file, tensor) = self.get(name)?;
        let GgmlType::Supported(dtype) = tensor.ggml_type else {
            return Err(ModelError::UnsupportedType {
                path: self.files[file].path().to_owned(),
                tensor: name.to_owned(),
                dtype: tensor.ggml_type.to_string(),
            });
        };
        if (tensor.rows(), tensor.columns()) != (rows, columns) {
            let problem = format!(
                "has shape ({}, {}), but the metadata call for ({rows}, {columns})",
                tensor.rows(),
                tensor.columns()
            );
            return Err(self.invalid(name, problem));
        }
        Ok(Tensor { name: name.to_owned(), dtype, rows, columns, file, offset: tensor.offset, scale: Scale::One })
    }

    /// The f32 vector `name` of `length` elements, if it is stored.
    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Option<Vec<f32>>> {
        if !self.contains(name) {
            return Ok(None);
        }
        let tensor = self.find(name, 1, length)?;
        if tensor.dtype != DType::F32 {
            let problem = format!("is stored as {}, expected F32", tensor.dtype);
            return Err(self.invalid(name, problem));
        }
        let bytes = &self.files[tensor.file].bytes()[tensor.offset..][..4 * length];
        let mut values = vec![0.0; length];
        crate::dequantize(DType::F32, bytes, &mut values);
        Ok(Some(values))
    }
}

/// Finds the tensor of every role that `config` has.
pub(super) fn collect(config: &ModelConfig, stored: &Stored<'_>) -> Result<HashMap<TensorKey, Tensor>> {
    let mut collector = Collector { config, stored, tensors: HashMap::new(), used: HashSet::new() };
    collector.used.insert(ROPE_FACTORS.to_owned());
    collector.whole(TensorKey::Embedding, EMBEDDING)?;
    collector.whole(TensorKey::OutputNorm, "output_norm.weight")?;
    collector.whole(TensorKey::Head, if config.tied_embeddings { EMBEDDING } else { HEAD })?;
    for layer in 0..config.layers.len() {
        collector.layer(layer)?;
    }
    // A tensor without a role would change what the model computes if it were understood.
    let mut unused: Vec<&str> = stored.tensors.keys().copied().filter(|&name| !collector.used.contains(name)).collect();
    unused.sort_unstable();
    match unused.first() {
        None => Ok(collector.tensors),
        Some(name) => {
            let problem = format!("has no role in a `{}` model that is supported", config.architecture.name());
            Err(stored.invalid(name, problem))
        }
    }
}

struct Collector<'a> {
    config: &'a ModelConfig,
    stored: &'a Stored<'a>,
    tensors: HashMap<TensorKey, Tensor>,
    used: HashSet<String>,
}

impl Collector<'_> {
    fn whole(&mut self, key: TensorKey, name: &str) -> Result<()> {
        self.parts(&[key], name)
    }

    /// Roles that lie behind each other in the stored tensor `name`: rows of a matrix, elements of a vector.
    fn parts(&mut self, keys: &[TensorKey], name: &str) -> Result<()> {
        let shapes: Vec<(usize, usize)> = keys.iter().map(|&key| self.config.shape(key)).collect();
        let vector = keys[0].is_vector();
        let (rows, columns) = if vector {
            (1, shapes.iter().map(|shape| shape.1).sum())
        } else {
            (shapes.iter().map(|shape| shape.0).sum(), shapes[0].1)
        };
        let mut tensor = self.stored.find(name, rows, columns)?;
        for (&key, (rows, columns)) in keys.iter().zip(shapes) {
            (tensor.rows, tensor.columns) = (rows, columns);
            self.tensors.insert(key, tensor.clone());
            let Some(bytes) = tensor.dtype.row_bytes(columns).and_then(|row| row.checked_mul(rows)) else {
                let problem = format!("is stored as {}, whose blocks do not end with its parts", tensor.dtype);
                return Err(self.stored.invalid(name, problem));
            };
            tensor.offset += bytes;
        }
        self.used.insert(name.to_owned());
        Ok(())
    }

    /// Roles that a layer may lack.
    fn optional(&mut self, keys: &[TensorKey], name: &str) -> Result<()> {
        if self.stored.contains(name) { self.parts(keys, name) } else { Ok(()) }
    }

    fn layer(&mut self, i: usize) -> Result<()> {
        use LayerTensor as L;
        let layer = &self.config.layers[i];
        let key = |tensor| TensorKey::Layer(i, tensor);
        let name = |tail: &str| format!("blk.{i}.{tail}");

        self.whole(key(L::AttentionNorm), &name("attn_norm.weight"))?;
        if self.stored.contains(&name("attn_qkv.weight")) {
            self.parts(&[L::Query, L::Key, L::Value].map(key), &name("attn_qkv.weight"))?;
            self.optional(&[L::QueryBias, L::KeyBias, L::ValueBias].map(key), &name("attn_qkv.bias"))?;
        } else {
            for (weight, bias, tail) in
                [(L::Query, L::QueryBias, "attn_q"), (L::Key, L::KeyBias, "attn_k"), (L::Value, L::ValueBias, "attn_v")]
            {
                self.whole(key(weight), &name(&format!("{tail}.weight")))?;
                let tail = name(&format!("{tail}.bias"));
                if self.config.architecture == Architecture::Qwen2 {
                    self.whole(key(bias), &tail)?;
                } else {
                    self.optional(&[key(bias)], &tail)?;
                }
            }
        }
        if layer.qk_norm {
            self.whole(key(L::QueryNorm), &name("attn_q_norm.weight"))?;
            self.whole(key(L::KeyNorm), &name("attn_k_norm.weight"))?;
        }
        self.whole(key(L::AttentionOutput), &name("attn_output.weight"))?;
        self.optional(&[key(L::AttentionOutputBias)], &name("attn_output.bias"))?;
        if layer.post_norms {
            self.whole(key(L::PostAttentionNorm), &name("post_attention_norm.weight"))?;
            self.whole(key(L::PostFeedForwardNorm), &name("post_ffw_norm.weight"))?;
        }

        self.whole(key(L::FeedForwardNorm), &name("ffn_norm.weight"))?;
        if self.config.architecture == Architecture::Phi3 && !self.stored.contains(&name("ffn_gate.weight")) {
            self.parts(&[L::Gate, L::Up].map(key), &name("ffn_up.weight"))?;
        } else {
            self.whole(key(L::Gate), &name("ffn_gate.weight"))?;
            self.optional(&[key(L::GateBias)], &name("ffn_gate.bias"))?;
            self.whole(key(L::Up), &name("ffn_up.weight"))?;
            self.optional(&[key(L::UpBias)], &name("ffn_up.bias"))?;
        }
        self.whole(key(L::Down), &name("ffn_down.weight"))?;
        self.optional(&[key(L::DownBias)], &name("ffn_down.bias"))
    }
}
