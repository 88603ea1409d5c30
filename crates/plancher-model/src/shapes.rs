//! The shape that each tensor role must have, from the configuration: what readers of every file format
//! check stored shapes against.

use crate::{LayerTensor, ModelConfig, TensorKey};

impl TensorKey {
    /// Whether the role is a norm's weight or a bias, stored with one dimension.
    #[must_use]
    pub fn is_vector(self) -> bool {
        !matches!(
            self,
            Self::Embedding
                | Self::Head
                | Self::Layer(
                    _,
                    LayerTensor::Query
                        | LayerTensor::Key
                        | LayerTensor::Value
                        | LayerTensor::AttentionOutput
                        | LayerTensor::Gate
                        | LayerTensor::Up
                        | LayerTensor::Down
                )
        )
    }
}

impl ModelConfig {
    /// `(rows, columns)` of the tensor in role `key`; vectors are `(1, n)`.
    ///
    /// # Panics
    /// When `key` names a layer that the model does not have.
    #[must_use]
    pub fn shape(&self, key: TensorKey) -> (usize, usize) {
        let hidden = self.hidden_size;
        let (layer, tensor) = match key {
            TensorKey::Embedding | TensorKey::Head => return (self.vocab_size, hidden),
            TensorKey::OutputNorm => return (1, hidden),
            TensorKey::Layer(layer, tensor) => (&self.layers[layer], tensor),
        };
        match tensor {
            LayerTensor::AttentionNorm
            | LayerTensor::PostAttentionNorm
            | LayerTensor::FeedForwardNorm
            | LayerTensor::PostFeedForwardNorm
            | LayerTensor::AttentionOutputBias
            | LayerTensor::DownBias => (1, hidden),
            LayerTensor::Query => (layer.query_rows(), hidden),
            LayerTensor::Key | LayerTensor::Value => (layer.kv_rows(), hidden),
            LayerTensor::QueryBias => (1, layer.query_rows()),
            LayerTensor::KeyBias | LayerTensor::ValueBias => (1, layer.kv_rows()),
            LayerTensor::QueryNorm | LayerTensor::KeyNorm => (1, layer.head_dim),
            LayerTensor::AttentionOutput => (hidden, layer.query_rows()),
            LayerTensor::Gate | LayerTensor::Up => (layer.feed_forward_rows(), hidden),
            LayerTensor::GateBias | LayerTensor::UpBias => (1, layer.feed_forward_rows()),
            LayerTensor::Down => (hidden, layer.feed_forward_rows()),
        }
    }
}
