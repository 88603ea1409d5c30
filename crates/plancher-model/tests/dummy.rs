//! Dummy models: a configuration without weights gives every tensor of its real shape, the same numbers every time.

use std::path::{Path, PathBuf};

use plancher_model::{DType, DummyFill, LayerTensor, Model, TensorKey, shape_names};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn dummy(name: &str, fill: DummyFill) -> Model {
    Model::dummy(golden(name).to_str().expect("UTF-8"), fill).expect("a configuration")
}

#[test]
fn a_dummy_has_the_tensors_and_shapes_of_the_checkpoint() {
    for name in ["llama-gqa-tied", "llama-bias", "qwen2-bias", "qwen3-qknorm", "gemma3", "smollm3-nope", "phi3-partial"]
    {
        let (real, dummy) = (Model::open(&golden(name)).expect("golden"), dummy(name, DummyFill::Vectors));
        assert_eq!(dummy.config, real.config, "{name}");
        let shapes = |model: &Model| {
            model.tensors().iter().map(|tensor| (tensor.key, tensor.rows, tensor.columns)).collect::<Vec<_>>()
        };
        assert_eq!(shapes(&dummy), shapes(&real), "{name}");
        assert!(dummy.tensors().iter().all(|tensor| tensor.dtype == DType::BF16));
    }
}

#[test]
fn vectors_always_hold_their_values_and_matrices_when_asked() {
    let (vectors, all) = (dummy("gemma3", DummyFill::Vectors), dummy("gemma3", DummyFill::All));
    for (key, tensor) in all.weights.iter() {
        let (own, other) = (all.weights.get(key).expect("there"), vectors.weights.get(key).expect("there"));
        assert_eq!(own.bytes == other.bytes, key.is_vector(), "{key}");
        let rule = all.weights.dummy(key).expect("a dummy");
        assert_eq!(Some(rule), vectors.weights.dummy(key));
        for index in [0, 1, tensor.columns, tensor.rows * tensor.columns - 1] {
            let index = index.min(tensor.rows * tensor.columns - 1);
            assert_eq!(own.bytes[2 * index..2 * index + 2], rule.element(index as u64).to_le_bytes(), "{key} {index}");
        }
    }
    // Gemma adds 1 to its norms' weights, so these lie around 0; elsewhere around 1.
    let mean = |model: &Model| {
        let norm = model.weights.vector(TensorKey::Layer(0, LayerTensor::AttentionNorm)).expect("a norm");
        norm.iter().sum::<f32>() / norm.len() as f32
    };
    assert!(mean(&all).abs() < 0.1);
    assert!((mean(&dummy("llama-gqa-tied", DummyFill::Vectors)) - 1.0).abs() < 0.1);
}

#[test]
fn tensors_differ_from_each_other_and_a_tied_head_is_the_embedding() {
    let model = dummy("llama-gqa-tied", DummyFill::All);
    let bytes = |key| model.weights.get(key).expect("there").bytes;
    let [query, up, gate] =
        [LayerTensor::Query, LayerTensor::Up, LayerTensor::Gate].map(|tensor| bytes(TensorKey::Layer(1, tensor)));
    assert!(up != gate && query != bytes(TensorKey::Layer(0, LayerTensor::Query)));
    assert_eq!(bytes(TensorKey::Embedding).as_ptr(), bytes(TensorKey::Head).as_ptr());
    model.weights.release(TensorKey::Embedding);
    assert!(bytes(TensorKey::Head).iter().any(|&byte| byte != 0), "there is no file to read it from again");
}

#[test]
fn every_preset_has_the_size_of_its_checkpoint() {
    let sizes: Vec<(String, u64)> = shape_names()
        .into_iter()
        .map(|name| {
            let model = Model::dummy(&name, DummyFill::Vectors).expect("a preset");
            (name, model.facts().parameters)
        })
        .collect();
    let expected = [
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("mistral-7b", 7_241_732_096),
        ("gemma-3-270m", 268_098_176),
        ("smollm2-135m", 134_515_008),
        ("qwen2.5-coder-0.5b", 494_032_768),
    ];
    assert_eq!(sizes, expected.map(|(name, size)| (name.to_owned(), size)));
}

#[test]
fn what_cannot_be_a_dummy_is_said() {
    let error = |name: &str| Model::dummy(name, DummyFill::Vectors).expect_err("refused").to_string();
    assert!(error("llama-9").contains("qwen3-0.6b"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.json");
    std::fs::write(&path, r#"{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}"#)
        .expect("writable");
    assert!(error(path.to_str().expect("UTF-8")).contains("`quantization_config`"));
    // Sizes that a hostile file may claim.
    let absurd = r#"{"model_type": "llama", "hidden_size": 16777216, "intermediate_size": 16777216, "vocab_size": 16777216,
        "num_hidden_layers": 4096, "num_attention_heads": 16384, "num_key_value_heads": 16384, "head_dim": 16384}"#;
    std::fs::write(&path, absurd).expect("writable");
    assert!(
        error(path.to_str().expect("UTF-8")).contains("too large")
            || error(path.to_str().expect("UTF-8")).contains("bytes")
    );
}
