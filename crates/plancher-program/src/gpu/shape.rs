//! What of a model the kernel is compiled for: one shape for all layers. What may differ from layer to layer (window,
//! attention scale, whether there is a rotary embedding) is data that the kernel reads.

use std::collections::BTreeSet;

use plancher_model::{Activation, FeedForward, LayerConfig, ModelConfig, RopeLayout};

use super::PlanError;

/// The largest `hidden_size`.
const MOST_HIDDEN: usize = 1 << 16;
/// The largest number of rows of any matrix.
const MOST_ROWS: usize = 1 << 24;
/// The most layers: an instruction has 16 bits for them, and the head's is one more than the last.
const MOST_LAYERS: usize = (1 << 16) - 1;
/// The largest head that a program can express.
const MOST_HEAD_DIM: usize = 256;
/// The largest head that the kernel takes: a page of it is one stage.
const MOST_KERNEL_HEAD_DIM: usize = 128;
/// The most query heads that may share a key and value head in the kernel.
const MOST_KERNEL_GROUP: usize = 8;

/// Rotary tables of which a worker keeps the rows of the position.
const MOST_ROTARY_TABLES: usize = 2;

/// The shape of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Decoder layers, at least 1.
    pub layers: usize,
    /// Elements of the residual stream, a multiple of 8.
    pub hidden: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head, a multiple of 8, at most 256.
    pub head_dim: usize,
    /// Rows of gate, and of up; a multiple of 8.
    pub feed_forward: usize,
    /// Rows of embedding and head.
    pub vocab: usize,
    /// The activation on gate.
    pub activation: Activation,
    /// RMS norm over each query and key head.
    pub qk_norm: bool,
    /// RMS norms on the outputs of attention and feed-forward.
    pub post_norms: bool,
    /// Pairs that the rotary embedding turns, in the layers that have one; 0 when none has.
    pub rotary_pairs: usize,
    /// How the pairs lie in a head.
    pub rope_layout: RopeLayout,
}

