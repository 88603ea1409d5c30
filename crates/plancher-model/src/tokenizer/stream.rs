//! Text of a growing sequence of tokens: a token may end in the middle of a character, so bytes are held back
//! until the character is complete.

use super::Tokenizer;

/// Turns tokens into text as they arrive. What [`push`](Self::push) and [`finish`](Self::finish) return, put
/// together, is the text of all tokens, with U+FFFD for bytes that can never be a character.
#[derive(Debug)]
pub struct DecodeStream<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    held: Vec<u8>,
}

impl<'t> DecodeStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, held: Vec::new() }
    }

    /// The text that is complete once `id` has been added; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> String {
        if !(self.skip_special && self.tokenizer.is_special(id)) {
            self.held.extend_from_slice(self.tokenizer.token_bytes(id));
        }
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let broken = chunk.invalid();
            // Only what ends the bytes may still become a character.
            if !broken.is_empty() {
                if done + broken.len() == self.held.len() && may_continue(broken) {
                    break;
                }
                text.push(char::REPLACEMENT_CHARACTER);
                done += broken.len();
            }
        }
        self.held.drain(..done);
        text
    }

    /// What is left when no token follows: U+FFFD for an incomplete character.
    #[must_use]
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

/// Whether bytes that are no character could be the beginning of one.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}
