//! An opened model as the floor's arithmetic sees it: every stored tensor with its class and format.

use plancher_floor::{Attention, Class, Format, LayerShape, ModelShape, Shard, Weight};
use plancher_model::{DType, LayerTensor, Model, Scale, Tensor, TensorKey};

/// How the CPU backend stores keys and values; [`crate::Storage`] says it for each backend.
pub const KV_FORMAT: Format = Format::F16;

/// The shape of `model`, from its stored tensors.
#[must_use]
pub fn model_shape(model: &Model) -> ModelShape {
    let config = &model.config;
    let layers = config.layers.iter().map(|layer| LayerShape {
        attention: Attention::Heads {
            n_heads: layer.n_heads as u64,
            n_kv_heads: layer.n_kv_heads as u64,
            head_dim: layer.head_dim as u64,
            value_dim: layer.head_dim as u64,
            window: layer.window.map(|window| window as u64),
        },
        weights: Vec::new(),
    });
    let mut shape = ModelShape {
        name: model.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        hidden_size: config.hidden_size as u64,
        vocab_size: config.vocab_size as u64,
        context_length: Some(config.context_length as u64),
        layers: layers.collect(),
        outside: Vec::new(),
        predictor: None,
        notes: Vec::new(),
    };
    let mut tensors: Vec<(TensorKey, &Tensor)> = model.weights.iter().collect();
    tensors.sort_by_key(|(key, _)| *key);
    for (key, tensor) in tensors {
        match key {
            // Tied: the one stored table is the head.
            TensorKey::Embedding if config.tied_embeddings => {}
            TensorKey::Layer(index, part) => {
                if let (Some(layer), Some(config)) = (shape.layers.get_mut(index), config.layers.get(index)) {
                    let shard = match part {
                        LayerTensor::Query | LayerTensor::AttentionOutput => Shard::Heads(config.n_heads as u64),
                        LayerTensor::Key | LayerTensor::Value => Shard::KvHeads(config.n_kv_heads as u64),
                        LayerTensor::Gate | LayerTensor::Up | LayerTensor::Down => {
                            Shard::Features(config.feed_forward_rows() as u64)
                        }
                        _ => Shard::Replicated,
                    };
                    let class = match shard {
                        Shard::Features(_) => Class::Mlp,
                        _ => Class::AttentionWeights,
                    };
                    layer.weights.push(weight(class, shard, tensor));
                }
            }
            TensorKey::Embedding => shape.outside.push(weight(Class::Embedding, Shard::Replicated, tensor)),
            TensorKey::Head => {
                let shard = Shard::Vocabulary(config.vocab_size as u64);
                shape.outside.push(weight(Class::Head, shard, tensor));
            }
            TensorKey::OutputNorm => shape.outside.push(weight(Class::Norms, Shard::Replicated, tensor)),
        }
    }
    shape
}

fn weight(class: Class, shard: Shard, tensor: &Tensor) -> Weight {
    let format = format(tensor);
    if tensor.rows == 1 {
        return Weight::vector(tensor.columns as u64, format);
    }
    Weight::matrix(class, tensor.rows as u64, tensor.columns as u64, format, shard)
}

fn format(tensor: &Tensor) -> Format {
    match tensor.dtype {
        DType::F32 => Format::F32,
        DType::F16 => Format::F16,
        DType::BF16 => Format::Bf16,
        DType::F8_E4M3 if matches!(tensor.scale, Scale::Block { .. }) => Format::Fp8Block128,
        DType::F8_E4M3 => Format::Fp8,
        DType::Q8_0 => Format::Q8_0,
        DType::Q4_0 => Format::Q4_0,
        DType::Q4_1 => Format::Q4_1,
        DType::Q5_0 => Format::Q5_0,
        DType::Q5_1 => Format::Q5_1,
        DType::Q2_K => Format::Q2_K,
        DType::Q3_K => Format::Q3_K,
        DType::Q4_K => Format::Q4_K,
        DType::Q5_K => Format::Q5_K,
        DType::Q6_K => Format::Q6_K,
    }
}
