//! What GGUF metadata say about text: the tokenizer's lists, end tokens, and sampling defaults.

use super::metadata::GgufMetadata;
use crate::{ChatTemplate, GenerationDefaults, GgufVocabulary, Result, Tokenizer};

/// What a file says about text.
pub(super) struct Text {
    pub(super) generation: GenerationDefaults,
    /// Nothing when the file has no tokens.
    pub(super) tokenizer: Option<Tokenizer>,
    /// Nothing when the file has no template.
    pub(super) chat_template: Option<ChatTemplate>,
}

/// Reads generation defaults, tokenizer and chat template.
pub(super) fn read(metadata: &GgufMetadata<'_>) -> Result<Text> {
    let vocabulary = GgufVocabulary::from_metadata(metadata)?;
    let generation = generation(metadata, &vocabulary)?;
    let tokenizer = if vocabulary.tokens.is_empty() { None } else { Some(Tokenizer::from_gguf(&vocabulary)?) };
    let token = |id: Option<u32>| id.and_then(|id| vocabulary.tokens.get(id as usize)).map(String::as_str);
    let chat_template = metadata
        .text("tokenizer.chat_template")?
        .map(|source| ChatTemplate::from_gguf(metadata.path(), source, token(vocabulary.begin), token(vocabulary.end)));
    Ok(Text { generation, tokenizer, chat_template })
}

fn generation(metadata: &GgufMetadata<'_>, vocabulary: &GgufVocabulary) -> Result<GenerationDefaults> {
    let mut defaults = GenerationDefaults {
        end_tokens: vocabulary.end_tokens(),
        begin_token: vocabulary.begin.filter(|_| vocabulary.add_begin != Some(false)),
        ..GenerationDefaults::default()
    };
    let within = |name: &str, low: f64, high: f64| {
        let key = format!("general.sampling.{name}");
        match metadata.number(&key)? {
            Some(n) if !(low..=high).contains(&n) => {
                Err(metadata.invalid(&key, format!("is {n}, expected a number from {low} to {high}")))
            }
            number => Ok(number.map(|n| n as f32)),
        }
    };
    defaults.temperature = within("temp", 0.0, 100.0)?;
    defaults.top_p = within("top_p", 0.0, 1.0)?;
    defaults.min_p = within("min_p", 0.0, 1.0)?;
    defaults.repetition_penalty = within("penalty_repeat", 0.01, 100.0)?;
    // Zero switches it off.
    defaults.top_k = within("top_k", 0.0, f64::from(u32::MAX))?.map(|n| n as usize).filter(|&n| n > 0);
    Ok(defaults)
}

impl GgufVocabulary {
    /// The tokenizer's fields in a file's metadata. `tokens` is empty when the file has no tokenizer.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn from_metadata(metadata: &GgufMetadata<'_>) -> Result<Self> {
        let texts = |key: &str| -> Result<Vec<String>> {
            Ok(metadata.texts(key)?.unwrap_or_default().into_iter().map(str::to_owned).collect())
        };
        Ok(Self {
            path: metadata.path().to_owned(),
            model_name: metadata.text("general.name")?.unwrap_or_default().to_owned(),
            model: metadata.text("tokenizer.ggml.model")?.unwrap_or_default().to_owned(),
            pre: metadata.text("tokenizer.ggml.pre")?.map(str::to_owned),
            tokens: texts("tokenizer.ggml.tokens")?,
            scores: metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default(),
            types: metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: texts("tokenizer.ggml.merges")?,
            begin: metadata.token("tokenizer.ggml.bos_token_id")?,
            end: metadata.token("tokenizer.ggml.eos_token_id")?,
            end_of_turn: metadata.token("tokenizer.ggml.eot_token_id")?,
            end_of_message: metadata.token("tokenizer.ggml.eom_token_id")?,
            add_begin: metadata.flag("tokenizer.ggml.add_bos_token")?,
            add_end: metadata.flag("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: metadata.flag("tokenizer.ggml.add_space_prefix")?,
        })
    }
}
