//! DeepSeek-V2 and V3: multi-head latent attention, dense first layers, shared and routed experts, and a
//! multi-token-prediction layer that stands apart.

use super::fields::Fields;
use super::parts::{gated, outside, routed};
use crate::error::Result;
use crate::{Attention, Class, Experts, FloorError, Format, LayerShape, ModelShape, Shard, Weight};

pub(super) fn read(name: &str, fields: Fields<'_>, format: Format) -> Result<ModelShape> {
    let hidden = fields.count("hidden_size")?;
    let n_layers = fields.layers("num_hidden_layers")?;
    let vocab = fields.count("vocab_size")?;
    let (attention, attention_weights) = latent_attention(fields, hidden, format)?;
    let first_sparse = fields.number("first_k_dense_replace", 0)?;
    let frequency = fields.count_if("moe_layer_freq")?.unwrap_or(1);
    let layer = |sparse: bool| -> Result<LayerShape> {
        let mut weights = attention_weights.clone();
        if sparse {
            weights.extend(experts(fields, hidden, format)?);
        } else {
            weights.extend(gated(Class::Mlp, hidden, fields.count("intermediate_size")?, false, format));
        }
        weights.extend((0..2).map(|_| Weight::vector(hidden, format)));
        Ok(LayerShape { attention, weights })
    };
    let layers = (0..n_layers)
        .map(|index| layer(index >= first_sparse && index.is_multiple_of(frequency)))
        .collect::<Result<_>>()?;
    let predictor = match fields.number("num_nextn_predict_layers", 0)? {
        0 => None,
        1 => {
            let mut predictor = layer(true)?;
            predictor.weights.push(Weight::matrix(
                Class::AttentionWeights,
                hidden,
                2 * hidden,
                format,
                Shard::Replicated,
            ));
            predictor.weights.extend((0..3).map(|_| Weight::vector(hidden, format)));
            Some(predictor)
        }
        more => {
            return Err(FloorError::invalid("num_nextn_predict_layers", format!("`{more}` layers are not understood")));
        }
    };
    Ok(ModelShape {
        name: name.to_owned(),
        hidden_size: hidden,
        vocab_size: vocab,
        context_length: fields.count_if("max_position_embeddings")?,
        layers,
        outside: outside(vocab, hidden, fields.flag("tie_word_embeddings", false)?, 1, format),
        predictor,
        notes: Vec::new(),
    })
}

fn latent_attention(fields: Fields<'_>, hidden: u64, format: Format) -> Result<(Attention, Vec<Weight>)> {
    let n_heads = fields.count("num_attention_heads")?;
    let kv_rank = fields.count("kv_lora_rank")?;
    let rope_dim = fields.count("qk_rope_head_dim")?;
    let nope_dim = fields.count("qk_nope_head_dim")?;
    let value_dim = fields.count("v_head_dim")?;
    if fields.flag("attention_bias", false)? {
        return Err(FloorError::invalid("attention_bias", "`true` is not understood with latent attention"));
    }
    let by_head = Shard::Heads(n_heads);
    let matrix = |rows, columns, shard| Weight::matrix(Class::AttentionWeights, rows, columns, format, shard);
    let query_rows = n_heads * (nope_dim + rope_dim);
    let mut weights = match fields.count_if("q_lora_rank")? {
        None => vec![matrix(query_rows, hidden, by_head)],
        Some(rank) => vec![
            matrix(rank, hidden, Shard::Replicated),
            Weight::vector(rank, format),
            matrix(query_rows, rank, by_head),
        ],
    };
    weights.extend([
        matrix(kv_rank + rope_dim, hidden, Shard::Replicated),
        Weight::vector(kv_rank, format),
        matrix(n_heads * (nope_dim + value_dim), kv_rank, by_head),
        matrix(hidden, n_heads * value_dim, by_head),
    ]);
    Ok((Attention::Latent { n_heads, kv_rank, rope_dim, nope_dim, value_dim }, weights))
}

fn experts(fields: Fields<'_>, hidden: u64, format: Format) -> Result<Vec<Weight>> {
    let total = fields.count("n_routed_experts")?;
    let size = fields.count("moe_intermediate_size")?;
    let experts = Experts { total, active: fields.count("num_experts_per_tok")? };
    let mut weights = routed(hidden, size, experts, false, format)?;
    if fields.text("topk_method")? == Some("noaux_tc") {
        // The correction that balances the experts' load.
        weights.push(Weight::vector(total, Format::F32));
    }
    let shared = fields.number("n_shared_experts", 0)?;
    if shared > 0 {
        weights.extend(gated(Class::SharedExperts, hidden, shared * size, false, format));
    }
    Ok(weights)
}
