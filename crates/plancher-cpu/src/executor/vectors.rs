//! The model's small vectors as f32: the weights of its norms.

use plancher_model::{LayerTensor, ModelConfig, TensorKey, Weights};

/// Norm weights, with the model's offset added.
pub(super) struct Norms {
    pub(super) layers: Vec<LayerNorms>,
    pub(super) output: Vec<f32>,
}

/// Norm weights of one layer; those that it does not have are empty.
pub(super) struct LayerNorms {
    pub(super) attention: Vec<f32>,
    pub(super) feed_forward: Vec<f32>,
    pub(super) post_attention: Vec<f32>,
    pub(super) post_feed_forward: Vec<f32>,
    pub(super) query: Vec<f32>,
    pub(super) key: Vec<f32>,
}

impl Norms {
    /// Reads them; lowering has checked that those which the configuration needs are there.
    pub(super) fn new(config: &ModelConfig, weights: &Weights) -> Self {
        let read = |key| {
            let mut vector = weights.vector(key).unwrap_or_default();
            for weight in &mut vector {
                *weight += config.norm_offset;
            }
            vector
        };
        let layers = config.layers.iter().enumerate().map(|(index, layer)| {
            let get = |tensor| read(TensorKey::Layer(index, tensor));
            let when = |wanted, tensor| if wanted { get(tensor) } else { Vec::new() };
            LayerNorms {
                attention: get(LayerTensor::AttentionNorm),
                feed_forward: get(LayerTensor::FeedForwardNorm),
                post_attention: when(layer.post_norms, LayerTensor::PostAttentionNorm),
                post_feed_forward: when(layer.post_norms, LayerTensor::PostFeedForwardNorm),
                query: when(layer.qk_norm, LayerTensor::QueryNorm),
                key: when(layer.qk_norm, LayerTensor::KeyNorm),
            }
        });
        Self { layers: layers.collect(), output: read(TensorKey::OutputNorm) }
    }
}
