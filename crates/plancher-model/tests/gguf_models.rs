//! Real GGUF files, where they are at hand: stories260k in the shared folder beside the checkout
//! (`PLANCHER_SHARED` overrides it), trained models in the directory `PLANCHER_MODELS`.

use std::path::PathBuf;

use plancher_model::{Architecture, DType, LayerTensor, Model, RopeLayout, TensorKey};

fn stories260k() -> Option<PathBuf> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("PLANCHER_SHARED").map_or_else(default, PathBuf::from);
    present(shared.join("models/stories260k"))
}

fn model(name: &str) -> Option<PathBuf> {
    present(PathBuf::from(std::env::var_os("PLANCHER_MODELS")?).join(name))
}

fn present(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: `{}` is not there", path.display());
    None
}

/// All rows of a tensor.
fn rows(model: &Model, key: TensorKey) -> Vec<Vec<f32>> {
    let view = model.weights.get(key).unwrap_or_else(|| panic!("no {key}"));
    let row = |row| {
        let mut out = vec![0.0; view.columns()];
        view.dequantize_row(row, &mut out);
        out
    };
    (0..view.rows()).map(row).collect()
}

/// llama.cpp stores query and key rows of llama models so that the two rows rotated together are neighbours.
fn interleaved(rows: &[Vec<f32>], head_dim: usize) -> Vec<Vec<f32>> {
    let source = |row: usize| row / head_dim * head_dim + row % head_dim / 2 + row % 2 * (head_dim / 2);
    (0..rows.len()).map(|row| rows[source(row)].clone()).collect()
}

#[test]
fn stories260k_is_the_same_model_in_every_format() {
    let Some(directory) = stories260k() else { return };
    let folder = Model::open(&directory.join("hf")).unwrap();
    for (file, tolerance) in [("stories260k-f32.gguf", 0.0), ("stories260k-f16.gguf", 1e-3)] {
        let gguf = Model::open(&directory.join(file)).unwrap();
        let mut expected = folder.config.clone();
        expected.ropes[0].layout = RopeLayout::Interleaved;
        expected.tied_embeddings = gguf.config.tied_embeddings;
        assert_eq!(gguf.config, expected);
        let head_dim = expected.layers[0].head_dim;
        assert_eq!(gguf.weights.iter().count(), folder.weights.iter().count());
        for (key, _) in folder.weights.iter() {
            let mut expected = rows(&folder, key);
            if let TensorKey::Layer(_, LayerTensor::Query | LayerTensor::Key) = key {
                expected = interleaved(&expected, head_dim);
            }
            for (row, expected) in rows(&gguf, key).iter().zip(&expected) {
                for (value, expected) in row.iter().zip(expected) {
                    assert!((value - expected).abs() <= tolerance * expected.abs().max(0.1), "{file}: {key}");
                }
            }
        }
        assert_eq!((gguf.generation.begin_token, &gguf.generation.end_tokens[..]), (Some(1), &[2][..]));
    }
}

#[test]
fn smollm2() {
    let Some(path) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let model = Model::open(&path).unwrap();
    let config = &model.config;
    assert_eq!(config.architecture, Architecture::Llama);
    assert_eq!((config.vocab_size, config.hidden_size, config.layers.len()), (49_152, 576, 30));
    assert_eq!((config.layers[0].n_heads, config.layers[0].n_kv_heads, config.layers[0].head_dim), (9, 3, 64));
    assert_eq!(config.layers[29].feed_forward_rows(), 1536);
    assert!(config.tied_embeddings);
    assert_eq!(model.weights.get(TensorKey::Head).unwrap().dtype(), DType::Q8_0);
    assert_eq!(model.weights.get(TensorKey::Layer(3, LayerTensor::Gate)).unwrap().dtype(), DType::Q4_1);
    assert_eq!(model.generation.end_tokens, [0, 2]);
    assert_eq!(model.generation.begin_token, None);
}

#[test]
fn qwen2() {
    let Some(path) = model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let model = Model::open(&path).unwrap();
    let config = &model.config;
    assert_eq!(config.architecture, Architecture::Qwen2);
    assert_eq!((config.vocab_size, config.hidden_size, config.layers.len()), (151_936, 896, 24));
    assert_eq!(config.ropes[0].layout, RopeLayout::Halves);
    assert!(!config.tied_embeddings);
    assert_eq!(model.weights.get(TensorKey::Head).unwrap().dtype(), DType::Q8_0);
    assert_eq!(model.weights.get(TensorKey::Embedding).unwrap().dtype(), DType::Q5_0);
    assert_eq!(model.weights.vector(TensorKey::Layer(23, LayerTensor::KeyBias)).unwrap().len(), 128);
    // `<|im_end|>` and `<|endoftext|>`.
    assert_eq!(model.generation.end_tokens, [151_643, 151_645]);
}
