//! SentencePiece tokenisation of GGUF vocabularies (`tokenizer.ggml.model` = `llama`): one symbol a character,
//! the neighbours whose joint text has the best score merged first, bytes for what is no token.

use std::collections::HashMap;

use super::merge::{self, Merge};

/// What a space is written as in the vocabulary.
pub(super) const SPACE: &str = "\u{2581}";

/// The pieces of a SentencePiece vocabulary.
#[derive(Clone, Debug)]
pub(super) struct SentencePiece {
    /// A piece's text to its merge rank and token.
    pieces: HashMap<String, Merge>,
    /// The longest piece, in bytes.
    longest: usize,
    /// The token of each byte that is part of no piece.
    byte_tokens: Vec<Option<u32>>,
    /// A space is put before a text that begins the input or follows a special token.
    pub(super) add_space_prefix: bool,
}

/// A rank that sorts scores from the highest to the lowest; of a score that is not NaN.
fn rank(score: f32) -> u32 {
    // Adding zero makes -0 and 0 one score. The bits of a float sort as its value does once the sign is
    // flipped, and all bits for negative ones.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

impl SentencePiece {
    /// Builds the table from the pieces that may come out of merging, as `(text, token, score)`, and the
    /// tokens of the 256 bytes.
    pub(super) fn new<'v>(
        pieces: impl Iterator<Item = (&'v str, u32, f32)>,
        byte_tokens: Vec<Option<u32>>,
        add_space_prefix: bool,
    ) -> Self {
        let pieces: HashMap<String, Merge> =
            pieces.map(|(text, id, score)| (text.to_owned(), Merge { rank: rank(score), id })).collect();
        let longest = pieces.keys().map(String::len).max().unwrap_or(0);
        Self { pieces, longest, byte_tokens, add_space_prefix }
    }

    /// Appends the tokens of `text`; the byte that no token stands for, otherwise.
    pub(super) fn encode(&self, text: &str, space_prefix: bool, output: &mut Vec<u32>) -> Result<(), u8> {
        let mut escaped = String::with_capacity(text.len() + SPACE.len());
        if space_prefix && self.add_space_prefix {
            escaped.push_str(SPACE);
        }
        for character in text.chars() {
            match character {
                ' ' => escaped.push_str(SPACE),
                other => escaped.push(other),
            }
        }
        let find = |piece: &str| if piece.len() > self.longest { None } else { self.pieces.get(piece).copied() };
        let characters = escaped.chars().map(char::len_utf8);
        let mut symbols = merge::link(characters.map(|length| (length, None)));
        merge::merge_all(&mut symbols, |left, right| find(&escaped[left.start..right.start + right.length]));
        for symbol in symbols.iter().filter(|symbol| symbol.length > 0) {
            let piece = &escaped[symbol.start..symbol.start + symbol.length];
            if let Some(id) = symbol.id.or_else(|| find(piece).map(|merge| merge.id)) {
                output.push(id);
                continue;
            }
            for byte in piece.bytes() {
                output.push(self.byte_tokens[byte as usize].ok_or(byte)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_sort_scores_downwards() {
        let scores = [f32::INFINITY, 1e9, 1.0, 1e-30, 0.0, -1e-30, -1.0, -1e9, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])), "{scores:?}");
        assert_eq!(rank(0.0), rank(-0.0));
    }
}
