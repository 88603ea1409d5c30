//! Byte-level BPE of GGUF vocabularies (`tokenizer.ggml.model` = `gpt2`): words from the pre-tokenizer, one
//! symbol a byte, merged in the order of the merge list.

use std::collections::HashMap;

use super::byte_level::{self, BYTE_TO_CHAR};
use super::merge::{self, Merge};
use super::pre_tokenizer::PreTokenizer;

/// The merge table of a byte-level BPE vocabulary.
#[derive(Clone, Debug)]
pub(super) struct BytePair {
    pre_tokenizer: PreTokenizer,
    /// The token of each single byte.
    byte_tokens: Vec<Option<u32>>,
    /// `(left, right)` to what they merge into.
    merges: HashMap<(u32, u32), Merge>,
    /// Whole words, when they are looked up before merging.
    words: HashMap<Vec<u8>, u32>,
}

impl BytePair {
    /// Builds the table. `token_of` finds a token by its text; `merges` are `left right`, best first.
    ///
    /// Says which merge is wrong otherwise.
    pub(super) fn new(
        pre_tokenizer: PreTokenizer,
        ids: &HashMap<&str, u32>,
        merges: &[String],
    ) -> Result<Self, String> {
        let byte_tokens = BYTE_TO_CHAR.iter().map(|c| ids.get(c.encode_utf8(&mut [0; 4]) as &str).copied()).collect();
        let mut table = HashMap::with_capacity(merges.len());
        let mut joined = String::new();
        for (rank, merge) in merges.iter().enumerate() {
            // A token may itself begin with a space, so the separator is looked for behind the first character.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let Some((left, right)) =
                merge[first..].find(' ').map(|at| (&merge[..first + at], &merge[first + at + 1..]))
            else {
                return Err(format!("entry {rank} `{merge}` is not two tokens"));
            };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let find = |text: &str| {
                ids.get(text)
                    .copied()
                    .ok_or_else(|| format!("entry {rank} `{merge}` names `{text}`, which is not a token"))
            };
            let merge = Merge { rank: rank as u32, id: find(&joined)? };
            table.entry((find(left)?, find(right)?)).or_insert(merge);
        }
        let words = if pre_tokenizer.ignore_merges {
            ids.iter().filter_map(|(text, id)| byte_level::decode(text).map(|bytes| (bytes, *id))).collect()
        } else {
            HashMap::new()
        };
        Ok(Self { pre_tokenizer, byte_tokens, merges: table, words })
    }

    /// Appends the tokens of `text`; the byte that no token stands for, otherwise.
    pub(super) fn encode(&self, text: &str, output: &mut Vec<u32>) -> Result<(), u8> {
        for word in self.pre_tokenizer.split(text) {
            if let Some(id) = self.words.get(word.as_bytes()) {
                output.push(*id);
                continue;
            }
            let mut symbols = merge::link(word.bytes().map(|byte| (1, self.byte_tokens[byte as usize])));
            merge::merge_all(&mut symbols, |left, right| self.merges.get(&(left.id?, right.id?)).copied());
            for symbol in symbols.iter().filter(|symbol| symbol.length > 0) {
                output.push(symbol.id.ok_or(word.as_bytes()[symbol.start])?);
            }
        }
        Ok(())
    }
}
