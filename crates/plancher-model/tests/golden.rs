//! The golden checkpoints of `/tests/golden` open, and what their configuration says arrives normalised.

use std::path::{Path, PathBuf};

use plancher_model::{Architecture, DType, LayerTensor, Model, ModelError, TensorKey};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn open(name: &str) -> Model {
    Model::open(&golden(name)).unwrap_or_else(|e| panic!("{e}"))
}

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
    assert_eq!(config.ropes[0].inverse_frequencies[1], 1e6_f32.powf(-1.0 / 16.0));
    assert_eq!(config.ropes[1].inverse_frequencies[1], 1e4_f32.powf(-1.0 / 16.0));
}

#[test]
fn windows_and_biases_are_read() {
    let mistral = open("mistral-window").config;
    assert!(mistral.layers.iter().all(|layer| layer.window == Some(16)));

    let qwen2 = open("qwen2-bias");
    assert!(qwen2.config.layers.iter().all(|layer| layer.window.is_none()));
    assert!(qwen2.weights.get(TensorKey::Layer(2, LayerTensor::KeyBias)).is_some());
    assert!(qwen2.weights.get(TensorKey::Layer(2, LayerTensor::AttentionOutputBias)).is_none());
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
