//! The tokenizer in the metadata of a GGUF file (`tokenizer.ggml.*`), read as llama.cpp reads it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::byte_pair::BytePair;
use super::pre_tokenizer::PreTokenizer;
use super::sentence_piece::{SPACE, SentencePiece};
use super::special::{Fragment, SpecialToken, SpecialTokens};
use super::{Engine, Tokenizer, byte_level};
use crate::{ModelError, Result};

/// `tokenizer.ggml.token_type` of an ordinary token.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Texts of tokens that end a turn or a text, whatever the metadata says: llama.cpp stops at them too.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<EOT>",
    "</s>",
    "<eos>",
];

/// The fields of `tokenizer.ggml.*` that matter here, as stored.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// The GGUF file, for messages.
    pub path: PathBuf,
    /// `general.name`, empty when absent.
    pub model_name: String,
    /// `model`: the kind of tokenizer.
    pub model: String,
    /// `pre`: the pre-tokenizer of a BPE vocabulary.
    pub pre: Option<String>,
    /// `tokens`, by id.
    pub tokens: Vec<String>,
    /// `scores`, by id; empty when absent.
    pub scores: Vec<f32>,
    /// `token_type`, by id; empty when absent, and then every token is an ordinary one.
    pub types: Vec<i32>,
    /// `merges`, best first.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub begin: Option<u32>,
    /// `eos_token_id`.
    pub end: Option<u32>,
    /// `eot_token_id`.
    pub end_of_turn: Option<u32>,
    /// `eom_token_id`.
    pub end_of_message: Option<u32>,
    /// `add_bos_token`.
    pub add_begin: Option<bool>,
    /// `add_eos_token`.
    pub add_end: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
}

/// Tokenisation from GGUF metadata.
#[derive(Debug)]
pub(super) struct GgufTokenizer {
    method: Method,
    /// Special and user-defined tokens, for texts in which special tokens count.
    parsed: SpecialTokens,
    /// User-defined tokens alone, which are tokens in every text.
    user_defined: SpecialTokens,
    /// The token put first.
    prefix: Option<u32>,
    /// The token put last.
    suffix: Option<u32>,
}

#[derive(Debug)]
enum Method {
    BytePair(BytePair),
    SentencePiece(SentencePiece),
}

impl GgufTokenizer {
    pub(super) fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> std::result::Result<Vec<u32>, String> {
        let special = if parse_special { &self.parsed } else { &self.user_defined };
        let mut output = Vec::new();
        output.extend(self.prefix.filter(|_| add_special));
        let mut after_special = true;
        for fragment in special.partition(text) {
            let text = match fragment {
                Fragment::Token(id) => {
                    output.push(id);
                    after_special = true;
                    continue;
                }
                Fragment::Text(text) => text,
            };
            let encoded = match &self.method {
                Method::BytePair(method) => method.encode(text, &mut output),
                Method::SentencePiece(method) => method.encode(text, after_special, &mut output),
            };
            encoded.map_err(|byte| format!("the vocabulary has no token for the byte `0x{byte:02X}`"))?;
            after_special = false;
        }
        output.extend(self.suffix.filter(|_| add_special));
        Ok(output)
    }
}

impl GgufVocabulary {
    fn invalid(&self, field: &str, problem: impl Into<String>) -> ModelError {
        ModelError::invalid(&self.path, format!("tokenizer.ggml.{field}"), problem)
    }

    fn token_type(&self, id: u32) -> i32 {
        self.types.get(id as usize).copied().unwrap_or(NORMAL)
    }

    fn ids(&self) -> impl Iterator<Item = (u32, &str)> {
        self.tokens.iter().enumerate().map(|(id, text)| (id as u32, text.as_str()))
    }

