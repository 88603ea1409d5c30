//! The keys under `general.architecture` to [`ModelConfig`], with llama.cpp's defaults where a key is absent and
//! its constants where the format has no key.

use super::metadata::GgufMetadata;
use super::rope::Ropes;
use super::tensors::{EMBEDDING, HEAD, Stored};
use crate::{Activation, Architecture, FeedForward, LayerConfig, ModelConfig, ModelError, Result, limits};

/// The keys of the architecture: `{name}.{key}`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a> {
    metadata: &'a GgufMetadata<'a>,
    name: &'a str,
}

impl Keys<'_> {
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    pub(super) fn invalid(&self, key: &str, problem: impl Into<String>) -> ModelError {
        self.metadata.invalid(&self.key(key), problem)
    }

    pub(super) fn size(&self, key: &str, maximum: usize) -> Result<Option<usize>> {
        self.metadata.size(&self.key(key), maximum)
    }

    fn required_size(&self, key: &str, maximum: usize) -> Result<usize> {
        self.size(key, maximum)?.ok_or_else(|| self.invalid(key, "is missing"))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.metadata.number(&self.key(key))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.metadata.text(&self.key(key))
    }

    /// A size for every layer: one for all, or an array with one each.
    fn per_layer(&self, key: &str, n_layers: usize, maximum: usize) -> Result<Option<Vec<usize>>> {
        let full = self.key(key);
        if !self.metadata.is_array(&full) {
            return Ok(self.size(key, maximum)?.map(|size| vec![size; n_layers]));
        }
        let values = self.metadata.integers(&full)?.unwrap_or_default();
        if values.len() != n_layers {
            let problem = format!("has {} entries, but `{}` is {n_layers}", values.len(), self.key("block_count"));
            return Err(self.invalid(key, problem));
        }
        // A negative number becomes one that is refused.
        let size = |n: i32| limits::size(self.metadata.path(), &full, i64::from(n).cast_unsigned(), maximum);
        values.into_iter().map(size).collect::<Result<_>>().map(Some)
    }

    /// Refuses a file in which `key` has a value that would change the computation in a way that is not supported.
    fn refuse(&self, key: &str, what: &str) -> Result<()> {
        match self.number(key)? {
            Some(value) if value != 0.0 => Err(self.invalid(key, format!("is {value}, but {what} is not supported"))),
            _ => Ok(()),
        }
    }
}

/// The architecture that `general.architecture` names. Mistral's files say `llama`.
fn architecture<'a>(metadata: &GgufMetadata<'a>) -> Result<(Architecture, &'a str)> {
    let Some(name) = metadata.text("general.architecture")? else {
        return Err(metadata.invalid("general.architecture", "is missing"));
    };
    let architecture = match name {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        "gemma3" => Architecture::Gemma3,
        "smollm3" => Architecture::SmolLm3,
        "phi3" => Architecture::Phi3,
        _ => {
            let name = super::metadata::shown(name.as_bytes());
            return Err(ModelError::UnsupportedArchitecture { path: metadata.path().to_owned(), name });
        }
    };
    Ok((architecture, name))
}

/// Reads the configuration; some of it is in which tensors there are.
pub(super) fn read(metadata: &GgufMetadata<'_>, stored: &Stored<'_>) -> Result<ModelConfig> {
    let (architecture, name) = architecture(metadata)?;
    let keys = Keys { metadata, name };
    refuse_unsupported(keys)?;
    let n_layers = keys.required_size("block_count", limits::LAYERS)?;
    let hidden_size = keys.required_size("embedding_length", limits::WIDTH)?;
    let context_length = keys.required_size("context_length", limits::CONTEXT)?;
    let required = |key: &str, maximum: usize| {
        keys.per_layer(key, n_layers, maximum)?.ok_or_else(|| keys.invalid(key, "is missing"))
    };
    let feed_forward = required("feed_forward_length", limits::WIDTH)?;
    let n_heads = required("attention.head_count", limits::HEADS)?;
    let n_kv_heads =
        keys.per_layer("attention.head_count_kv", n_layers, limits::HEADS)?.unwrap_or_else(|| n_heads.clone());
    for (&n_heads, &n_kv_heads) in n_heads.iter().zip(&n_kv_heads) {
        if !n_heads.is_multiple_of(n_kv_heads) {
            let problem =
                format!("is {n_kv_heads}, which does not divide `{}` {n_heads}", keys.key("attention.head_count"));
            return Err(keys.invalid("attention.head_count_kv", problem));
        }
    }
    let head_dim = head_dim(keys, hidden_size, n_heads[0])?;
    let Some(norm_eps) = keys.number("attention.layer_norm_rms_epsilon")?.filter(|eps| *eps > 0.0) else {
        return Err(keys.invalid("attention.layer_norm_rms_epsilon", "is missing or not a positive number"));
    };
    let windows = windows(keys, architecture, n_layers)?;
    let ropes = Ropes::read(keys, architecture, head_dim, context_length, stored)?;
    let gemma = architecture == Architecture::Gemma3;
    let attention_scale = match n_layers {
        // The 27B model alone scales by the width it would have without `attention.key_length`.
        62 if gemma => (hidden_size / n_heads[0]) as f32,
        _ => head_dim as f32,
    }
    .sqrt()
    .recip();
    let activation = if gemma { Activation::GeluTanh } else { Activation::Silu };
    let layer = |i: usize| LayerConfig {
        n_heads: n_heads[i],
        n_kv_heads: n_kv_heads[i],
        head_dim,
        window: windows[i],
        rope: (architecture != Architecture::SmolLm3 || !(i + 1).is_multiple_of(4))
            .then(|| ropes.index(windows[i].is_some())),
        attention_scale,
        qk_norm: matches!(architecture, Architecture::Qwen3 | Architecture::Gemma3),
        post_norms: gemma,
        feed_forward: FeedForward::Dense { size: feed_forward[i], activation },
    };
    let layers: Vec<LayerConfig> = (0..n_layers).map(layer).collect();
    let mistral = architecture == Architecture::Llama && windows.iter().any(Option::is_some);
    Ok(ModelConfig {
        architecture: if mistral { Architecture::Mistral } else { architecture },
        vocab_size: vocab_size(metadata, stored)?,
        hidden_size,
        context_length,
        norm_eps: norm_eps as f32,
        // The files hold Gemma's norm weights with 1 added.
        norm_offset: 0.0,
        embedding_scale: if gemma { (hidden_size as f32).sqrt() } else { 1.0 },
        tied_embeddings: !stored.contains(HEAD),
        layers,
        ropes: ropes.tables,
    })
}

