//! Special tokens inside a text: finds them before the text between them is tokenised, the longest first.

use aho_corasick::{AhoCorasick, MatchKind};

/// A token that is recognised as a whole in a text.
#[derive(Clone, Debug)]
pub(super) struct SpecialToken {
    /// Its id.
    pub(super) id: u32,
    /// Its text in the vocabulary.
    pub(super) text: String,
    /// White space behind it belongs to it.
    pub(super) strip_right: bool,
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// To be tokenised.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// A set of special tokens, compiled for searching.
#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    tokens: Vec<SpecialToken>,
    automaton: AhoCorasick,
}

impl SpecialTokens {
    /// Compiles the set, or says why it cannot be.
    pub(super) fn new(tokens: Vec<SpecialToken>) -> Result<Self, String> {
        let tokens: Vec<SpecialToken> = tokens.into_iter().filter(|token| !token.text.is_empty()).collect();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.text))
            .map_err(|e| format!("the special tokens are too many to search for: {e}"))?;
        Ok(Self { tokens, automaton })
    }

    /// Cuts `text` at its special tokens.
    pub(super) fn partition<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut start = 0;
        while let Some(found) = self.automaton.find(aho_corasick::Input::new(text).span(start..text.len())) {
            if found.start() > start {
                fragments.push(Fragment::Text(&text[start..found.start()]));
            }
            let token = &self.tokens[found.pattern().as_usize()];
            fragments.push(Fragment::Token(token.id));
            start = found.end();
            if token.strip_right {
                start = text.len() - text[start..].trim_start_matches(|c: char| c.is_ascii_whitespace()).len();
            }
        }
        if start < text.len() {
            fragments.push(Fragment::Text(&text[start..]));
        }
        fragments
    }
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    #[test]
    fn the_longest_token_wins_and_white_space_is_stripped_where_asked() {
        let token = |id, text: &str, strip_right| SpecialToken { id, text: text.to_owned(), strip_right };
        let set =
            SpecialTokens::new(vec![token(1, "<a>", false), token(2, "<a><b>", true), token(3, "", false)]).unwrap();
        assert_eq!(set.partition("x<a> y<a><b> \n z"), [Text("x"), Token(1), Text(" y"), Token(2), Text("z")]);
        assert_eq!(set.partition(""), []);
        assert_eq!(set.partition("<a><a>"), [Token(1), Token(1)]);
    }
}
