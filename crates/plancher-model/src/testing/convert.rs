//! A model directory as a GGUF file, with the keys, names and row order that llama.cpp's
//! `convert_hf_to_gguf.py` writes, so that both readers can be held against each other.

use std::path::Path;

use serde_json::Value;

use super::{GgufWriter, encode_row};
use crate::{Architecture, DType, LayerTensor, Model, TensorKey};

/// Converts the model in `directory`, its matrices stored as `dtype` (F32, F16, BF16 or `Q8_0`) and its vectors as
/// F32, without a tokenizer.
///
/// # Panics
/// When the directory cannot be read, or the model has what GGUF cannot say.
#[must_use]
pub fn convert_to_gguf(directory: &Path, dtype: DType) -> GgufWriter {
    let model = Model::open(directory).unwrap_or_else(|error| panic!("{error}"));
    let json = std::fs::read(directory.join("config.json")).expect("a configuration");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let name = match model.config.architecture {
        Architecture::Mistral => "llama",
        other => other.name(),
    };
    let mut writer = GgufWriter::new(name);
    write_keys(&mut writer, name, &model, &json);
    write_tensors(&mut writer, &model, dtype);
    writer
}

fn write_keys(writer: &mut GgufWriter, name: &str, model: &Model, json: &Value) {
    let config = &model.config;
    let layer = &config.layers[0];
    let key = |key: &str| format!("{name}.{key}");
    for (tail, size) in [
        ("block_count", config.layers.len()),
        ("context_length", config.context_length),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", layer.feed_forward_rows()),
        ("attention.head_count", layer.n_heads),
        ("attention.head_count_kv", layer.n_kv_heads),
        ("attention.key_length", layer.head_dim),
        ("attention.value_length", layer.head_dim),
        ("rope.dimension_count", config.ropes[0].rotary_dim()),
    ] {
        writer.unsigned(&key(tail), size);
    }
    writer.float(&key("attention.layer_norm_rms_epsilon"), config.norm_eps);
    let windows: Vec<bool> = config.layers.iter().map(|layer| layer.window.is_some()).collect();
    if let Some(window) = config.layers.iter().find_map(|layer| layer.window) {
        writer.unsigned(&key("attention.sliding_window"), window);
        // The converter writes no pattern for Gemma.
        if windows.contains(&false) && config.architecture != Architecture::Gemma3 {
            writer.flags(&key("attention.sliding_window_pattern"), &windows);
        }
    }

    let rope = ["rope_scaling", "rope_parameters"].into_iter().map(|field| &json[field]).find(|rope| !rope.is_null());
    let rope = rope.expect("rope parameters");
    let rope = if rope["full_attention"].is_object() { &rope["full_attention"] } else { rope };
    let number = |field: &str| rope[field].as_f64().or(json[field].as_f64());
    let theta = number("rope_theta").expect("a base");
    writer.float(&key("rope.freq_base"), theta as f32);
    match rope["rope_type"].as_str().or(rope["type"].as_str()).expect("a type") {
        "default" => {}
        "llama3" => {
            let table = &config.ropes[0];
            let plain = |i: usize| theta.powf(-((2 * i) as f64) / table.rotary_dim() as f64);
            let factors: Vec<f32> = (0..)
                .zip(&table.inverse_frequencies)
                .map(|(i, scaled)| (plain(i) / f64::from(*scaled)) as f32)
                .collect();
            writer.tensor("rope_freqs.weight", &[factors.len()], DType::F32, encode_row(DType::F32, &factors));
        }
        kind @ ("linear" | "yarn") => {
            writer.text(&key("rope.scaling.type"), kind);
            writer.float(&key("rope.scaling.factor"), number("factor").expect("a factor") as f32);
            if let Some(original) = rope["original_max_position_embeddings"].as_u64() {
                writer.unsigned(&key("rope.scaling.original_context_length"), original as usize);
            }
        }
        other => panic!("no conversion of rope type `{other}`"),
    }
}