    /// The lengths of the lists and the ids against each other.
    fn check(&self) -> Result<()> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(self.invalid("tokens", "is missing or empty"));
        }
        for (field, length) in [("scores", self.scores.len()), ("token_type", self.types.len())] {
            if length != 0 && length < count {
                return Err(self.invalid(field, format!("has `{length}` entries for `{count}` tokens")));
            }
        }
        let ids = [
            ("bos_token_id", self.begin),
            ("eos_token_id", self.end),
            ("eot_token_id", self.end_of_turn),
            ("eom_token_id", self.end_of_message),
        ];
        for (field, id) in ids {
            if let Some(id) = id.filter(|id| *id as usize >= count) {
                return Err(self.invalid(field, format!("is `{id}`, but there are `{count}` tokens")));
            }
        }
        Ok(())
    }

    /// Tokens whose text is found in texts as it stands: always the user-defined ones, and the special ones
    /// when `all`.
    fn special_tokens(&self, all: bool) -> Result<SpecialTokens> {
        // Phi-3's special tokens take the white space behind them along; GGUF has no field for that.
        let name = self.model_name.to_lowercase();
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        let tokens = self.ids().filter_map(|(id, text)| {
            let kind = self.token_type(id);
            let taken = kind == USER_DEFINED || (all && (kind == CONTROL || kind == UNKNOWN));
            let strip_right = phi3 && !["<unk>", "<s>", "<|endoftext|>"].contains(&text);
            taken.then(|| SpecialToken { id, text: text.to_owned(), strip_right })
        });
        SpecialTokens::new(tokens.collect()).map_err(|problem| self.invalid("tokens", problem))
    }

    fn byte_pair(&self) -> Result<(BytePair, bool, String)> {
        let name = self.pre.as_deref().unwrap_or("default");
        let pre_tokenizer = PreTokenizer::named(name).ok_or_else(|| {
            let known = PreTokenizer::names();
            self.invalid("pre", format!("pre-tokenizer `{name}` is not supported (supported: {known})"))
        })?;
        if self.merges.is_empty() {
            return Err(self.invalid("merges", "is missing or empty"));
        }
        let add_begin = pre_tokenizer.add_begin;
        let ids: HashMap<&str, u32> = self.ids().map(|(id, text)| (text, id)).collect();
        let method = BytePair::new(pre_tokenizer, &ids, &self.merges).map_err(|e| self.invalid("merges", e))?;
        Ok((method, add_begin, format!("byte-level BPE ({name})")))
    }

    fn sentence_piece(&self) -> Result<SentencePiece> {
        if self.scores.is_empty() {
            return Err(self.invalid("scores", "is missing or empty"));
        }
        if let Some(id) = self.scores.iter().position(|score| score.is_nan()) {
            return Err(self.invalid("scores", format!("entry {id} is NaN")));
        }
        let mut byte_tokens = vec![None; 256];
        for (id, text) in self.ids() {
            if let Some(byte) = byte_of(text) {
                byte_tokens[byte as usize] = Some(id);
            } else if let [byte] = text.as_bytes() {
                byte_tokens[*byte as usize].get_or_insert(id);
            }
        }
        // Merging must not form the text of a control token: what a user types stays text.
        let pieces = self
            .ids()
            .filter(|(id, text)| !text.is_empty() && matches!(self.token_type(*id), NORMAL | USER_DEFINED | UNUSED));
        let scored = pieces.map(|(id, text)| (text, id, self.scores[id as usize]));
        Ok(SentencePiece::new(scored, byte_tokens, self.add_space_prefix.unwrap_or(true)))
    }

    /// The bytes each token stands for.
    fn pieces(&self, byte_level: bool) -> Vec<Box<[u8]>> {
        let piece = |(id, text): (u32, &str)| -> Vec<u8> {
            match self.token_type(id) {
                BYTE => byte_of(text).map_or_else(|| text.as_bytes().to_vec(), |byte| vec![byte]),
                CONTROL | UNKNOWN | USER_DEFINED => text.as_bytes().to_vec(),
                _ if byte_level => byte_level::decode(text).unwrap_or_else(|| text.as_bytes().to_vec()),
                _ => text.replace(SPACE, " ").into_bytes(),
            }
        };
        self.ids().map(|token| piece(token).into_boxed_slice()).collect()
    }

    /// Tokens that end a text or a turn, ascending.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        let named = [self.end, self.end_of_turn, self.end_of_message].into_iter().flatten();
        let known = self
            .ids()
            .filter(|(id, text)| END_TEXTS.contains(text) && matches!(self.token_type(*id), CONTROL | USER_DEFINED));
        let mut ids: Vec<u32> = named.chain(known.map(|(id, _)| id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// The byte that `<0x41>` spells.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file's metadata describes.
    ///
    /// # Errors
    /// When the tokenizer's model or pre-tokenizer is not supported, or its lists do not fit each other.
    pub fn from_gguf(vocabulary: &GgufVocabulary) -> Result<Self> {
        vocabulary.check()?;
        let (method, add_begin, add_end, description) = match vocabulary.model.as_str() {
            "gpt2" => {
                let (method, add_begin, description) = vocabulary.byte_pair()?;
                (Method::BytePair(method), add_begin, false, description)
            }
            "llama" => (Method::SentencePiece(vocabulary.sentence_piece()?), true, false, "SentencePiece".to_owned()),
            other => {
                let problem = format!("tokenizer `{other}` is not supported (supported: gpt2, llama)");
                return Err(vocabulary.invalid("model", problem));
            }
        };
        let added = |wanted: bool, token: Option<u32>| token.filter(|_| wanted);
        let strips_space = matches!(&method, Method::SentencePiece(method) if method.add_space_prefix);
        let byte_level = matches!(method, Method::BytePair(_));
        let engine = GgufTokenizer {
            method,
            parsed: vocabulary.special_tokens(true)?,
            user_defined: vocabulary.special_tokens(false)?,
            prefix: added(vocabulary.add_begin.unwrap_or(add_begin), vocabulary.begin),
            suffix: added(vocabulary.add_end.unwrap_or(add_end), vocabulary.end),
        };
        let end_tokens = vocabulary.end_tokens();
        let control = vocabulary.ids().map(|(id, _)| id).filter(|id| vocabulary.token_type(*id) == CONTROL);
        let special: HashSet<u32> = control.chain(end_tokens.iter().copied()).collect();
        Ok(Self {
            path: vocabulary.path.clone(),
            engine: Engine::Gguf(Box::new(engine)),
            pieces: vocabulary.pieces(byte_level),
            special,
            begin: vocabulary.begin,
            end: vocabulary.end,
            end_tokens,
            strips_space,
            description: format!("{description}, {} tokens", vocabulary.tokens.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SentencePiece vocabulary of a few pieces, the 256 bytes and a chat mark.
    fn sentence_piece() -> GgufVocabulary {
        let mut vocabulary = GgufVocabulary {
            path: "test.gguf".into(),
            model: "llama".into(),
            begin: Some(1),
            end: Some(2),
            ..Default::default()
        };
        let mut push = |text: &str, score: f32, kind: i32| {
            vocabulary.tokens.push(text.to_owned());
            vocabulary.scores.push(score);
            vocabulary.types.push(kind);
        };
        push("<unk>", 0.0, UNKNOWN);
        push("<s>", 0.0, CONTROL);
        push("</s>", 0.0, CONTROL);
        for byte in 0..=255 {
            push(&format!("<0x{byte:02X}>"), 0.0, BYTE);
        }
        for (text, score) in [("▁", -9.0), ("a", -8.0), ("b", -7.0), ("s>", -1.0), ("ab", -2.0), ("▁ab", -3.0)] {
            push(text, score, NORMAL);
        }
        for text in ["<", "s", ">"] {
            push(text, -20.0, NORMAL);
        }
        push("[mark]", 0.0, USER_DEFINED);
        vocabulary
    }

    fn texts(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|id| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned()).collect()
    }

    #[test]
    fn sentence_piece_merges_by_score_and_falls_back_to_bytes() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        let ids = tokenizer.encode("ab abé", true, true).unwrap();
        assert_eq!(ids[0], 1);
        assert_eq!(texts(&tokenizer, &ids[1..3]), [" ab", " ab"]);
        assert_eq!(ids[3..], [3 + 0xC3, 3 + 0xA9]);
        assert_eq!(tokenizer.decode(&ids, true), "ab abé");
        assert_eq!(tokenizer.encode("", true, true).unwrap(), [1]);
        assert!(tokenizer.encode("", false, true).unwrap().is_empty());
    }

    #[test]
    fn control_tokens_come_only_from_trusted_text() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        assert_eq!(tokenizer.encode("<s>", false, true).unwrap(), [1]);
        let typed = tokenizer.encode("<s>", false, false).unwrap();
        assert_eq!(texts(&tokenizer, &typed), [" ", "<", "s>"]);
        // A user-defined token is one in every text, and the space prefix comes again behind it.
        let marked = tokenizer.encode("a[mark]a", false, false).unwrap();
        assert_eq!(texts(&tokenizer, &marked), [" ", "a", "[mark]", " ", "a"]);
    }

    #[test]
    fn a_stream_holds_incomplete_characters_back() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        let byte = |byte: u8| 3 + u32::from(byte);
        let mut stream = tokenizer.decode_stream(true);
        let parts: Vec<String> =
            [byte(0xF0), byte(0x9F), byte(0xA6), 2, byte(0x99), byte(0xC3)].map(|id| stream.push(id)).into();
        assert_eq!(parts, ["", "", "", "", "🦙", ""]);
        assert_eq!(stream.push(byte(b'x')), "\u{FFFD}x");
        assert_eq!(stream.push(byte(0xE2)), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_long_word_takes_no_quadratic_time() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        let text = "ab".repeat(1 << 20);
        assert_eq!(tokenizer.encode(&text, false, false).unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_is_not_supported_or_does_not_fit_is_named() {
        let refused = |change: fn(&mut GgufVocabulary)| {
            let mut vocabulary = sentence_piece();
            change(&mut vocabulary);
            Tokenizer::from_gguf(&vocabulary).unwrap_err().to_string()
        };
        insta::assert_snapshot!(refused(|v| v.model = "bert".into()), @"`test.gguf`: `tokenizer.ggml.model`: tokenizer `bert` is not supported (supported: gpt2, llama)");
        insta::assert_snapshot!(refused(|v| v.scores.truncate(3)), @"`test.gguf`: `tokenizer.ggml.scores`: has `3` entries for `269` tokens");
        insta::assert_snapshot!(refused(|v| v.scores[5] = f32::NAN), @"`test.gguf`: `tokenizer.ggml.scores`: entry 5 is NaN");
        insta::assert_snapshot!(refused(|v| v.end = Some(9999)), @"`test.gguf`: `tokenizer.ggml.eos_token_id`: is `9999`, but there are `269` tokens");
        insta::assert_snapshot!(refused(|v| v.tokens.clear()), @"`test.gguf`: `tokenizer.ggml.tokens`: is missing or empty");
        let bpe = |change: fn(&mut GgufVocabulary)| {
            let mut vocabulary = GgufVocabulary {
                path: "test.gguf".into(),
                model: "gpt2".into(),
                pre: Some("gpt-2".into()),
                tokens: ["a", "b", "ab"].map(str::to_owned).into(),
                merges: vec!["a b".into()],
                ..Default::default()
            };
            change(&mut vocabulary);
            Tokenizer::from_gguf(&vocabulary).and_then(|t| t.encode("abc", true, true)).unwrap_err().to_string()
        };
        insta::assert_snapshot!(bpe(|_| ()), @"`test.gguf`: `text`: the vocabulary has no token for the byte `0x63`");
        let unknown = bpe(|v| v.pre = Some("brand-new".into()));
        assert!(unknown.contains("`brand-new` is not supported (supported: llama-bpe, "), "{unknown}");
        insta::assert_snapshot!(bpe(|v| v.merges.push("ab".into())), @"`test.gguf`: `tokenizer.ggml.merges`: entry 1 `ab` is not two tokens");
        insta::assert_snapshot!(bpe(|v| v.merges.push("ab c".into())), @"`test.gguf`: `tokenizer.ggml.merges`: entry 1 `ab c` names `abc`, which is not a token");
        insta::assert_snapshot!(bpe(|v| v.merges.clear()), @"`test.gguf`: `tokenizer.ggml.merges`: is missing or empty");
    }
}
