//! The normalised description of a model: everything that lowering needs to know, whatever file it came
//! from. An architecture is data here, not code: what differs between Llama, Qwen or Gemma is spelled out
//! per layer, so that there is one lowering and one reference executor.

use crate::rope::Rope;

/// The architectures that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the architectures' own")]
pub enum Architecture {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Gemma3,
    SmolLm3,
    Phi3,
}

impl Architecture {
    /// The supported architectures as error messages list them.
    pub const LIST: &'static str = "llama, mistral, qwen2, qwen3, gemma3, smollm3, phi3";

    /// The name that files and messages use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
            Self::SmolLm3 => "smollm3",
            Self::Phi3 => "phi3",
        }
    }
}

/// The function between the two halves of a gated feed-forward layer: `activation(gate) * up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU, as PyTorch's `gelu(approximate="tanh")`.
    GeluTanh,
}

/// What follows attention in a layer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FeedForward {
    /// Gate, up and down projections: `down(activation(gate(x)) * up(x))`.
    Dense {
        /// Rows of gate and of up, columns of down.
        size: usize,
        /// The activation on gate.
        activation: Activation,
    },
}

/// One decoder layer. Biases and query/key norms are present when their tensors are
/// (see [`crate::LayerTensor`]).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Attend to the last `window` positions only (the current one included).
    pub window: Option<usize>,
    /// Index into [`ModelConfig::ropes`]; `None` for a layer without rotary embedding.
    pub rope: Option<usize>,
    /// Factor on `q · k` before the softmax, usually `1 / sqrt(head_dim)`.
    pub attention_scale: f32,
    /// RMS norm over each query and key head, before rotary embedding.
    pub qk_norm: bool,
    /// RMS norms on the outputs of attention and feed-forward, before the residual addition (Gemma).
    pub post_norms: bool,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

impl LayerConfig {
    /// Rows of the query projection: `n_heads * head_dim`.
    #[must_use]
    pub fn query_rows(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Rows of the key projection, and of the value projection: `n_kv_heads * head_dim`.
    #[must_use]
    pub fn kv_rows(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Rows of gate, and of up.
    #[must_use]
    pub fn feed_forward_rows(&self) -> usize {
        let FeedForward::Dense { size, .. } = self.feed_forward;
        size
    }
}

/// The whole model, normalised. All sizes have been checked against the tensors' shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which architecture the file named.
    pub architecture: Architecture,
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Elements of the residual stream.
    pub hidden_size: usize,
    /// The largest number of positions the model was made for.
    pub context_length: usize,
    /// Epsilon of every RMS norm.
    pub norm_eps: f32,
    /// Added to every RMS-norm weight (1 for Gemma from a Hugging Face folder, else 0).
    pub norm_offset: f32,
    /// Factor on the embedding row (Gemma: `sqrt(hidden_size)` rounded to bf16), else 1.
    pub embedding_scale: f32,
    /// The head is the embedding, stored once. [`crate::TensorKey::Head`] then resolves to it.
    pub tied_embeddings: bool,
    /// The rotary tables that layers refer to.
    pub ropes: Vec<Rope>,
    /// The decoder layers, first to last.
    pub layers: Vec<LayerConfig>,
}
