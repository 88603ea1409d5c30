//! A model from its `config.json` alone, with dummy weights.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::dummy::{self, DummyFill, DummyTensor};
use crate::json::{Fields, read_object};
use crate::{
    ChatTemplate, DType, LayerTensor, Model, ModelError, Result, Scale, Tensor, TensorKey, Tokenizer, Weights,
};

use super::{config, generation, tensors};

/// Tensors begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;
/// The most bytes of norms and biases (real models have a few megabytes), which are written at once.
const MOST_VECTOR_BYTES: usize = 1 << 30;

/// The model that `path`, a `config.json` or a directory that holds one, describes. A tokenizer beside it is read.
pub(crate) fn open_file(path: &Path, fill: DummyFill) -> Result<Model> {
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let object = read_object(&file)?;
    let mut model = from_object(&file, &object, fill)?;
    if path.is_dir() {
        model.generation = generation::read(path, Fields::new(&file, &object))?;
        model.tokenizer = Tokenizer::from_directory(path)?;
        model.chat_template = ChatTemplate::from_directory(path)?;
    }
    path.clone_into(&mut model.path);
    Ok(model)
}

/// The model that the fields of a `config.json`, read from `path`, describe.
pub(crate) fn from_object(path: &Path, object: &Map<String, Value>, fill: DummyFill) -> Result<Model> {
    let fields = Fields::new(path, object);
    if fields.contains("quantization_config") {
        let problem = "is set, but dummy weights are made as bf16: take it out to measure the model unquantised";
        return Err(fields.invalid("quantization_config", problem));
    }
    let mut described = config::read(path, object)?;
    // How a checkpoint would store them is no matter: each role has a tensor of its own.
    described.fused = false;
    let config = &described.config;

    let mut tensors = HashMap::new();
    let mut made = HashMap::new();
    let mut end = 0_usize;
    let mut add = |key: TensorKey, name: String| -> Result<()> {
        let (rows, columns) = config.shape(key);
        let dummy = if !key.is_vector() {
            DummyTensor::matrix(&name, columns)
        } else if is_bias(key) {
            DummyTensor::vector(&name, 0.0)
        } else {
            DummyTensor::vector(&name, 1.0 - config.norm_offset)
        };
        let bytes = rows.checked_mul(columns).and_then(|n| n.checked_mul(2));
        let next = bytes.and_then(|bytes| end.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT));
        let Some(next) = next else {
            return Err(ModelError::invalid(path, name, format!("({rows}, {columns}) makes the model too large")));
        };
        let tensor = Tensor { name, dtype: DType::BF16, rows, columns, file: 0, offset: end, scale: Scale::One };
        tensors.insert(key, tensor);
        made.insert(key, dummy);
        end = next;
        Ok(())
    };
    for source in tensors::sources(&described, tensors::PREFIXES[0]) {
        add(source.key, source.name)?;
    }
    if !config.tied_embeddings {
        add(TensorKey::Head, tensors::head_name(tensors::PREFIXES[0]))?;
    }

    let no_memory = |e| ModelError::invalid(path, "weights", format!("cannot set {end} bytes of memory aside: {e}"));
    let vector_bytes = tensors.iter().filter(|(key, _)| key.is_vector()).map(|(_, tensor)| 2 * tensor.columns);
    let vector_bytes: usize = vector_bytes.sum();
    if vector_bytes > MOST_VECTOR_BYTES {
        let problem = format!("would have {vector_bytes} bytes of norms and biases, more than {MOST_VECTOR_BYTES}");
        return Err(ModelError::invalid(path, "config", problem));
    }
    let mut memory = dummy::sparse_memory(end).map_err(no_memory)?;
    let wanted: Vec<(&Tensor, DummyTensor)> = tensors
        .iter()
        .filter(|(key, _)| fill == DummyFill::All || key.is_vector())
        .map(|(key, tensor)| (tensor, made[key]))
        .collect();
    dummy::fill(&mut memory, &wanted);
    let file = dummy::freeze(memory, path).map_err(no_memory)?;
    if config.tied_embeddings {
        let (head, dummy) = (tensors[&TensorKey::Embedding].clone(), made[&TensorKey::Embedding]);
        tensors.insert(TensorKey::Head, head);
        made.insert(TensorKey::Head, dummy);
    }
    Ok(Model {
        path: PathBuf::from(path),
        weights: Weights::new(vec![file], tensors)?.with_dummies(made),
        config: described.config,
        generation: crate::GenerationDefaults::default(),
        tokenizer: None,
        chat_template: None,
    })
}

fn is_bias(key: TensorKey) -> bool {
    use LayerTensor::{AttentionOutputBias, DownBias, GateBias, KeyBias, QueryBias, UpBias, ValueBias};
    let biases = [QueryBias, KeyBias, ValueBias, AttentionOutputBias, GateBias, UpBias, DownBias];
    matches!(key, TensorKey::Layer(_, tensor) if biases.contains(&tensor))
}
