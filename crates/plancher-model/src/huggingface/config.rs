//! `config.json` to [`ModelConfig`]. What differs between architectures is data in [`super::families`]; fields
//! that would change the computation in a way that is not supported are refused by name.

use std::path::Path;

use serde_json::{Map, Value};

use crate::json::Fields;
use crate::{Activation, Architecture, FeedForward, LayerConfig, ModelConfig, ModelError, Result, limits};

use super::families::{FAMILIES, Family};
use super::layers;
use super::rope::RopeContext;

/// A configuration, and what only the reading of its tensors needs.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a checkpoint")]
pub(super) struct Described {
    pub(super) config: ModelConfig,
    /// Query, key and value have biases.
    pub(super) query_key_value_bias: bool,
    /// The attention output has a bias.
    pub(super) attention_output_bias: bool,
    /// Gate, up and down have biases.
    pub(super) mlp_bias: bool,
    /// Query, key and value are one tensor, gate and up another.
    pub(super) fused: bool,
}

/// Reads the top-level object of `config.json`.
pub(super) fn read(path: &Path, object: &Map<String, Value>) -> Result<Described> {
    let outer = Fields::new(path, object);
    let family = family(outer)?;
    let inner = outer.object("text_config")?;
    let config = match inner {
        Some(inner) if family.model_type == "gemma3" => inner,
        _ => outer,
    };
    let required = |name: &str, default: Option<usize>, maximum| match (config.size(name, maximum)?, default) {
        (Some(size), _) | (None, Some(size)) => Ok(size),
        (None, None) => config.required_size(name, maximum),
    };
    let hidden_size = required("hidden_size", None, limits::WIDTH)?;
    let feed_forward_size = required("intermediate_size", None, limits::WIDTH)?;
    let n_layers = required("num_hidden_layers", None, limits::LAYERS)?;
    let n_heads = required("num_attention_heads", family.n_heads, limits::HEADS)?;
    let n_kv_heads = match config.size("num_key_value_heads", limits::HEADS)? {
        // Only an absent field has the class's default: `null` means as many as query heads.
        None if config.contains("num_key_value_heads") => n_heads,
        None => family.n_kv_heads.unwrap_or(n_heads),
        Some(n) => n,
    };
    if !n_heads.is_multiple_of(n_kv_heads) {
        let problem = format!("is {n_kv_heads}, which does not divide `num_attention_heads` {n_heads}");
        return Err(config.invalid("num_key_value_heads", problem));
    }
    let head_dim = match config.size("head_dim", limits::HEAD_DIM)?.or(family.head_dim) {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(n_heads) => {
            limits::size(path, "hidden_size / num_attention_heads", (hidden_size / n_heads) as u64, limits::HEAD_DIM)?
        }
        None => {
            let problem = format!("is {n_heads}, which does not divide `hidden_size` {hidden_size}");
            return Err(config.invalid("num_attention_heads", problem));
        }
    };
    let context_length = required("max_position_embeddings", Some(family.context_length), limits::CONTEXT)?;
    let tied_embeddings = match config.flag("tie_word_embeddings")? {
        None => outer.flag("tie_word_embeddings")?.unwrap_or(family.tied_embeddings),
        Some(tied) => tied,
    };
    let gemma = family.architecture == Architecture::Gemma3;
    if gemma {
        refuse_unsupported_gemma(config)?;
    }
    let attention_scale = match config.positive("query_pre_attn_scalar")?.filter(|_| gemma) {
        Some(scalar) => 1.0 / scalar.sqrt(),
        None if gemma => 1.0 / 256.0_f64.sqrt(),
        None => 1.0 / (head_dim as f64).sqrt(),
    };
    let ropes = RopeContext { config, family, head_dim, context_length }.read()?;
    let pattern = layers::read(config, family, n_layers)?;
    let activation = activation(config, family.architecture)?;
    let layer = |(&kind, &rotary): (&layers::LayerKind, &bool)| LayerConfig {
        n_heads,
        n_kv_heads,
        head_dim,
        window: pattern.window.filter(|_| kind == layers::LayerKind::Sliding),
        rope: rotary.then(|| ropes.index(kind)),
        attention_scale: attention_scale as f32,
        qk_norm: family.qk_norm,
        post_norms: gemma,
        feed_forward: FeedForward::Dense { size: feed_forward_size, activation },
    };
    let attention_bias = family.attention_bias && config.flag("attention_bias")?.unwrap_or(false);
    Ok(Described {
        query_key_value_bias: family.query_key_value_bias || attention_bias,
        attention_output_bias: attention_bias,
        mlp_bias: family.mlp_bias && config.flag("mlp_bias")?.unwrap_or(false),
        fused: family.fused,
        config: ModelConfig {
            architecture: family.architecture,
            vocab_size: required("vocab_size", family.vocab_size, limits::VOCABULARY)?,
            hidden_size,
            context_length,
            norm_eps: config.positive("rms_norm_eps")?.unwrap_or(family.norm_eps) as f32,
            norm_offset: if gemma { 1.0 } else { 0.0 },
            embedding_scale: if gemma { half::bf16::from_f64((hidden_size as f64).sqrt()).to_f32() } else { 1.0 },
            tied_embeddings,
            layers: pattern.kinds.iter().zip(&pattern.rotary).map(layer).collect(),
            ropes: ropes.tables,
        },
    })
}

/// The family that `model_type` and `architectures` name.
fn family(config: Fields<'_>) -> Result<&'static Family> {
    let unsupported =
        |name: &str| ModelError::UnsupportedArchitecture { path: config.path().to_owned(), name: name.to_owned() };
    let class =
        match config.list("architectures")? {
            None => None,
            Some([first]) => Some(first.as_str().ok_or_else(|| {
                config.invalid("architectures", format!("is [{first}], expected the name of one class"))
            })?),
            Some(list) => {
                return Err(config.invalid("architectures", format!("names {} classes, expected one", list.len())));
            }
        };
    let model_type = config.text("model_type")?;
    let family = match (model_type, class) {
        (Some(name), _) => FAMILIES.iter().find(|family| family.model_type == name).ok_or_else(|| unsupported(name))?,
        (None, Some(name)) => FAMILIES.iter().find(|family| family.class == name).ok_or_else(|| unsupported(name))?,
        (None, None) => return Err(config.invalid("model_type", "is missing, and so is `architectures`")),
    };
    match class {
        // The same weights with another head (a classifier, an embedder) are another model.
        Some(name) if !FAMILIES.iter().any(|f| f.architecture == family.architecture && f.class == name) => {
            Err(unsupported(name))
        }
        _ => Ok(family),
    }
}

fn activation(config: Fields<'_>, architecture: Architecture) -> Result<Activation> {
    let gemma = architecture == Architecture::Gemma3;
    let field = if gemma { "hidden_activation" } else { "hidden_act" };
    match config.text(field)? {
        None if gemma => Ok(Activation::GeluTanh),
        None | Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => {
            let problem = format!("is `{other}`, which is not supported (supported: silu, gelu_pytorch_tanh)");
            Err(config.invalid(field, problem))
        }
    }
}

/// Fields of Gemma that change the forward pass in ways that no Gemma 3 model uses.
fn refuse_unsupported_gemma(config: Fields<'_>) -> Result<()> {
    for name in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(value) = config.value(name) {
            return Err(config.invalid(name, format!("is {value}, but soft capping is not supported")));
        }
    }
    if config.flag("use_bidirectional_attention")?.unwrap_or(false) {
        let problem = "is true, but only causal attention is supported";
        return Err(config.invalid("use_bidirectional_attention", problem));
    }
    Ok(())
}
