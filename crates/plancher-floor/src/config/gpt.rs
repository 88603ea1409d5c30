//! Decoders of the GPT kind: multi-head attention, layer norms with bias, feed-forward without a gate.

use super::fields::Fields;
use super::parts::{Heads, outside, plain};
use crate::error::Result;
use crate::{Class, FloorError, Format, LayerShape, ModelShape, Shard, Weight};

/// What the three spell differently.
struct Gpt {
    hidden: u64,
    n_layers: u64,
    n_heads: u64,
    size: u64,
    vocab: u64,
    /// Rows of the learned position table; 0 for rotary positions.
    positions: u64,
    context_length: Option<u64>,
    tied: bool,
    bias: bool,
    final_norm: bool,
}

impl Gpt {
    fn shape(self, name: &str, format: Format) -> Result<ModelShape> {
        let Self { hidden, n_layers, n_heads, size, vocab, bias, .. } = self;
        if !hidden.is_multiple_of(n_heads) {
            return Err(FloorError::invalid(
                "attention heads",
                format!("`{n_heads}` do not divide the hidden size `{hidden}`"),
            ));
        }
        let head_dim = hidden / n_heads;
        let heads = Heads {
            n_heads,
            n_kv_heads: n_heads,
            head_dim,
            input_bias: bias,
            output_bias: bias,
            qk_norm: false,
            gated: false,
        };
        let layer = || {
            let mut weights = heads.weights(hidden, format);
            weights.extend(plain(hidden, size, bias, format));
            // Two layer norms, each with weight and bias.
            weights.extend((0..4).map(|_| Weight::vector(hidden, format)));
            LayerShape { attention: heads.attention(None), weights }
        };
        let mut outside = outside(vocab, hidden, self.tied, if self.final_norm { 2 } else { 0 }, format);
        if self.positions > 0 {
            outside.push(Weight::matrix(Class::Embedding, self.positions, hidden, format, Shard::Replicated));
        }
        Ok(ModelShape {
            name: name.to_owned(),
            hidden_size: hidden,
            vocab_size: vocab,
            context_length: self.context_length,
            layers: (0..n_layers).map(|_| layer()).collect(),
            outside,
            predictor: None,
            notes: Vec::new(),
        })
    }
}

pub(super) fn read_opt(name: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    let hidden = fields.count("hidden_size")?;
    if let Some(width) = fields.count_if("word_embed_proj_dim")?
        && width != hidden
    {
        return Err(FloorError::invalid("word_embed_proj_dim", format!("`{width}` beside hidden size `{hidden}`")));
    }
    let context = fields.count("max_position_embeddings")?;
    Gpt {
        hidden,
        n_layers: fields.layers("num_hidden_layers")?,
        n_heads: fields.count("num_attention_heads")?,
        size: fields.count("ffn_dim")?,
        vocab: fields.count("vocab_size")?,
        // Two rows are reserved in front.
        positions: context + 2,
        context_length: Some(context),
        tied: fields.flag("tie_word_embeddings", true)?,
        bias: fields.flag("enable_bias", true)?,
        final_norm: fields.flag("do_layer_norm_before", true)? && !fields.flag("_remove_final_layer_norm", false)?,
    }
    .shape(name, format)
}

pub(super) fn read_gpt2(name: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    let hidden = fields.count("n_embd")?;
    let positions = fields.count_of(&["n_positions", "n_ctx"])?;
    Gpt {
        hidden,
        n_layers: fields.layers("n_layer")?,
        n_heads: fields.count("n_head")?,
        size: fields.count_if("n_inner")?.unwrap_or(4 * hidden),
        vocab: fields.count("vocab_size")?,
        positions,
        context_length: Some(positions),
        tied: fields.flag("tie_word_embeddings", true)?,
        bias: true,
        final_norm: true,
    }
    .shape(name, format)
}

pub(super) fn read_gpt_neox(name: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    Gpt {
        hidden: fields.count("hidden_size")?,
        n_layers: fields.layers("num_hidden_layers")?,
        n_heads: fields.count("num_attention_heads")?,
        size: fields.count("intermediate_size")?,
        vocab: fields.count("vocab_size")?,
        positions: 0,
        context_length: fields.count_if("max_position_embeddings")?,
        tied: fields.flag("tie_word_embeddings", false)?,
        bias: fields.flag("attention_bias", true)?,
        final_norm: true,
    }
    .shape(name, format)
}
