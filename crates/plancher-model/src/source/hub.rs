//! A repository of the hub: what files it has, which of them make a model, and fetching those.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cache::{CachedRepository, is_commit};
use super::download::{Client, Expected};
use super::name::{RepositoryName, shards};
use super::pull::Pulling;
use super::settings::SourceSettings;
use crate::{ModelError, Result};

/// Files beside the weights that a model is made of.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
];

#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
    size: u64,
}

/// Fetches what a repository's model needs and returns its path: a directory, or a GGUF file.
pub(super) fn pull_repository(
    repository: &RepositoryName,
    settings: &SourceSettings,
    pulling: &mut Pulling<'_>,
) -> Result<PathBuf> {
    let client = Client::new(settings);
    let (id, endpoint) = (repository.id(), &settings.endpoint);
    let url = format!("{endpoint}/api/models/{id}/revision/{}?blobs=true", repository.revision.replace('/', "%2F"));
    let malformed = |problem: String| ModelError::Fetch { what: url.clone(), problem };
    let listing: Listing = serde_json::from_slice(&client.document(&url)?)
        .map_err(|e| malformed(format!("the answer is not a list of files: {e}")))?;
    if !is_commit(&listing.sha) {
        return Err(malformed(format!("the answer names `{}` as its commit", listing.sha)));
    }
    let names: Vec<String> = listing.siblings.iter().map(|file| file.rfilename.clone()).collect();
    let (wanted, result) = select(repository, &names).map_err(malformed)?;

    let cached = CachedRepository::new(&settings.hub_cache, repository);
    for file in listing.siblings.iter().filter(|file| wanted.contains(&file.rfilename)) {
        let name = &file.rfilename;
        let sha256 = file.lfs.as_ref().map(|lfs| lfs.sha256.as_str());
        let hash = sha256.or(file.blob_id.as_deref()).filter(|hash| is_commit(hash));
        let hash = hash.ok_or_else(|| malformed(format!("the answer has no hash for `{name}`")))?;
        let url = format!("{endpoint}/{id}/resolve/{}/{name}", listing.sha);
        let bytes = file.lfs.as_ref().map(|lfs| lfs.size).or(file.size);
        pulling.begin(name);
        client.file(&Expected { url: &url, bytes, sha256 }, &cached.blob(hash), pulling)?;
        cached.link(&listing.sha, name, hash)?;
    }
    cached.record(&repository.revision, &listing.sha)?;
    let snapshot = cached.snapshot(&listing.sha);
    Ok(if result.as_os_str().is_empty() { snapshot } else { snapshot.join(result) })
}

/// The files to fetch, and which of them is the model; an empty path is the directory.
fn select(repository: &RepositoryName, files: &[String]) -> std::result::Result<(Vec<String>, PathBuf), String> {
    let safe = |file: &&String| Path::new(file).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    let files: Vec<String> = files.iter().filter(safe).cloned().collect();
    let weights: Vec<&String> =
        files.iter().filter(|file| file.ends_with(".safetensors") && !file.contains('/')).collect();
    if repository.file.is_none() && !weights.is_empty() {
        if !files.iter().any(|file| file == "config.json") {
            return Err("it has no `config.json`".to_owned());
        }
        // Some repositories carry the same weights twice, whole under another name; the standard names win.
        let standard = |file: &&&String| file.starts_with("model") && !file.contains("consolidated");
        let standard: Vec<&String> = weights.iter().filter(standard).copied().collect();
        let weights = if standard.is_empty() { weights } else { standard };
        let companions = files.iter().filter(|file| COMPANIONS.contains(&file.as_str()));
        return Ok((companions.chain(weights).cloned().collect(), PathBuf::new()));
    }
    let chosen = repository.choose_gguf(&files)?;
    let wanted = shards(&chosen, &files);
    Ok((wanted, PathBuf::from(chosen)))
}
