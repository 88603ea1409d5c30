//! Decoders with routed experts and grouped-query attention: Mixtral, the Qwen ones, gpt-oss.

use serde_json::Value;

use super::fields::Fields;
use super::llama::{USUAL_WINDOW_LAYERS, heads};
use super::parts::{gated, outside, routed, sharded_vector};
use super::windows;
use crate::error::Result;
use crate::{Attention, Class, Experts, FloorError, Format, LayerShape, ModelShape, Shard, Weight};

pub(super) fn read(name: &str, architecture: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    let hidden = fields.count("hidden_size")?;
    let n_layers = fields.layers("num_hidden_layers")?;
    let vocab = fields.count("vocab_size")?;
    let heads = heads(architecture, fields, hidden)?;
    let window = fields.count_if("sliding_window")?;
    let windows = match architecture {
        "mixtral" => vec![window; n_layers as usize],
        "gpt_oss" => windows(fields, n_layers, window, |layer| layer % 2 == 0)?,
        _ => {
            let used = fields.flag("use_sliding_window", false)?;
            let first = fields.number("max_window_layers", USUAL_WINDOW_LAYERS)?;
            windows(fields, n_layers, window, |layer| used && layer >= first)?
        }
    };
    let mut layers = Vec::with_capacity(windows.len());
    for (layer, window) in (0..n_layers).zip(windows) {
        let (attention, mut weights) = if is_linear(architecture, fields, layer)? {
            delta_net(fields, hidden, format)?
        } else {
            (heads.attention(window), heads.weights(hidden, format))
        };
        if architecture == "gpt_oss" {
            // One sink logit a head.
            weights.push(sharded_vector(heads.n_heads, format, Shard::Heads(heads.n_heads)));
        }
        weights.extend(feed_forward(architecture, fields, layer, hidden, format)?);
        weights.extend((0..2).map(|_| Weight::vector(hidden, format)));
        layers.push(LayerShape { attention, weights });
    }
    Ok(ModelShape {
        name: name.to_owned(),
        hidden_size: hidden,
        vocab_size: vocab,
        context_length: fields.count_if("max_position_embeddings")?,
        layers,
        outside: outside(vocab, hidden, fields.flag("tie_word_embeddings", false)?, 1, format),
        predictor: None,
        notes: Vec::new(),
    })
}

fn feed_forward(
    architecture: &str,
    fields: Fields<'_>,
    layer: u64,
    hidden: u64,
    format: Format,
) -> Result<Vec<Weight>> {
    let active = fields.count_of(&["num_experts_per_tok", "experts_per_token"])?;
    if matches!(architecture, "mixtral" | "gpt_oss") {
        let experts = Experts { total: fields.count("num_local_experts")?, active };
        return routed(hidden, fields.count("intermediate_size")?, experts, architecture == "gpt_oss", format);
    }
    let step = fields.count_if("decoder_sparse_step")?.unwrap_or(1);
    let dense = fields.list("mlp_only_layers")?.unwrap_or(&[]);
    if dense.iter().any(|index| index.as_u64() == Some(layer)) || !(layer + 1).is_multiple_of(step) {
        return Ok(gated(Class::Mlp, hidden, fields.count("intermediate_size")?, false, format));
    }
    let experts = Experts { total: fields.count("num_experts")?, active };
    let mut weights = routed(hidden, fields.count("moe_intermediate_size")?, experts, false, format)?;
    if architecture != "qwen3_moe" {
        let size = fields.count("shared_expert_intermediate_size")?;
        weights.extend(gated(Class::SharedExperts, hidden, size, false, format));
        // The gate on the shared expert's output.
        weights.push(Weight::matrix(Class::Router, 1, hidden, format, Shard::Replicated));
    }
    Ok(weights)
}

/// Whether a layer of Qwen3-Next is linear attention: by `layer_types`, else all but every fourth.
fn is_linear(architecture: &str, fields: Fields<'_>, layer: u64) -> Result<bool> {
    if architecture != "qwen3_next" {
        return Ok(false);
    }
    if let Some(types) = fields.list("layer_types")? {
        return Ok(types.get(layer as usize).and_then(Value::as_str) == Some("linear_attention"));
    }
    let interval = fields.count_if("full_attention_interval")?.unwrap_or(4);
    Ok(!(layer + 1).is_multiple_of(interval))
}

/// A gated delta-rule layer: its weights, and a state of `heads × key × value` elements and the convolution's past.
fn delta_net(fields: Fields<'_>, hidden: u64, format: Format) -> Result<(Attention, Vec<Weight>)> {
    let n_key_heads = fields.count("linear_num_key_heads")?;
    let n_heads = fields.count("linear_num_value_heads")?;
    let key_dim = fields.count("linear_key_head_dim")?;
    let value_dim = fields.count("linear_value_head_dim")?;
    let kernel = fields.count("linear_conv_kernel_dim")?;
    let overflow = || FloorError::Overflow("linear attention state");
    let keys = n_key_heads.checked_mul(key_dim).ok_or_else(overflow)?;
    let values = n_heads.checked_mul(value_dim).ok_or_else(overflow)?;
    let channels = keys.checked_mul(2).and_then(|keys| keys.checked_add(values)).ok_or_else(overflow)?;
    let recurrent = values.checked_mul(key_dim).ok_or_else(overflow)?;
    let state = channels.checked_mul(kernel).and_then(|past| past.checked_add(recurrent)).ok_or_else(overflow)?;
    let by_head = Shard::Heads(n_heads);
    let matrix = |rows, columns| Weight::matrix(Class::AttentionWeights, rows, columns, format, by_head);
    let weights = vec![
        // Query, key, value and gate; then the two scalars a head.
        matrix(channels.checked_add(values).ok_or_else(overflow)?, hidden),
        matrix(2 * n_heads, hidden),
        matrix(channels, kernel),
        matrix(hidden, values),
        sharded_vector(2 * n_heads, format, by_head),
        Weight::vector(value_dim, format),
    ];
    // Per state element: decay, read by key, rank-one update, read by query; 7 FLOP.
    let flops_per_token = recurrent.checked_mul(7).ok_or_else(overflow)?;
    Ok((Attention::Recurrent { n_heads, state_elements: state, flops_per_token }, weights))
}
