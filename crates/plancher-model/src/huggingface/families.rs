//! The architectures of `config.json` as data: the class names they go by and the values that transformers
//! assumes for fields that are absent (the defaults of its `configuration_*.py`).

use crate::Architecture;

/// One architecture's names and defaults.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of an architecture, named where they are set")]
pub(super) struct Family {
    pub(super) architecture: Architecture,
    /// `model_type`.
    pub(super) model_type: &'static str,
    /// The entry of `architectures` that is the language model.
    pub(super) class: &'static str,
    pub(super) vocab_size: Option<usize>,
    pub(super) n_heads: Option<usize>,
    /// `None`: as many as query heads.
    pub(super) n_kv_heads: Option<usize>,
    /// `None`: `hidden_size / num_attention_heads`.
    pub(super) head_dim: Option<usize>,
    pub(super) context_length: usize,
    pub(super) norm_eps: f64,
    pub(super) rope_theta: f64,
    /// Base of the layers with a sliding window, where it differs.
    pub(super) local_rope_theta: Option<f64>,
    pub(super) sliding_window: Option<usize>,
    pub(super) tied_embeddings: bool,
    /// Query, key and value always have biases, whatever `attention_bias` says.
    pub(super) query_key_value_bias: bool,
    /// `attention_bias` is read.
    pub(super) attention_bias: bool,
    /// `mlp_bias` is read.
    pub(super) mlp_bias: bool,
    pub(super) qk_norm: bool,
    /// Query, key and value are one tensor, gate and up another.
    pub(super) fused: bool,
}

const LLAMA: Family = Family {
    architecture: Architecture::Llama,
    model_type: "llama",
    class: "LlamaForCausalLM",
    vocab_size: None,
    n_heads: None,
    n_kv_heads: None,
    head_dim: None,
    context_length: 2048,
    norm_eps: 1e-6,
    rope_theta: 10_000.0,
    local_rope_theta: None,
    sliding_window: None,
    tied_embeddings: false,
    query_key_value_bias: false,
    attention_bias: true,
    mlp_bias: true,
    qk_norm: false,
    fused: false,
};

const GEMMA3: Family = Family {
    architecture: Architecture::Gemma3,
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    vocab_size: Some(262_208),
    n_heads: Some(8),
    n_kv_heads: Some(4),
    head_dim: Some(256),
    context_length: 131_072,
    rope_theta: 1_000_000.0,
    local_rope_theta: Some(10_000.0),
    sliding_window: Some(4096),
    tied_embeddings: true,
    mlp_bias: false,
    qk_norm: true,
    ..LLAMA
};

/// Every family, by `model_type`.
pub(super) const FAMILIES: [Family; 8] = [
    LLAMA,
    Family {
        architecture: Architecture::Mistral,
        model_type: "mistral",
        class: "MistralForCausalLM",
        n_kv_heads: Some(8),
        context_length: 131_072,
        sliding_window: Some(4096),
        attention_bias: false,
        mlp_bias: false,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen2,
        model_type: "qwen2",
        class: "Qwen2ForCausalLM",
        n_kv_heads: Some(32),
        context_length: 32_768,
        sliding_window: Some(4096),
        query_key_value_bias: true,
        attention_bias: false,
        mlp_bias: false,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen3,
        model_type: "qwen3",
        class: "Qwen3ForCausalLM",
        n_kv_heads: Some(32),
        head_dim: Some(128),
        context_length: 32_768,
        sliding_window: Some(4096),
        mlp_bias: false,
        qk_norm: true,
        ..LLAMA
    },
    GEMMA3,
    // The multimodal spelling: the language model's fields are in `text_config`.
    Family { model_type: "gemma3", class: "Gemma3ForConditionalGeneration", ..GEMMA3 },
    Family {
        architecture: Architecture::SmolLm3,
        model_type: "smollm3",
        class: "SmolLM3ForCausalLM",
        n_kv_heads: Some(4),
        context_length: 32_768,
        rope_theta: 2_000_000.0,
        tied_embeddings: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Phi3,
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        context_length: 4096,
        norm_eps: 1e-5,
        attention_bias: false,
        mlp_bias: false,
        fused: true,
        ..LLAMA
    },
];
