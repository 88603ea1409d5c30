//! Every architecture's golden checkpoint, converted to GGUF, is the same model again: same configuration, same
//! weights, but for what the two formats say differently.

use std::path::{Path, PathBuf};

use plancher_model::testing::convert_to_gguf;
use plancher_model::{Architecture, DType, LayerTensor, Model, ModelConfig, RopeLayout, TensorKey};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn open(bytes: &[u8]) -> Model {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Model::open(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// What the configuration of a directory becomes in GGUF.
fn expected(mut config: ModelConfig) -> ModelConfig {
    use Architecture as A;
    config.norm_offset = 0.0;
    if matches!(config.architecture, A::Llama | A::Mistral | A::SmolLm3) {
        for rope in &mut config.ropes {
            rope.layout = RopeLayout::Interleaved;
        }
    }
    config
}

fn values(model: &Model, key: TensorKey) -> Vec<Vec<f32>> {
    let view = model.weights.get(key).unwrap_or_else(|| panic!("no {key}"));
    let mut rows = vec![vec![0.0; view.columns()]; view.rows()];
    for (row, out) in rows.iter_mut().enumerate() {
        view.dequantize_row(row, out);
    }
    rows
}

/// Compares two models whose configurations were found equal. `tolerance` is relative to the largest weight of
/// a tensor.
fn compare_weights(name: &str, folder: &Model, gguf: &Model, tolerance: f32) {
    assert_eq!(folder.weights.iter().count(), gguf.weights.iter().count(), "{name}");
    for (key, tensor) in gguf.weights.iter() {
        assert_eq!((tensor.rows, tensor.columns), gguf.config.shape(key), "{name}: {key}");
        let (mut left, mut right) = (values(folder, key), values(gguf, key));
        if let TensorKey::Layer(i, tensor) = key {
            use LayerTensor as L;
            let norm = key.is_vector() && !tensor_is_bias(tensor);
            if norm {
                left[0].iter_mut().for_each(|weight| *weight += folder.config.norm_offset);
            }
            // In any order of rows, the rotated pairs of a head are the same set.
            if gguf.config.ropes[0].layout == RopeLayout::Interleaved
                && matches!(tensor, L::Query | L::Key | L::QueryBias | L::KeyBias)
            {
                let head_dim = gguf.config.layers[i].head_dim;
                (left, right) =
                    (pairs(&left, head_dim, RopeLayout::Halves), pairs(&right, head_dim, RopeLayout::Interleaved));
            }
        } else if key == TensorKey::OutputNorm {
            left[0].iter_mut().for_each(|weight| *weight += folder.config.norm_offset);
        }
        let largest = left.iter().flatten().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (a, b) in left.iter().flatten().zip(right.iter().flatten()) {
            assert!((a - b).abs() <= tolerance * largest, "{name}: {key}: {a} became {b}");
        }
    }
}

fn tensor_is_bias(tensor: LayerTensor) -> bool {
    format!("{tensor:?}").ends_with("Bias")
}

/// Rows (or elements of a bias) reordered so that the two of each rotated pair follow each other.
fn pairs(rows: &[Vec<f32>], head_dim: usize, layout: RopeLayout) -> Vec<Vec<f32>> {
    let columns: Vec<Vec<f32>> =
        if rows.len() == 1 { rows[0].iter().map(|&value| vec![value]).collect() } else { rows.to_vec() };
    let mut out = Vec::new();
    for head in columns.chunks(head_dim) {
        for i in 0..head_dim / 2 {
            let (a, b) = match layout {
                RopeLayout::Halves => (i, i + head_dim / 2),
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
            };
            out.extend([head[a].clone(), head[b].clone()]);
        }
    }
    out
}

fn same_model(name: &str, dtype: DType, tolerance: f32) {
    let folder = Model::open(&golden(name)).unwrap();
    let gguf = open(&convert_to_gguf(&golden(name), dtype).finish());
    let mut expected = expected(folder.config.clone());
    // Divisors in f32 (`rope_freqs.weight`) and factors in f32 differ in the last bit from formulas in f64.
    for (rope, found) in expected.ropes.iter_mut().zip(&gguf.config.ropes) {
        for (a, b) in rope.inverse_frequencies.iter_mut().zip(&found.inverse_frequencies) {
            assert!((*a - b).abs() <= 4.0 * f32::EPSILON * *a, "{name}: {a} became {b}");
            *a = *b;
        }
    }
    assert_eq!(gguf.config, expected, "{name}");
    compare_weights(name, &folder, &gguf, tolerance);
}

#[test]
fn bf16_is_kept_exactly() {
    for name in [
        "gemma3",
        "llama-bias",
        "llama-gqa-tied",
        "llama-rope-linear",
        "llama-rope-llama3",
        "llama-rope-yarn",
        "mistral-window",
        "phi3-partial",
        "qwen2-bias",
        "qwen2-window",
        "qwen3-qknorm",
    ] {
        same_model(name, DType::BF16, 0.0);
    }
}

#[test]
fn other_types_are_near() {
    same_model("llama-gqa-tied", DType::F32, 0.0);
    same_model("fp8-channel", DType::F32, 0.0);
    same_model("qwen3-qknorm", DType::F16, 1e-3);
    // A step of a block is at most 2/127 of its largest element, and rounding errs by half of it.
    same_model("phi3-partial", DType::Q8_0, 0.005);
    same_model("gemma3", DType::Q8_0, 0.005);
}

/// llama.cpp leaves out rotary embedding in every fourth layer, whatever the checkpoint said.
#[test]
fn smollm3_has_no_rope_in_every_fourth_layer() {
    let folder = Model::open(&golden("smollm3-nope")).unwrap();
    let gguf = open(&convert_to_gguf(&golden("smollm3-nope"), DType::BF16).finish());
    let ropes: Vec<_> = gguf.config.layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes, [Some(0), Some(0), Some(0), None]);
    let mut expected = expected(folder.config.clone());
    for (layer, rope) in expected.layers.iter_mut().zip(ropes) {
        layer.rope = rope;
    }
    assert_eq!(gguf.config, expected);
    compare_weights("smollm3-nope", &folder, &gguf, 0.0);
}
