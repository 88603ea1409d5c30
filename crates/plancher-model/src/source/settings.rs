//! What the environment says about caches and the hub, with the variables that Hugging Face's own tools read.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where models are kept and how the hub is reached.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The Hugging Face cache (`HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `$HF_HOME/hub`,
    /// `$XDG_CACHE_HOME/huggingface/hub`, `~/.cache/huggingface/hub`).
    pub hub_cache: PathBuf,
    /// Where presets are kept (`$XDG_CACHE_HOME/plancher/models`, `~/.cache/plancher/models`).
    pub preset_cache: PathBuf,
    /// The hub's address, without a slash at its end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// The access token (`HF_TOKEN`, or the file `HF_TOKEN_PATH`, or `$HF_HOME/token`).
    pub token: Option<String>,
    /// Nothing is fetched (`HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`).
    pub offline: bool,
    /// The Python that fetches packages.
    pub python: PathBuf,
}

impl SourceSettings {
    /// Reads the environment of the process.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Reads variables from `variable`; empty ones count as unset.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        let flag = |name: &str| {
            text(name).is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()))
        };
        let home = path("HOME").unwrap_or_else(|| PathBuf::from("."));
        let cache = path("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
        let hub_home = path("HF_HOME").unwrap_or_else(|| cache.join("huggingface"));
        let hub_cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let token = text("HF_TOKEN").or_else(|| {
            let file = path("HF_TOKEN_PATH").unwrap_or_else(|| hub_home.join("token"));
            std::fs::read_to_string(file).ok()
        });
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Self {
            hub_cache: hub_cache.unwrap_or_else(|| hub_home.join("hub")),
            preset_cache: cache.join("plancher").join("models"),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
            offline: flag("HF_HUB_OFFLINE") || flag("TRANSFORMERS_OFFLINE"),
            python: PathBuf::from("python3"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> SourceSettings {
        SourceSettings::from_variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn caches_follow_the_usual_variables_in_their_order() {
        let cache = |variables| settings(variables).hub_cache.display().to_string();
        assert_eq!(cache(&[("HOME", "/h")]), "/h/.cache/huggingface/hub");
        assert_eq!(cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")]), "/f/hub");
        assert_eq!(cache(&[("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/old")]), "/old");
        assert_eq!(cache(&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")]), "/new");
        assert_eq!(cache(&[("HOME", "/h"), ("HF_HUB_CACHE", "")]), "/h/.cache/huggingface/hub");
        assert_eq!(settings(&[("HOME", "/h")]).preset_cache.display().to_string(), "/h/.cache/plancher/models");
    }

    #[test]
    fn flags_tokens_and_the_endpoint_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "hf_file\n").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(settings(&[("HF_TOKEN_PATH", path)]).token.as_deref(), Some("hf_file"));
        assert_eq!(settings(&[("HF_TOKEN_PATH", path), ("HF_TOKEN", " hf_x ")]).token.as_deref(), Some("hf_x"));
        assert_eq!(settings(&[("HF_HOME", directory.path().to_str().unwrap())]).token.as_deref(), Some("hf_file"));
        assert_eq!(settings(&[("HF_ENDPOINT", "http://localhost:1/")]).endpoint, "http://localhost:1");
        assert!(settings(&[("TRANSFORMERS_OFFLINE", "yes")]).offline);
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).offline);
    }
}
