//! The kernels and products of each layer.

use plancher_model::FeedForward;

use super::attention::{Attention, Heads};
use super::elementwise::{Activate, Append, Embed, Normalize, NormalizeShape};
use crate::{CudaError, DeviceBuffer, DeviceWeights, LayerWeights, Loader, Output, Product, Result, padded};

/// A branch's result: added to the residual by the product itself, or left for the next norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    bias: Option<&'a DeviceBuffer<f32>>,
    post_norm: Option<&'a DeviceBuffer<f32>>,
}

impl<'a> Branch<'a> {
    pub(crate) fn attention(weights: &'a LayerWeights) -> Self {
        Self { bias: weights.attention_output_bias.as_ref(), post_norm: weights.post_attention_norm.as_ref() }
    }

    pub(crate) fn feed_forward(weights: &'a LayerWeights) -> Self {
        Self { bias: weights.down_bias.as_ref(), post_norm: weights.post_feed_forward_norm.as_ref() }
    }

    /// Nothing comes before.
    pub(crate) const NONE: Self = Self { bias: None, post_norm: None };

    pub(crate) fn bias(&self) -> Option<&'a DeviceBuffer<f32>> {
        self.bias
    }

    pub(crate) fn post_norm(&self) -> Option<&'a DeviceBuffer<f32>> {
        self.post_norm
    }

    /// What the next norm is compiled for, with rows of `hidden` numbers.
    pub(crate) fn next_norm(&self, hidden: usize) -> NormalizeShape {
        NormalizeShape {
            hidden,
            out_stride: padded(hidden),
            delta: self.is_left(),
            bias: self.bias.is_some(),
            post_norm: self.post_norm.is_some(),
        }
    }

    /// Whether the next norm has to add it.
    pub(crate) fn is_left(&self) -> bool {
        self.bias.is_some() || self.post_norm.is_some()
    }

    pub(crate) fn output(&self) -> Output {
        if self.is_left() { Output::F32 } else { Output::AddF32 }
    }
}

#[derive(Debug)]
pub(super) struct LayerPlan {
    pub(super) attention_norm: Normalize,
    pub(super) query_key_value: Product,
    pub(super) append: Append,
    pub(super) attention: Attention,
    pub(super) attention_output: Product,
    pub(super) feed_forward_norm: Normalize,
    pub(super) gate_up: Product,
    pub(super) activate: Activate,
    pub(super) down: Product,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) embed: Embed,
    pub(super) layers: Vec<LayerPlan>,
    pub(super) output_norm: Normalize,
    pub(super) head: Product,
    /// Some branch is left for a norm to add.
    pub(super) has_delta: bool,
}

impl Plan {
    pub(super) fn new(loader: &mut Loader, weights: &DeviceWeights) -> Result<Self> {
        let (config, element, hidden) = (&weights.config, weights.element, weights.config.hidden_size);
        let normalize =
            |loader: &mut Loader, before: &Branch<'_>| Normalize::new(loader, element, before.next_norm(hidden));
        let product = |rows: usize, columns: usize, out_stride: usize, output| Product {
            element,
            rows,
            columns: padded(columns),
            out_stride,
            output,
        };
        let mut before = Branch::NONE;
        let mut has_delta = false;
        let mut layers = Vec::with_capacity(config.layers.len());
        for (layer, own) in config.layers.iter().zip(&weights.layers) {
            let FeedForward::Dense { size, activation } = layer.feed_forward else {
                return Err(CudaError::Unsupported("the GPU's kernels take dense feed-forward layers only".to_owned()));
            };
            let query_stride = own.query_key_value.rows;
            let heads = Heads {
                query: layer.n_heads,
                key_value: layer.n_kv_heads,
                head_dim: layer.head_dim,
                window: layer.window,
                query_stride,
                out_stride: own.attention_output.stride,
            };
            let rope = layer.rope.and_then(|rope| weights.ropes.get(rope));
            let (attention_branch, feed_forward_branch) = (Branch::attention(own), Branch::feed_forward(own));
            has_delta |= attention_branch.is_left() || feed_forward_branch.is_left();
            layers.push(LayerPlan {
                attention_norm: normalize(loader, &before)?,
                query_key_value: product(query_stride, hidden, query_stride, Output::Elements),
                append: Append::new(loader, element, &heads, rope, own, config.norm_eps)?,
                attention: Attention::new(loader, element, heads, layer.attention_scale)?,
                attention_output: product(hidden, layer.query_rows(), hidden, attention_branch.output()),
                feed_forward_norm: normalize(loader, &attention_branch)?,
                gate_up: product(2 * size, hidden, 2 * size, Output::Elements),
                activate: Activate::new(loader, element, size, activation, own)?,
                down: product(hidden, size, hidden, feed_forward_branch.output()),
            });
            before = feed_forward_branch;
        }
        let vocab = config.vocab_size;
        Ok(Self {
            embed: Embed::new(loader, element, hidden, weights.embedding.stride, config.embedding_scale)?,
            layers,
            output_norm: normalize(loader, &before)?,
            head: product(vocab, hidden, vocab.next_multiple_of(4), Output::F32),
            has_delta,
        })
    }
}