/// Keys that change the forward pass in ways that no supported model uses.
fn refuse_unsupported(keys: Keys<'_>) -> Result<()> {
    keys.refuse("expert_count", "mixture of experts")?;
    keys.refuse("attn_logit_softcapping", "soft capping")?;
    keys.refuse("final_logit_softcapping", "soft capping")?;
    match keys.metadata.flag(&keys.key("attention.causal"))? {
        Some(false) => Err(keys.invalid("attention.causal", "is false, but only causal attention is supported")),
        _ => Ok(()),
    }
}

fn head_dim(keys: Keys<'_>, hidden_size: usize, n_heads: usize) -> Result<usize> {
    let key = keys.size("attention.key_length", limits::HEAD_DIM)?;
    let value = keys.size("attention.value_length", limits::HEAD_DIM)?;
    let default = (hidden_size / n_heads).clamp(1, limits::HEAD_DIM);
    let (key, value) = (key.unwrap_or(default), value.unwrap_or(default));
    if key != value {
        let problem = format!("is {value}, which differs from the length of keys, {key}; that is not supported");
        return Err(keys.invalid("attention.value_length", problem));
    }
    Ok(key)
}

/// The window of every layer. Gemma has it in all but every sixth layer; llama.cpp writes no pattern for it.
fn windows(keys: Keys<'_>, architecture: Architecture, n_layers: usize) -> Result<Vec<Option<usize>>> {
    // Zero means none.
    let key = "attention.sliding_window";
    let window = match keys.metadata.unsigned(&keys.key(key))? {
        None | Some(0) => return Ok(vec![None; n_layers]),
        Some(_) => keys.size(key, limits::CONTEXT)?,
    };
    let pattern = "attention.sliding_window_pattern";
    let sliding: Vec<bool> = if keys.metadata.is_array(&keys.key(pattern)) {
        let flags = keys.metadata.integers(&keys.key(pattern))?.unwrap_or_default();
        if flags.len() < n_layers {
            let problem = format!("has {} entries, but `{}` is {n_layers}", flags.len(), keys.key("block_count"));
            return Err(keys.invalid(pattern, problem));
        }
        flags[..n_layers].iter().map(|&flag| flag != 0).collect()
    } else {
        let default = if architecture == Architecture::Gemma3 { Some(6) } else { None };
        match keys.size(pattern, limits::LAYERS)?.or(default) {
            Some(period) => (1..=n_layers).map(|i| !i.is_multiple_of(period)).collect(),
            None => vec![true; n_layers],
        }
    };
    Ok(sliding.into_iter().map(|sliding| window.filter(|_| sliding)).collect())
}

/// Rows of the embedding; the tokenizer may have fewer tokens, not more.
fn vocab_size(metadata: &GgufMetadata<'_>, stored: &Stored<'_>) -> Result<usize> {
    let rows = limits::size(metadata.path(), EMBEDDING, stored.rows(EMBEDDING)? as u64, limits::VOCABULARY)?;
    match metadata.array_length("tokenizer.ggml.tokens") {
        Some(tokens) if tokens > rows => {
            let problem = format!("has {tokens} tokens, but `{EMBEDDING}` has {rows} rows");
            Err(metadata.invalid("tokenizer.ggml.tokens", problem))
        }
        _ => Ok(rows),
    }
}
