//! The parts that layers are made of, as weights: projections, feed-forward parts, experts, norms.

use crate::error::Result;
use crate::{Attention, Class, Experts, FloorError, Format, Shard, Weight};

/// The sizes of a layer's heads, with what its tensors have besides.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fact of an architecture")]
#[expect(clippy::struct_field_names, reason = "`n_heads` is the field's word")]
pub(super) struct Heads {
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    /// Biases on query, key and value.
    pub(super) input_bias: bool,
    /// A bias on the output projection.
    pub(super) output_bias: bool,
    /// RMS norms over query and key heads.
    pub(super) qk_norm: bool,
    /// The query projection also makes a gate of the same size (Qwen3-Next).
    pub(super) gated: bool,
}

impl Heads {
    pub(super) fn check(&self) -> Result<()> {
        if self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Ok(());
        }
        Err(FloorError::invalid(
            "num_key_value_heads",
            format!("`{}` does not divide the `{}` attention heads", self.n_kv_heads, self.n_heads),
        ))
    }

    pub(super) fn attention(&self, window: Option<u64>) -> Attention {
        Attention::Heads {
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            value_dim: self.head_dim,
            window,
        }
    }

    pub(super) fn weights(&self, hidden: u64, format: Format) -> Vec<Weight> {
        let (query, kv) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        let (by_head, by_kv_head) = (Shard::Heads(self.n_heads), Shard::KvHeads(self.n_kv_heads));
        let matrix = |rows, columns, shard| Weight::matrix(Class::AttentionWeights, rows, columns, format, shard);
        let query_rows = if self.gated { 2 * query } else { query };
        let mut weights = vec![
            matrix(query_rows, hidden, by_head),
            matrix(kv, hidden, by_kv_head),
            matrix(kv, hidden, by_kv_head),
            matrix(hidden, query, by_head),
        ];
        if self.input_bias {
            weights.push(sharded_vector(query, format, by_head));
            weights.push(sharded_vector(kv, format, by_kv_head));
            weights.push(sharded_vector(kv, format, by_kv_head));
        }
        if self.output_bias {
            weights.push(Weight::vector(hidden, format));
        }
        if self.qk_norm {
            weights.push(Weight::vector(self.head_dim, format));
            weights.push(Weight::vector(self.head_dim, format));
        }
        weights
    }
}

pub(super) const fn sharded_vector(length: u64, format: Format, shard: Shard) -> Weight {
    Weight::matrix(Class::Norms, 1, length, format, shard)
}

/// Gate, up and down.
pub(super) fn gated(class: Class, hidden: u64, size: u64, bias: bool, format: Format) -> Vec<Weight> {
    let shard = Shard::Features(size);
    let mut weights = vec![
        Weight::matrix(class, size, hidden, format, shard),
        Weight::matrix(class, size, hidden, format, shard),
        Weight::matrix(class, hidden, size, format, shard),
    ];
    if bias {
        weights.push(sharded_vector(size, format, shard));
        weights.push(sharded_vector(size, format, shard));
        weights.push(Weight::vector(hidden, format));
    }
    weights
}

/// Up and down, without a gate.
pub(super) fn plain(hidden: u64, size: u64, bias: bool, format: Format) -> Vec<Weight> {
    let shard = Shard::Features(size);
    let mut weights = vec![
        Weight::matrix(Class::Mlp, size, hidden, format, shard),
        Weight::matrix(Class::Mlp, hidden, size, format, shard),
    ];
    if bias {
        weights.push(sharded_vector(size, format, shard));
        weights.push(Weight::vector(hidden, format));
    }
    weights
}

/// The router and the routed experts.
pub(super) fn routed(hidden: u64, size: u64, experts: Experts, bias: bool, format: Format) -> Result<Vec<Weight>> {
    if experts.active > experts.total {
        return Err(FloorError::invalid(
            "num_experts_per_tok",
            format!("`{}` is more than the `{}` experts", experts.active, experts.total),
        ));
    }
    let mut weights = vec![Weight::matrix(Class::Router, experts.total, hidden, format, Shard::Replicated)];
    if bias {
        weights.push(Weight::vector(experts.total, format));
    }
    weights.extend(
        gated(Class::RoutedExperts, hidden, size, bias, format).into_iter().map(|weight| weight.of_experts(experts)),
    );
    Ok(weights)
}

/// Embedding, final norm and head. Tied embeddings are the head alone.
pub(super) fn outside(vocab: u64, hidden: u64, tied: bool, norm_vectors: u64, format: Format) -> Vec<Weight> {
    let table = |class| Weight::matrix(class, vocab, hidden, format, Shard::Vocabulary(vocab));
    let mut weights: Vec<Weight> = (0..norm_vectors).map(|_| Weight::vector(hidden, format)).collect();
    weights.push(table(Class::Head));
    if !tied {
        weights.push(table(Class::Embedding));
    }
    weights
}