impl Shape {
    /// The one shape of all layers of a model.
    ///
    /// # Errors
    /// When layers differ, or a size is one that the kernel does not take.
    pub fn new(config: &ModelConfig) -> Result<Self, PlanError> {
        let size = |field, value, expected| PlanError::Size { field, value, expected };
        let Some(first) = config.layers.first().filter(|_| config.layers.len() <= MOST_LAYERS) else {
            return Err(size("num_hidden_layers", config.layers.len(), "1 to 65535"));
        };
        equal(config, first)?;
        let check = |field, value: usize, multiple, limit, expected| {
            let fits = (1..=limit).contains(&value) && value.is_multiple_of(multiple);
            if fits { Ok(value) } else { Err(size(field, value, expected)) }
        };
        let hidden = check("hidden_size", config.hidden_size, 8, MOST_HIDDEN, "multiples of 8 up to 65536")?;
        let head_dim = check("head_dim", first.head_dim, 8, MOST_HEAD_DIM, "multiples of 8 up to 256")?;
        let (feed_forward, activation) = dense(0, first)?;
        let feed_forward = check("intermediate_size", feed_forward, 8, MOST_ROWS, "multiples of 8 up to 16777216")?;
        let vocab = check("vocab_size", config.vocab_size, 1, MOST_ROWS, "1 to 16777216")?;
        let most_heads = MOST_ROWS / 4 / head_dim;
        let expected = "at least 1, and at most 4194304 rows of all heads";
        let n_heads = check("num_attention_heads", first.n_heads, 1, most_heads, expected)?;
        let n_kv_heads = first.n_kv_heads;
        if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
            return Err(size("num_key_value_heads", n_kv_heads, "divisors of `num_attention_heads`"));
        }
        let (rotary_pairs, rope_layout) = rope(config)?;
        if rotary_pairs > head_dim / 2 {
            return Err(size("rotary_dim", rotary_pairs.saturating_mul(2), "at most `head_dim`"));
        }
        Ok(Self {
            layers: config.layers.len(),
            hidden,
            n_heads,
            n_kv_heads,
            head_dim,
            feed_forward,
            vocab,
            activation,
            qk_norm: first.qk_norm,
            post_norms: first.post_norms,
            rotary_pairs,
            rope_layout,
        })
    }

    /// Refuses what a program can express and the kernel does not do.
    pub(super) fn check_kernel(&self) -> Result<(), PlanError> {
        let size = |field, value, expected| Err(PlanError::Size { field, value, expected });
        if self.head_dim > MOST_KERNEL_HEAD_DIM {
            return size("head_dim", self.head_dim, "multiples of 8 up to 128");
        }
        if self.group() > MOST_KERNEL_GROUP {
            let expected = "at least an eighth of `num_attention_heads`";
            return size("num_key_value_heads", self.n_kv_heads, expected);
        }
        if !self.rotary_pairs.is_multiple_of(2) {
            return size("rotary_dim", 2 * self.rotary_pairs, "multiples of 4");
        }
        if self.post_norms { Err(PlanError::PostNorms) } else { Ok(()) }
    }

    /// Rows of the query projection.
    #[must_use]
    pub fn query_rows(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Rows of the key projection, and of the value projection.
    #[must_use]
    pub fn kv_rows(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Rows of query, key and value, stacked in this order.
    #[must_use]
    pub fn query_key_value_rows(&self) -> usize {
        self.query_rows() + 2 * self.kv_rows()
    }

    /// Query heads that share a key and value head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }
}

/// Rows of gate, and of up, and the activation between them.
fn dense(layer: usize, config: &LayerConfig) -> Result<(usize, Activation), PlanError> {
    match config.feed_forward {
        FeedForward::Dense { size, activation } => Ok((size, activation)),
        _ => Err(PlanError::FeedForward { layer }),
    }
}

/// Whether every layer has what layer 0 has.
fn equal(config: &ModelConfig, first: &LayerConfig) -> Result<(), PlanError> {
    let (first_size, first_activation) = dense(0, first)?;
    for (layer, other) in config.layers.iter().enumerate() {
        let (size, activation) = dense(layer, other)?;
        let fields = [
            ("num_attention_heads", other.n_heads, first.n_heads),
            ("num_key_value_heads", other.n_kv_heads, first.n_kv_heads),
            ("head_dim", other.head_dim, first.head_dim),
            ("intermediate_size", size, first_size),
        ];
        let switches = [("qk_norm", other.qk_norm, first.qk_norm), ("post_norms", other.post_norms, first.post_norms)];
        let unequal = |field, value: &dyn std::fmt::Display, first: &dyn std::fmt::Display| PlanError::Unequal {
            layer,
            field,
            value: value.to_string(),
            first: first.to_string(),
        };
        if let Some((field, value, first)) = fields.iter().find(|(_, value, first)| value != first) {
            return Err(unequal(field, value, first));
        }
        if let Some((field, value, first)) = switches.iter().find(|(_, value, first)| value != first) {
            return Err(unequal(field, value, first));
        }
        if activation != first_activation {
            return Err(unequal("hidden_act", &format!("{activation:?}"), &format!("{first_activation:?}")));
        }
    }
    Ok(())
}

/// The pairs and layout that all layers with a rotary embedding share.
fn rope(config: &ModelConfig) -> Result<(usize, RopeLayout), PlanError> {
    let mut shared: Option<(usize, RopeLayout)> = None;
    let tables: BTreeSet<usize> = config.layers.iter().filter_map(|layer| layer.rope).collect();
    for (layer, layer_config) in config.layers.iter().enumerate() {
        let Some(index) = layer_config.rope else { continue };
        let Some(rope) = config.ropes.get(index) else {
            let expected = "a rotary table that the model has";
            return Err(PlanError::Size { field: "rope", value: index, expected });
        };
        let (pairs, layout) = (rope.inverse_frequencies.len(), rope.layout);
        let (first_pairs, first_layout) = *shared.get_or_insert((pairs, layout));
        if (pairs, layout) != (first_pairs, first_layout) {
            return Err(PlanError::Unequal {
                layer,
                field: "rope",
                value: format!("{pairs} pairs, {layout:?}"),
                first: format!("{first_pairs} pairs, {first_layout:?}"),
            });
        }
    }
    if tables.len() > MOST_ROTARY_TABLES {
        return Err(PlanError::Size { field: "ropes", value: tables.len(), expected: "at most 2 rotary tables" });
    }
    Ok(shared.unwrap_or((0, RopeLayout::Halves)))
}
