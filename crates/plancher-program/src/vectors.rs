//! A model's norms and biases as f32, by layer: everything that is not a matrix.

use plancher_model::{LayerTensor, ModelConfig, TensorKey, Weights};

use crate::ProgramError;

/// The vectors of one layer. Norm weights have [`ModelConfig::norm_offset`] added.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of `LayerTensor`; shapes are given there")]
pub struct LayerVectors {
    pub attention_norm: Vec<f32>,
    pub query_bias: Option<Vec<f32>>,
    pub key_bias: Option<Vec<f32>>,
    pub value_bias: Option<Vec<f32>>,
    pub query_norm: Option<Vec<f32>>,
    pub key_norm: Option<Vec<f32>>,
    pub attention_output_bias: Option<Vec<f32>>,
    pub post_attention_norm: Option<Vec<f32>>,
    pub feed_forward_norm: Vec<f32>,
    pub gate_bias: Option<Vec<f32>>,
    pub up_bias: Option<Vec<f32>>,
    pub down_bias: Option<Vec<f32>>,
    pub post_feed_forward_norm: Option<Vec<f32>>,
}

/// The vectors of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    /// `(hidden_size)`, [`ModelConfig::norm_offset`] added.
    pub output_norm: Vec<f32>,
    /// By layer.
    pub layers: Vec<LayerVectors>,
}

impl Vectors {
    /// Reads them. Norms that a layer's configuration does not ask for are left out even if they are stored.
    ///
    /// # Errors
    /// When a norm that the configuration asks for is missing.
    pub fn new(config: &ModelConfig, weights: &Weights) -> Result<Self, ProgramError> {
        let norm = |key| {
            let mut norm = weights.vector(key).ok_or(ProgramError::MissingTensor { key })?;
            for weight in &mut norm {
                *weight += config.norm_offset;
            }
            Ok::<_, ProgramError>(norm)
        };
        let layer = |(index, layer_config): (usize, &plancher_model::LayerConfig)| {
            let norm = |tensor| norm(TensorKey::Layer(index, tensor));
            let optional = |present: bool, tensor| present.then(|| norm(tensor)).transpose();
            let bias = |tensor| weights.vector(TensorKey::Layer(index, tensor));
            Ok(LayerVectors {
                attention_norm: norm(LayerTensor::AttentionNorm)?,
                query_bias: bias(LayerTensor::QueryBias),
                key_bias: bias(LayerTensor::KeyBias),
                value_bias: bias(LayerTensor::ValueBias),
                query_norm: optional(layer_config.qk_norm, LayerTensor::QueryNorm)?,
                key_norm: optional(layer_config.qk_norm, LayerTensor::KeyNorm)?,
                attention_output_bias: bias(LayerTensor::AttentionOutputBias),
                post_attention_norm: optional(layer_config.post_norms, LayerTensor::PostAttentionNorm)?,
                feed_forward_norm: norm(LayerTensor::FeedForwardNorm)?,
                gate_bias: bias(LayerTensor::GateBias),
                up_bias: bias(LayerTensor::UpBias),
                down_bias: bias(LayerTensor::DownBias),
                post_feed_forward_norm: optional(layer_config.post_norms, LayerTensor::PostFeedForwardNorm)?,
            })
        };
        Ok(Self {
            output_norm: norm(TensorKey::OutputNorm)?,
            layers: config.layers.iter().enumerate().map(layer).collect::<Result<_, ProgramError>>()?,
        })
    }

    /// The norm before a branch: as [`crate::Operation::AddNormalize`] names it.
    ///
    /// # Panics
    /// When `layer` is more than the number of layers.
    #[must_use]
    pub fn norm(&self, layer: usize, feed_forward: bool) -> &[f32] {
        match self.layers.get(layer) {
            Some(vectors) if feed_forward => &vectors.feed_forward_norm,
            Some(vectors) => &vectors.attention_norm,
            None if layer == self.layers.len() => &self.output_norm,
            None => panic!("layer {layer} of {}", self.layers.len()),
        }
    }

    /// The post-norm of the branch whose result the residual takes up there, if it has one.
    #[must_use]
    pub fn post_norm(&self, layer: usize, feed_forward: bool) -> Option<&[f32]> {
        if feed_forward {
            self.layers.get(layer)?.post_attention_norm.as_deref()
        } else {
            self.layers.get(layer.checked_sub(1)?)?.post_feed_forward_norm.as_deref()
        }
    }

    /// The bias of a matrix product, if it has one.
    #[must_use]
    pub fn bias(&self, matrix: TensorKey) -> Option<&[f32]> {
        let TensorKey::Layer(layer, tensor) = matrix else { return None };
        let vectors = self.layers.get(layer)?;
        let bias = match tensor {
            LayerTensor::Query => &vectors.query_bias,
            LayerTensor::Key => &vectors.key_bias,
            LayerTensor::Value => &vectors.value_bias,
            LayerTensor::AttentionOutput => &vectors.attention_output_bias,
            LayerTensor::Gate => &vectors.gate_bias,
            LayerTensor::Up => &vectors.up_bias,
            LayerTensor::Down => &vectors.down_bias,
            _ => return None,
        };
        bias.as_deref()
    }
}
