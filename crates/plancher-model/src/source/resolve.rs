//! A model argument to a path, without touching the network.

use std::path::{Path, PathBuf};

use super::cache::{CachedRepository, files_below};
use super::name::{ModelName, RepositoryName};
use super::preset::Preset;
use super::settings::SourceSettings;
use super::store::is_complete;
use crate::{ModelError, Result};

/// The path that a model argument stands for: an existing path, or a preset or repository in the caches.
///
/// # Errors
/// When there is no such thing here; the message says where it was looked for and what would fetch it.
pub fn resolve(name: &str, settings: &SourceSettings) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.exists() {
        return Ok(path.to_owned());
    }
    match ModelName::parse(name) {
        Some(ModelName::Preset(preset)) => find_preset(preset, settings)
            .ok_or_else(|| not_found(name, &settings.preset_cache, format!("`plancher pull {name}` fetches it"))),
        Some(ModelName::Repository(repository)) => find_repository(name, &repository, settings),
        None => {
            let presets: Vec<&str> = super::PRESETS.iter().map(|preset| preset.name).collect();
            let hint = format!("a model is a path, a preset ({}) or `org/name[@revision][:file]`", presets.join(", "));
            Err(ModelError::NotFound { name: name.to_owned(), looked: "no such file or directory".to_owned(), hint })
        }
    }
}

fn not_found(name: &str, looked: &Path, hint: String) -> ModelError {
    ModelError::NotFound { name: name.to_owned(), looked: format!("not in `{}`", looked.display()), hint }
}

/// The preset's file, if it is in its cache, or in the hub's under its hash.
pub(super) fn find_preset(preset: &Preset, settings: &SourceSettings) -> Option<PathBuf> {
    let complete = |path: &Path| is_complete(path, Some(preset.bytes));
    let own = settings.preset_cache.join(preset.file);
    if complete(&own) {
        return Some(own);
    }
    let Some(ModelName::Repository(repository)) = ModelName::parse(preset.repository) else { return None };
    let blob = CachedRepository::new(&settings.hub_cache, &repository).blob(preset.sha256);
    complete(&blob).then_some(blob)
}

fn find_repository(name: &str, repository: &RepositoryName, settings: &SourceSettings) -> Result<PathBuf> {
    let cached = CachedRepository::new(&settings.hub_cache, repository);
    let fetch = || format!("`plancher pull {name}` fetches it");
    let Some(snapshot) = cached.find(&repository.revision) else {
        return Err(not_found(name, cached.root(), fetch()));
    };
    let files = files_below(&snapshot);
    let has_weights = files.iter().any(|file| file.ends_with(".safetensors"));
    if repository.file.is_none() && has_weights && files.iter().any(|file| file == "config.json") {
        return Ok(snapshot);
    }
    match repository.choose_gguf(&files) {
        Ok(file) => Ok(snapshot.join(file)),
        Err(problem) => {
            let looked = format!("`{}`: {problem}", snapshot.display());
            Err(ModelError::NotFound { name: name.to_owned(), looked, hint: fetch() })
        }
    }
}
