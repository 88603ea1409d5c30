//! Where chat templates are stored: `chat_template.jinja`, `tokenizer_config.json`, the metadata of a GGUF file.

use std::path::Path;

use serde_json::{Map, Value};

use super::guard::MAX_SOURCE;
use super::{ChatTemplate, DEFAULT};
use crate::json::read_optional;
use crate::tokenizer::{read_config, token_text};
use crate::{ModelError, Result};

/// The time where the process runs.
fn local_time() -> chrono::NaiveDateTime {
    chrono::Local::now().naive_local()
}

impl ChatTemplate {
    /// Finds the template of a model directory: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json`, a string or a list of named ones. Nothing when there is none.
    ///
    /// # Errors
    /// When a file is malformed or too large. A template that does not compile is an error of
    /// [`render`](Self::render): the model can be used without it.
    pub fn from_directory(directory: &Path) -> Result<Option<Self>> {
        let config_path = directory.join("tokenizer_config.json");
        let config = read_config(&config_path)?;
        let special_tokens = special_tokens(&config);
        let path = directory.join("chat_template.jinja");
        if let Some(bytes) = read_optional(&path, MAX_SOURCE as u64)? {
            let source =
                String::from_utf8(bytes).map_err(|_| ModelError::invalid(&path, "file", "is not UTF-8 text"))?;
            let templates = vec![(DEFAULT.to_owned(), source)];
            return Ok(Some(Self::new(&path, templates, special_tokens, local_time)));
        }
        let templates = match config.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(source)) => vec![(DEFAULT.to_owned(), source.clone())],
            Some(Value::Array(list)) => named(list).ok_or_else(|| {
                let problem = "is a list whose entries are not all `{\"name\": …, \"template\": …}`";
                ModelError::invalid(&config_path, "chat_template", problem)
            })?,
            Some(_) => {
                return Err(ModelError::invalid(&config_path, "chat_template", "is neither a string nor a list"));
            }
        };
        Ok(Some(Self::new(&config_path, templates, special_tokens, local_time)))
    }

    /// The template in a GGUF file's metadata (`tokenizer.chat_template`), with the texts of its begin and end
    /// tokens.
    #[must_use]
    pub fn from_gguf(path: &Path, source: &str, begin: Option<&str>, end: Option<&str>) -> Self {
        let tokens = [("bos_token", begin), ("eos_token", end)];
        let special_tokens =
            tokens.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?)))).collect();
        Self::new(path, vec![(DEFAULT.to_owned(), source.to_owned())], special_tokens, local_time)
    }
}

/// The named templates of a list.
fn named(list: &[Value]) -> Option<Vec<(String, String)>> {
    let text = |entry: &Value, field: &str| entry[field].as_str().map(str::to_owned);
    list.iter().map(|entry| Some((text(entry, "name")?, text(entry, "template")?))).collect()
}

/// The special tokens that a `tokenizer_config.json` names, as text.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let tokens = config.iter().filter(|(name, _)| name.ends_with("_token")).filter_map(|(name, value)| {
        let text = token_text(value)?;
        Some((name.clone(), Value::from(text)))
    });
    tokens.collect()
}
