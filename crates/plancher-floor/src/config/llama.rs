//! Dense decoders of the Llama kind: RMS norms, gated feed-forward, grouped-query attention. What Qwen, Gemma,
//! Phi and the others change is said here by name.

use super::fields::Fields;
use super::parts::{Heads, gated, outside};
use super::windows;
use crate::error::Result;
use crate::{Class, FloorError, Format, LayerShape, ModelShape, Weight};

/// The head size of architectures whose configuration class has one of its own for a file that gives none
/// (transformers' `configuration_*.py`); the others divide the hidden size by the heads.
fn usual_head_dim(architecture: &str) -> Option<u64> {
    match architecture {
        "gemma" | "gemma2" | "gemma3" | "qwen3_next" => Some(256),
        "qwen3" => Some(128),
        "gpt_oss" => Some(64),
        _ => None,
    }
}

/// The head sizes of a configuration; where no `head_dim` is given, the architecture's own, else `hidden / heads`.
pub(super) fn heads(architecture: &str, fields: Fields<'_>, hidden: u64) -> Result<Heads> {
    let n_heads = fields.count("num_attention_heads")?;
    let head_dim = match fields.count_if("head_dim")?.or(usual_head_dim(architecture)) {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(n_heads) => hidden / n_heads,
        None => {
            return Err(FloorError::invalid(
                "num_attention_heads",
                format!("`{n_heads}` does not divide the hidden size `{hidden}`, and there is no `head_dim`"),
            ));
        }
    };
    let bias = fields.flag("attention_bias", architecture == "gpt_oss")?;
    let heads = Heads {
        n_heads,
        n_kv_heads: fields.count_if("num_key_value_heads")?.unwrap_or(n_heads),
        head_dim,
        input_bias: match architecture {
            "qwen2" | "qwen2_moe" => fields.flag("qkv_bias", true)?,
            _ => bias,
        },
        output_bias: bias && !matches!(architecture, "qwen2" | "qwen2_moe"),
        qk_norm: matches!(architecture, "qwen3" | "qwen3_moe" | "qwen3_next" | "gemma3"),
        gated: architecture == "qwen3_next",
    };
    heads.check()?;
    Ok(heads)
}

/// The first layer with a window where a Qwen configuration with windows does not say it.
pub(super) const USUAL_WINDOW_LAYERS: u64 = 28;

/// The window of each layer.
fn layer_windows(architecture: &str, fields: Fields<'_>, n_layers: u64) -> Result<Vec<Option<u64>>> {
    let window = fields.count_if("sliding_window")?;
    match architecture {
        "mistral" | "phi3" => Ok(vec![window; n_layers as usize]),
        "smollm3" if fields.flag("use_sliding_window", false)? && fields.list("layer_types")?.is_none() => {
            Err(FloorError::invalid("layer_types", "is missing, and says which layers of smollm3 slide"))
        }
        "qwen2" | "qwen3" | "smollm3" => {
            let used = fields.flag("use_sliding_window", false)?;
            let first = fields.number("max_window_layers", USUAL_WINDOW_LAYERS)?;
            windows(fields, n_layers, window, |layer| used && layer >= first)
        }
        "gemma2" => windows(fields, n_layers, window, |layer| layer % 2 == 0),
        "gemma3" => {
            let pattern = fields.count_if("sliding_window_pattern")?;
            let pattern = pattern.or(fields.count_if("_sliding_window_pattern")?).unwrap_or(6);
            windows(fields, n_layers, window, |layer| !(layer + 1).is_multiple_of(pattern))
        }
        _ => Ok(vec![None; n_layers as usize]),
    }
}

pub(super) fn read(name: &str, architecture: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    let hidden = fields.count("hidden_size")?;
    let n_layers = fields.layers("num_hidden_layers")?;
    let vocab = fields.count("vocab_size")?;
    let size = fields.count("intermediate_size")?;
    let heads = heads(architecture, fields, hidden)?;
    let mlp_bias = fields.flag("mlp_bias", false)?;
    let tied_by_default = matches!(architecture, "gemma" | "gemma2" | "gemma3" | "smollm3");
    let tied = fields.flag("tie_word_embeddings", tied_by_default)?;
    let norms = if matches!(architecture, "gemma2" | "gemma3") { 4 } else { 2 };
    let layers = layer_windows(architecture, fields, n_layers)?
        .into_iter()
        .map(|window| {
            let mut weights = heads.weights(hidden, format);
            weights.extend(gated(Class::Mlp, hidden, size, mlp_bias, format));
            weights.extend((0..norms).map(|_| Weight::vector(hidden, format)));
            LayerShape { attention: heads.attention(window), weights }
        })
        .collect();
    Ok(ModelShape {
        name: name.to_owned(),
        hidden_size: hidden,
        vocab_size: vocab,
        context_length: fields.count_if("max_position_embeddings")?,
        layers,
        outside: outside(vocab, hidden, tied, 1, format),
        predictor: None,
        notes: Vec::new(),
    })
}
