//! From what a user calls a model to its shape.

use std::path::Path;

use plancher_engine::model_shape;
use plancher_floor::{ModelShape, config, presets};
use plancher_model::{Model, SourceSettings, resolve};
use serde_json::Value;

use super::refused;
use crate::failure::usage;
use crate::file::read_text;

/// Opens `text`: a path if it exists, else a preset, else a model in the Hugging Face cache.
pub(super) fn open(text: &str) -> anyhow::Result<ModelShape> {
    let path = Path::new(text);
    if path.exists() {
        return open_path(path);
    }
    if presets::model_names().iter().any(|name| name == text) {
        return presets::model(text).map_err(refused);
    }
    if text.contains('/') {
        return open_cached(text);
    }
    Err(refused(presets::model(text).map_or_else(|error| error.to_string(), |shape| shape.name)))
}

/// A model in the Hugging Face cache; its configuration is enough.
fn open_cached(name: &str) -> anyhow::Result<ModelShape> {
    let settings = SourceSettings::from_environment();
    match resolve(name, &settings) {
        Ok(path) => open_path(&path),
        Err(error) => {
            let repository = settings.hub_cache.join(format!("models--{}", name.replace('/', "--")));
            let commit = std::fs::read_to_string(repository.join("refs/main")).unwrap_or_default();
            let config = repository.join("snapshots").join(commit.trim()).join("config.json");
            if config.is_file() { read_config(&config, name) } else { Err(refused(error)) }
        }
    }
}

/// The stored tensors of a file or directory that brings no `config.json`.
fn open_tensors(path: &Path) -> anyhow::Result<ModelShape> {
    Model::open(path).map(|model| model_shape(&model)).map_err(refused)
}

fn open_path(path: &Path) -> anyhow::Result<ModelShape> {
    if path.is_dir() {
        let config = path.join("config.json");
        return if config.exists() { read_config(&config, &name_of(path)) } else { open_tensors(path) };
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => read_config(path, &name_of(path)),
        Some("gguf") => open_tensors(path),
        Some("safetensors") => match path.parent().map(|directory| directory.join("config.json")) {
            Some(config) if config.exists() => read_config(&config, &name_of(path)),
            _ => Err(usage(format!(
                "`{}`: there is no config.json beside it, which says what the tensors are",
                path.display()
            ))),
        },
        _ => Err(usage(format!(
            "`{}` is not a directory, a config.json, a .gguf or a .safetensors file",
            path.display()
        ))),
    }
}

fn read_config(path: &Path, name: &str) -> anyhow::Result<ModelShape> {
    let text = read_text(path).map_err(refused)?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| refused(format!("`{}`: {error}", path.display())))?;
    config::from_json(name, &value).map_err(|error| refused(format!("`{}`: {error}", path.display())))
}

/// The directory's or file's own name; for a file called `config.json`, that of its directory.
fn name_of(path: &Path) -> String {
    let named = if path.file_name().is_some_and(|name| name == "config.json") {
        path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned))
    } else {
        Some(path.to_owned())
    };
    let name = named.as_deref().and_then(Path::file_stem).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.display().to_string())
}
