//! The golden checkpoints of `/tests/golden` open, and what their configuration says arrives normalised.

mod common;

use common::{golden, open};
use plancher_model::{Architecture, DType, LayerTensor, Model, ModelError, Scale, TensorKey};

#[test]
fn every_tensor_has_the_shape_that_the_configuration_gives_it() {
    for name in ["gemma3", "llama-gqa-tied", "llama-rope-llama3", "mistral-window", "qwen2-bias", "qwen3-qknorm"] {
        let model = open(name);
        for (key, tensor) in model.weights.iter() {
            assert_eq!((tensor.rows, tensor.columns), model.config.shape(key), "{name}: {key}");
            assert_eq!(tensor.dtype, DType::BF16);
        }
        // Nine tensors a layer at least, and embedding, norm and head.
        assert!(model.weights.iter().count() >= 9 * model.config.layers.len() + 3, "{name}");
    }
}

#[test]
fn fused_tensors_are_row_ranges() {
    let model = open("phi3-partial");
    let part = |tensor| model.weights.get(TensorKey::Layer(1, tensor)).unwrap();
    let [query, key, value] = [LayerTensor::Query, LayerTensor::Key, LayerTensor::Value].map(part);
    assert_eq!([query.rows(), key.rows(), value.rows()], [64, 32, 32]);
    assert_eq!(key.tensor.offset, query.tensor.offset + query.bytes.len());
    assert_eq!(value.tensor.offset, key.tensor.offset + key.bytes.len());
    let [gate, up] = [LayerTensor::Gate, LayerTensor::Up].map(part);
    assert_eq!(up.tensor.offset, gate.tensor.offset + gate.bytes.len());
    assert_eq!(model.config.ropes[0].rotary_dim(), 8, "half of a head of 16");
}

#[test]
fn layers_without_rotary_embedding() {
    let config = open("smollm3-nope").config;
    let ropes: Vec<_> = config.layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes, [Some(0), None, Some(0), None]);
}

#[test]
fn fp8_factors_come_per_tensor_row_and_block() {
    let scale = |name: &str, tensor| {
        let model = open(name);
        let view = model.weights.get(TensorKey::Layer(0, tensor)).unwrap();
        assert_eq!(view.dtype(), DType::F8_E4M3);
        view.tensor.scale.clone()
    };
    assert!(matches!(scale("fp8-tensor", LayerTensor::Query), Scale::Tensor(factor) if factor > 0.0));
    assert!(matches!(scale("fp8-channel", LayerTensor::Key), Scale::Row(factors) if factors.len() == 32));
    // 320 × 192 in blocks of 128 × 128: three rows of two blocks, the last ones cut off.
    let Scale::Block { block_rows: 128, block_columns: 128, values } = scale("fp8-block", LayerTensor::Gate) else {
        panic!("expected blocks");
    };
    assert_eq!(values.len(), 6);
    // Norms and the embedding were left in bf16.
    assert_eq!(open("fp8-block").weights.get(TensorKey::Embedding).unwrap().dtype(), DType::BF16);
}

#[test]
fn a_tied_head_is_the_embedding() {
    let model = open("llama-gqa-tied");
    assert!(model.config.tied_embeddings);
    let head = model.weights.get(TensorKey::Head).unwrap();
    assert_eq!(head.tensor, model.weights.get(TensorKey::Embedding).unwrap().tensor);

    let model = open("mistral-window");
    assert!(!model.config.tied_embeddings);
    assert_eq!(model.weights.get(TensorKey::Head).unwrap().tensor.name, "lm_head.weight");
}

#[test]
fn gemma_has_its_pattern_norms_and_scales() {
    let config = open("gemma3").config;
    assert_eq!(config.architecture, Architecture::Gemma3);
    let windows: Vec<_> = config.layers.iter().map(|layer| (layer.window, layer.rope)).collect();
    let (sliding, full) = ((Some(16), Some(1)), (None, Some(0)));
    assert_eq!(windows, [sliding, sliding, sliding, sliding, sliding, full, sliding]);
    assert_eq!((config.norm_offset, config.embedding_scale), (1.0, 8.0));
    assert!(config.layers.iter().all(|layer| layer.qk_norm && layer.post_norms));
    // Base 1e6 for full attention, 1e4 for the window: the second frequency tells them apart.
    let ratio = config.ropes[1].inverse_frequencies[1] / config.ropes[0].inverse_frequencies[1];
    assert!((ratio - 100_f32.powf(1.0 / 16.0)).abs() < 1e-5);
}

#[test]
fn windows_and_biases_are_read() {
    let mistral = open("mistral-window").config;
    assert!(mistral.layers.iter().all(|layer| layer.window == Some(16)));

    let qwen2 = open("qwen2-bias");
    assert!(qwen2.config.layers.iter().all(|layer| layer.window.is_none()));
    assert!(qwen2.weights.get(TensorKey::Layer(2, LayerTensor::KeyBias)).is_some());
    assert!(qwen2.weights.get(TensorKey::Layer(2, LayerTensor::AttentionOutputBias)).is_none());

    let windows: Vec<_> = open("qwen2-window").config.layers.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [None, Some(16), Some(16)]);

    let llama = open("llama-bias");
    for tensor in [LayerTensor::QueryBias, LayerTensor::AttentionOutputBias, LayerTensor::UpBias, LayerTensor::DownBias]
    {
        assert!(llama.weights.get(TensorKey::Layer(0, tensor)).is_some(), "{tensor:?}");
    }
}

#[test]
fn facts_count_what_is_stored_and_what_a_token_reads() {
    // vocabulary 512, hidden 64, 3 layers of heads 4 + 2 × 2 of 16, feed-forward 160.
    let layer = 64 * (64 + 32 + 32 + 64 + 3 * 160) + 2 * 64;
    let rest = 3 * layer + 64;
    let tied = open("llama-gqa-tied").facts();
    assert_eq!((tied.parameters, tied.parameters_per_token), (rest + 512 * 64, rest + 512 * 64));
    assert_eq!(tied.weight_bytes_per_token, 2 * tied.parameters);
    assert_eq!(tied.kv_elements_per_token, [64, 64, 64]);

    let untied = open("mistral-window").facts();
    assert_eq!((untied.parameters, untied.parameters_per_token), (rest + 2 * 512 * 64, rest + 512 * 64));

    // One byte an element and one factor of four bytes a tensor.
    let fp8 = open("fp8-tensor").facts();
    let matrices = 3 * (layer - 2 * 64);
    assert_eq!(fp8.weight_bytes, matrices + 4 * 7 * 3 + 2 * (tied.parameters - matrices));
    assert_eq!(fp8.parameters, tied.parameters);
}

#[test]
fn mixtures_of_experts_are_refused_by_name() {
    for (directory, name) in [("mixtral", "mixtral"), ("qwen3-moe", "qwen3_moe")] {
        let error = Model::open(&golden(directory)).unwrap_err();
        assert!(matches!(&error, ModelError::UnsupportedArchitecture { name: found, .. } if found == name));
        let line = error.to_string();
        assert!(line.contains("llama, mistral, qwen2, qwen3, gemma3, smollm3, phi3"), "{line}");
    }
}