/// The stored name of a role, without `.weight` or `.bias`.
fn stem(tensor: LayerTensor) -> &'static str {
    use LayerTensor as L;
    match tensor {
        L::AttentionNorm => "attn_norm",
        L::Query | L::QueryBias => "attn_q",
        L::Key | L::KeyBias => "attn_k",
        L::Value | L::ValueBias => "attn_v",
        L::QueryNorm => "attn_q_norm",
        L::KeyNorm => "attn_k_norm",
        L::AttentionOutput | L::AttentionOutputBias => "attn_output",
        L::PostAttentionNorm => "post_attention_norm",
        L::FeedForwardNorm => "ffn_norm",
        L::Gate | L::GateBias => "ffn_gate",
        L::Up | L::UpBias => "ffn_up",
        L::Down | L::DownBias => "ffn_down",
        L::PostFeedForwardNorm => "post_ffw_norm",
    }
}

fn is_bias(tensor: LayerTensor) -> bool {
    use LayerTensor as L;
    matches!(
        tensor,
        L::QueryBias | L::KeyBias | L::ValueBias | L::AttentionOutputBias | L::GateBias | L::UpBias | L::DownBias
    )
}

fn write_tensors(writer: &mut GgufWriter, model: &Model, dtype: DType) {
    use LayerTensor as L;
    let mut keys: Vec<TensorKey> = model.weights.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    let phi3 = model.config.architecture == Architecture::Phi3;
    for key in keys {
        let (name, parts) = match key {
            TensorKey::Embedding => ("token_embd.weight".to_owned(), vec![key]),
            TensorKey::OutputNorm => ("output_norm.weight".to_owned(), vec![key]),
            TensorKey::Head if model.config.tied_embeddings => continue,
            TensorKey::Head => ("output.weight".to_owned(), vec![key]),
            TensorKey::Layer(_, L::Key | L::Value | L::Gate) if phi3 => continue,
            TensorKey::Layer(i, L::Query) if phi3 => {
                let parts = [L::Query, L::Key, L::Value].map(|part| TensorKey::Layer(i, part));
                (format!("blk.{i}.attn_qkv.weight"), parts.to_vec())
            }
            TensorKey::Layer(i, L::Up) if phi3 => {
                (format!("blk.{i}.ffn_up.weight"), [L::Gate, L::Up].map(|part| TensorKey::Layer(i, part)).to_vec())
            }
            TensorKey::Layer(i, tensor) => {
                let tail = if is_bias(tensor) { "bias" } else { "weight" };
                (format!("blk.{i}.{}.{tail}", stem(tensor)), vec![key])
            }
        };
        let rows: Vec<Vec<f32>> = parts.iter().flat_map(|&part| stored_rows(model, part)).collect();
        let columns = rows[0].len();
        if key.is_vector() {
            writer.tensor(&name, &[columns], DType::F32, encode_row(DType::F32, &rows[0]));
        } else {
            let bytes = rows.iter().flat_map(|row| encode_row(dtype, row)).collect();
            writer.tensor(&name, &[columns, rows.len()], dtype, bytes);
        }
    }
}

/// The rows of a role as the converter stores them: Gemma's norms with 1 added, and of the architectures with
/// interleaved rotary embedding, the two rows of a pair beside each other.
fn stored_rows(model: &Model, key: TensorKey) -> Vec<Vec<f32>> {
    use LayerTensor as L;
    let config = &model.config;
    let view = model.weights.get(key).expect("a tensor of the model");
    let mut rows = vec![vec![0.0; view.columns()]; view.rows()];
    for (row, out) in rows.iter_mut().enumerate() {
        view.dequantize_row(row, out);
    }
    let TensorKey::Layer(i, tensor) = key else {
        if key == TensorKey::OutputNorm {
            rows[0].iter_mut().for_each(|weight| *weight += config.norm_offset);
        }
        return rows;
    };
    if key.is_vector() && !is_bias(tensor) {
        rows[0].iter_mut().for_each(|weight| *weight += config.norm_offset);
    }
    let interleaved =
        matches!(config.architecture, Architecture::Llama | Architecture::Mistral | Architecture::SmolLm3);
    let head_dim = config.layers[i].head_dim;
    let source = |n: usize| n / head_dim * head_dim + n % head_dim / 2 + n % 2 * (head_dim / 2);
    match tensor {
        L::Query | L::Key if interleaved => (0..rows.len()).map(|n| rows[source(n)].clone()).collect(),
        L::QueryBias | L::KeyBias if interleaved => vec![(0..rows[0].len()).map(|n| rows[0][source(n)]).collect()],
        _ => rows,
    }
}
