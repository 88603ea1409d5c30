//! The shapes of well-known models, so that they can be measured with dummy weights without being fetched.

use std::path::Path;

use serde_json::{Map, Value};

use crate::huggingface::dummy;
use crate::{DummyFill, Model, ModelError, Result};

/// The fields of each model's own `config.json` that decide its computation; `_source` says where it lies.
const SHAPES: &str = include_str!("presets.json");

fn shapes() -> Map<String, Value> {
    serde_json::from_str(SHAPES).unwrap_or_default()
}

/// The names that [`Model::dummy`] knows.
#[must_use]
pub fn shape_names() -> Vec<String> {
    shapes().into_iter().map(|(name, _)| name).collect()
}

/// The model of that name with dummy weights.
pub(crate) fn open(name: &str, fill: DummyFill) -> Result<Model> {
    match shapes().get(name).and_then(Value::as_object) {
        Some(object) => dummy::from_object(Path::new(name), object, fill),
        None => Err(ModelError::NotFound {
            name: name.to_owned(),
            looked: "no such `config.json` or directory".to_owned(),
            hint: format!(
                "with dummy weights a model is a `config.json`, its directory, or one of {}",
                shape_names().join(", ")
            ),
        }),
    }
}
