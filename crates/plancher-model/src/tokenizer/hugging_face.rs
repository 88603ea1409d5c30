//! The tokenizer of a Hugging Face directory: `tokenizer.json` through the `tokenizers` crate, and the begin
//! and end tokens that `tokenizer_config.json` names.

use std::collections::HashSet;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::gguf::byte_of;
use super::sentence_piece::SPACE;
use super::{Engine, Tokenizer, byte_level};
use crate::json::read_optional;
use crate::{ModelError, Result};

/// The largest `tokenizer.json` that is read, in bytes; real ones stay below 40 MiB.
const MAX_FILE: u64 = 256 << 20;
/// The largest `tokenizer_config.json`, which may list every added token.
const MAX_CONFIG: u64 = 32 << 20;
/// Ids must be below this; real vocabularies end near 300,000.
const MAX_VOCABULARY: usize = 1 << 22;

/// Tokenisation from a `tokenizer.json`.
#[derive(Debug)]
pub(super) struct HuggingFaceTokenizer {
    /// Finds special tokens in the text.
    parsing: tokenizers::Tokenizer,
    /// Takes special tokens as text: the same tokenizer with the switch thrown, made when first wanted.
    plain: OnceLock<tokenizers::Tokenizer>,
}

impl HuggingFaceTokenizer {
    pub(super) fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> std::result::Result<Vec<u32>, String> {
        let tokenizer = if parse_special {
            &self.parsing
        } else {
            self.plain.get_or_init(|| {
                let mut tokenizer = self.parsing.clone();
                tokenizer.set_encode_special_tokens(true);
                tokenizer
            })
        };
        let encoding = tokenizer.encode_fast(text, add_special).map_err(|e| one_line(&e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// How tokens spell bytes.
#[derive(Clone, Copy, PartialEq)]
enum Spelling {
    /// GPT-2's alphabet.
    ByteLevel,
    /// `▁` for a space, `<0x41>` for a byte.
    SentencePiece,
}

impl Spelling {
    /// Reads it off the decoder, or names the decoder.
    fn of(decoder: &Value) -> std::result::Result<Self, String> {
        let kinds: Vec<&str> = match decoder.get("decoders").and_then(Value::as_array) {
            Some(parts) => parts.iter().filter_map(|part| part["type"].as_str()).collect(),
            None => decoder["type"].as_str().into_iter().collect(),
        };
        if kinds.contains(&"ByteLevel") {
            Ok(Self::ByteLevel)
        } else if kinds.iter().any(|kind| ["ByteFallback", "Metaspace", "Replace"].contains(kind)) {
            Ok(Self::SentencePiece)
        } else {
            let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
            Err(format!("decoder `{kinds}` is not supported (supported: ByteLevel, ByteFallback, Metaspace, Replace)"))
        }
    }

    fn bytes(self, text: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => byte_level::decode(text).unwrap_or_else(|| text.as_bytes().to_vec()),
            Self::SentencePiece => {
                byte_of(text).map_or_else(|| text.replace(SPACE, " ").into_bytes(), |byte| vec![byte])
            }
        }
    }
}

/// Whether decoding a whole text takes its first space away again.
fn strips_space(decoder: &Value) -> bool {
    let strips = |part: &Value| match part["type"].as_str() {
        Some("Strip") => part["start"].as_u64() == Some(1),
        Some("Metaspace") => part["prepend_scheme"].as_str() != Some("never"),
        _ => false,
    };
    strips(decoder) || decoder["decoders"].as_array().is_some_and(|parts| parts.iter().any(strips))
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The `tokenizer_config.json` of a directory; an empty object when there is none.
pub(crate) fn read_config(path: &Path) -> Result<Map<String, Value>> {
    let Some(bytes) = read_optional(path, MAX_CONFIG)? else { return Ok(Map::new()) };
    serde_json::from_slice(&bytes).map_err(|e| ModelError::invalid(path, "file", format!("is not a JSON object: {e}")))
}

/// A token as `tokenizer_config.json` writes it: its text, or an object with its text.
pub(crate) fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

impl Tokenizer {
    /// Reads `tokenizer.json` and the special tokens named by `tokenizer_config.json` in a model directory;
    /// nothing when there is no `tokenizer.json`.
    ///
    /// # Errors
    /// When a file is malformed, too large, or describes a tokenizer of an unsupported kind.
    pub fn from_directory(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join("tokenizer.json");
        let Some(bytes) = read_optional(&path, MAX_FILE)? else { return Ok(None) };
        let config_path = directory.join("tokenizer_config.json");
        let config = read_config(&config_path)?;
        let mut tokenizer = Self::from_tokenizer_json(&path, &bytes)?;
        let token = |field: &str| -> Result<Option<u32>> {
            let Some(text) = config.get(field).and_then(token_text) else { return Ok(None) };
            let id = tokenizer.hugging_face().and_then(|engine| engine.parsing.token_to_id(text));
            let unknown = || ModelError::invalid(&config_path, field, format!("names `{text}`, which is not a token"));
            id.map(Some).ok_or_else(unknown)
        };
        let (begin, end) = (token("bos_token")?, token("eos_token")?);
        tokenizer.begin = begin;
        tokenizer.end = end;
        tokenizer.end_tokens = end.into_iter().collect();
        tokenizer.special.extend(begin.into_iter().chain(end));
        Ok(Some(tokenizer))
    }

    fn hugging_face(&self) -> Option<&HuggingFaceTokenizer> {
        match &self.engine {
            Engine::HuggingFace(engine) => Some(engine),
            Engine::Gguf(_) => None,
        }
    }

    /// Builds the tokenizer that the bytes of a `tokenizer.json` describe; `path` is for messages.
    fn from_tokenizer_json(path: &Path, bytes: &[u8]) -> Result<Self> {
        let mut parsing = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|e| ModelError::invalid(path, "tokenizer", one_line(&e.to_string())))?;
        // A file may ask for prompts to be cut or filled up to a length; neither is wanted here.
        parsing.with_padding(None);
        parsing.with_truncation(None).map_err(|e| ModelError::invalid(path, "truncation", one_line(&e.to_string())))?;

        let decoder = serde_json::to_value(parsing.get_decoder())
            .map_err(|e| ModelError::invalid(path, "decoder", e.to_string()))?;
        let spelling = Spelling::of(&decoder).map_err(|problem| ModelError::invalid(path, "decoder", problem))?;
        let added = parsing.get_added_tokens_decoder();
        let vocabulary = parsing.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
        if size == 0 || size > MAX_VOCABULARY {
            let problem = format!("ids go up to `{size}`; they must be from 1 to {MAX_VOCABULARY}");
            return Err(ModelError::invalid(path, "model.vocab", problem));
        }
        let mut pieces = vec![Box::default(); size];
        for (text, id) in vocabulary {
            let bytes = if added.contains_key(&id) { text.into_bytes() } else { spelling.bytes(&text) };
            pieces[id as usize] = bytes.into_boxed_slice();
        }
        let special: HashSet<u32> = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        let kind = match spelling {
            Spelling::ByteLevel => "byte-level",
            Spelling::SentencePiece => "SentencePiece",
        };
        Ok(Self {
            path: path.to_owned(),
            engine: Engine::HuggingFace(Box::new(HuggingFaceTokenizer { parsing, plain: OnceLock::new() })),
            pieces,
            special,
            begin: None,
            end: None,
            end_tokens: Vec::new(),
            strips_space: strips_space(&decoder),
            description: format!("tokenizer.json ({kind}), {size} tokens"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(decoder: &str) -> String {
        format!(
            r#"{{"version":"1.0","truncation":{{"direction":"Right","max_length":1,"strategy":"LongestFirst","stride":0}},
            "padding":null,"added_tokens":[{{"id":6,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,
            "normalized":false,"special":true}}],"normalizer":null,
            "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
            "post_processor":null,"decoder":{decoder},
            "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
            "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
            "vocab":{{"a":0,"b":1,"Ġ":2,"Ġa":3,"Ã":4,"©":5}},"merges":["Ġ a"]}}}}"#
        )
    }

    const BYTE_LEVEL: &str = r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    }

    #[test]
    fn texts_are_tokenised_whole_and_special_tokens_only_where_asked() {
        let config = r#"{"eos_token":{"content":"<|end|>"},"bos_token":null}"#;
        let directory = directory(&[("tokenizer.json", &json(BYTE_LEVEL)), ("tokenizer_config.json", config)]);
        let tokenizer = Tokenizer::from_directory(directory.path()).unwrap().unwrap();
        // The file's own `max_length` of 1 is not applied.
        let ids = tokenizer.encode("ab aé<|end|>", true, true).unwrap();
        assert_eq!(ids, [0, 1, 3, 4, 5, 6]);
        assert_eq!(tokenizer.decode(&ids, true), "ab aé");
        assert_eq!(tokenizer.decode(&ids, false), "ab aé<|end|>");
        assert_eq!(tokenizer.token_bytes(4), [0xC3]);
        assert!(!tokenizer.encode("a<|end|>", true, false).unwrap().contains(&6));
        assert_eq!((tokenizer.begin_token(), tokenizer.end_token()), (None, Some(6)));
        assert_eq!(tokenizer.end_tokens(), [6]);
        assert_eq!(tokenizer.special_token("<|end|>"), Some(6));
        assert_eq!(tokenizer.vocab_size(), 7);
        assert!(tokenizer.token_bytes(99).is_empty());
    }

    #[test]
    fn a_directory_without_a_tokenizer_has_none() {
        assert!(Tokenizer::from_directory(directory(&[]).path()).unwrap().is_none());
    }

    #[test]
    fn malformed_files_are_refused_in_one_line() {
        let refused = |files: &[(&str, &str)]| {
            let directory = directory(files);
            let error = Tokenizer::from_directory(directory.path()).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
            error.replace(&directory.path().display().to_string(), "DIR")
        };
        insta::assert_snapshot!(refused(&[("tokenizer.json", "{")]), @"`DIR/tokenizer.json`: `tokenizer`: EOF while parsing an object at line 1 column 1");
        insta::assert_snapshot!(refused(&[("tokenizer.json", "")]), @"`DIR/tokenizer.json`: `tokenizer`: EOF while parsing a value at line 1 column 0");
        insta::assert_snapshot!(refused(&[("tokenizer.json", &json("null"))]), @"`DIR/tokenizer.json`: `decoder`: decoder `none` is not supported (supported: ByteLevel, ByteFallback, Metaspace, Replace)");
        let config = r#"{"eos_token":"<|nope|>"}"#;
        let files = [("tokenizer.json", json(BYTE_LEVEL)), ("tokenizer_config.json", config.to_owned())];
        insta::assert_snapshot!(refused(&files.each_ref().map(|(name, content)| (*name, content.as_str()))), @"`DIR/tokenizer_config.json`: `eos_token`: names `<|nope|>`, which is not a token");
        let huge = json(BYTE_LEVEL).replace("\"b\":1", "\"b\":4294967295");
        insta::assert_snapshot!(refused(&[("tokenizer.json", &huge)]), @"`DIR/tokenizer.json`: `model.vocab`: ids go up to `4294967296`; they must be from 1 to 4194304");
    }
}
