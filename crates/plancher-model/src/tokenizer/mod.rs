//! Text to tokens and back, from a `tokenizer.json` or from the metadata of a GGUF file.

mod byte_level;
mod byte_pair;
mod gguf;
mod hugging_face;
mod merge;
mod pre_tokenizer;
mod sentence_piece;
mod special;
mod stream;

use std::collections::HashSet;
use std::path::PathBuf;

use crate::{ModelError, Result};
use gguf::GgufTokenizer;
use hugging_face::HuggingFaceTokenizer;

pub use gguf::GgufVocabulary;
pub(crate) use hugging_face::{read_config, token_text};
pub use stream::DecodeStream;

/// The longest text that is tokenised in one call, in bytes.
const MAX_TEXT: usize = 256 << 20;

/// A model's tokenizer.
///
/// Tokenisation is that of the model's own reference: the `tokenizers` crate for a `tokenizer.json`, and for a
/// GGUF file what llama.cpp makes of the same metadata.
#[derive(Debug)]
pub struct Tokenizer {
    /// The file the vocabulary came from, for messages.
    path: PathBuf,
    engine: Engine,
    /// The bytes of each token, `(vocab_size)`.
    pieces: Vec<Box<[u8]>>,
    /// Tokens that stand for no text: begin, end, role marks.
    special: HashSet<u32>,
    begin: Option<u32>,
    end: Option<u32>,
    /// Every token that ends a generation.
    end_tokens: Vec<u32>,
    /// Encoding puts a space before a text, and decoding takes it away.
    strips_space: bool,
    description: String,
}

#[derive(Debug)]
enum Engine {
    HuggingFace(Box<HuggingFaceTokenizer>),
    Gguf(Box<GgufTokenizer>),
}

impl Tokenizer {
    /// The tokens of `text`.
    ///
    /// `add_special` adds what the model expects around a text (its begin token, if it has one). With
    /// `parse_special`, the text of a special token (`<|im_end|>`) becomes that token, as rendered chat
    /// templates need; without, it is ordinary text, as anything a user typed must be.
    ///
    /// # Errors
    /// When the text is longer than 256 MiB or holds a byte that the vocabulary has no token for.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        if text.len() > MAX_TEXT {
            let problem = format!("has {} bytes; at most {MAX_TEXT} are tokenised at once", text.len());
            return Err(ModelError::invalid(&self.path, "text", problem));
        }
        let ids = match &self.engine {
            Engine::HuggingFace(engine) => engine.encode(text, add_special, parse_special),
            Engine::Gguf(engine) => engine.encode(text, add_special, parse_special),
        };
        ids.map_err(|problem| ModelError::invalid(&self.path, "text", problem))
    }

    /// The text of a whole sequence, without its special tokens if `skip_special`: what was encoded. U+FFFD
    /// stands for bytes that are no character. A continuation is not a whole text, and its first space counts:
    /// that is [`decode_stream`](Self::decode_stream).
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let kept = ids.iter().filter(|id| !(skip_special && self.is_special(**id)));
        let bytes: Vec<u8> = kept.flat_map(|id| self.token_bytes(*id)).copied().collect();
        let bytes = if self.strips_space { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The text of a sequence that is still growing.
    #[must_use]
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special)
    }

    /// The bytes a token stands for, which need not be whole characters; nothing for an id outside the
    /// vocabulary. A special token stands for its own text.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], |piece| piece)
    }

    /// Number of tokens; ids are below it. A model may have more rows in its embedding.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The special token with that text (`<|im_end|>`).
    #[must_use]
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.special.iter().copied().filter(|id| self.token_bytes(*id) == text.as_bytes()).min()
    }

    /// Whether the token stands for no text: begin and end of text, role marks.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The token that begins a text, whether or not one is added.
    #[must_use]
    pub fn begin_token(&self) -> Option<u32> {
        self.begin
    }

    /// The token that ends a text.
    #[must_use]
    pub fn end_token(&self) -> Option<u32> {
        self.end
    }

    /// Every token that the tokenizer's own files mark as the end of a text or a turn, ascending. A
    /// `generation_config.json` may name more.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// What the tokenizer is, in a few words: `byte-level BPE (qwen2), 151936 tokens`.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
}
