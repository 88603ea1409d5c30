//! How byte-level BPE vocabularies in GGUF files cut a text into words before merging: the regular
//! expressions that stand behind the names in `tokenizer.ggml.pre`.
//!
//! The expressions are those of the models' own `tokenizer.json`, run by an engine without look-ahead so that
//! no text takes more than linear time. Their one look-ahead, `\s+(?!\S)` (a run of white space leaves its last
//! character to the word behind it), is applied to the match instead.

use regex::Regex;

/// Contractions that GPT-2 splits off.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const DIGIT: &str = r"\p{N}";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
/// Chinese and Korean, as DeepSeek delimits them.
const DEEPSEEK_CJK: &str = r"[一-龥ࠀ-一가-퟿]+";

/// A family of pre-tokenizers.
struct Family {
    /// Names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Expressions, each applied to the pieces that the ones before it left.
    stages: &'static [&'static str],
    /// A word that is a token as it stands is not built from merges.
    ignore_merges: bool,
    /// A begin token is added unless the file says otherwise.
    add_begin: bool,
}

const FAMILIES: &[Family] = &[
    Family {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        stages: &[LLAMA3],
        ignore_merges: true,
        add_begin: true,
    },
    Family { names: &["smaug-bpe", "dbrx", "chatglm-bpe"], stages: &[LLAMA3], ignore_merges: false, add_begin: false },
    Family { names: &["glm4"], stages: &[LLAMA3], ignore_merges: true, add_begin: false },
    Family {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo"],
        stages: &[QWEN2],
        ignore_merges: false,
        add_begin: false,
    },
    Family { names: &["qwen35"], stages: &[QWEN35], ignore_merges: false, add_begin: false },
    Family {
        names: &["gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum", "a.x-4.0", "granite-docling"],
        stages: &[GPT2],
        ignore_merges: false,
        add_begin: false,
    },
    Family {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        stages: &[DIGIT, GPT2],
        ignore_merges: false,
        add_begin: false,
    },
    Family { names: &["tekken"], stages: &[TEKKEN], ignore_merges: true, add_begin: true },
    Family { names: &["gpt-4o", "llama4", "kanana2"], stages: &[GPT4O], ignore_merges: false, add_begin: false },
    Family {
        names: &["deepseek-coder"],
        stages: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, DIGIT],
        ignore_merges: false,
        add_begin: false,
    },
    Family {
        names: &["falcon"],
        stages: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_begin: false,
    },
    Family {
        names: &["default"],
        stages: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_begin: false,
    },
];

/// One expression of a pre-tokenizer.
#[derive(Clone, Debug)]
struct Stage {
    expression: Regex,
    /// The expression ends in `\s+(?!\S)|\s+` in its original form.
    gives_back_space: bool,
    /// White space that ends in a line break is matched by an alternative of its own and kept whole.
    keeps_line_breaks: bool,
}

/// Cuts a text into words.
#[derive(Clone, Debug)]
pub(super) struct PreTokenizer {
    stages: Vec<Stage>,
    /// A word that is a token as it stands is not built from merges.
    pub(super) ignore_merges: bool,
    /// A begin token is added unless the file says otherwise.
    pub(super) add_begin: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer of that name, or nothing when the name is not known.
    pub(super) fn named(name: &str) -> Option<Self> {
        let family = FAMILIES.iter().find(|family| family.names.contains(&name))?;
        let stages = family.stages.iter().map(|expression| {
            let gives_back_space = expression.ends_with(r"|\s+");
            let keeps_line_breaks = expression.contains(r"|\s*[\r\n]+|");
            Regex::new(expression).ok().map(|expression| Stage { expression, gives_back_space, keeps_line_breaks })
        });
        let stages = stages.collect::<Option<_>>()?;
        Some(Self { stages, ignore_merges: family.ignore_merges, add_begin: family.add_begin })
    }

    /// Every known name, for the message that refuses another one.
    pub(super) fn names() -> String {
        FAMILIES.iter().flat_map(|family| family.names).copied().collect::<Vec<_>>().join(", ")
    }

    /// The words of `text`, in order; together they are the text.
    pub(super) fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = vec![text];
        for stage in &self.stages {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                stage.split(piece, &mut finer);
            }
            pieces = finer;
        }
        pieces
    }
}

impl Stage {
    /// Pushes the matches in `piece`, and what lies between them.
    fn split<'t>(&self, piece: &'t str, output: &mut Vec<&'t str>) {
        let mut start = 0;
        while let Some(found) = self.expression.find_at(piece, start) {
            let end = self.end_of(piece, found.start(), found.end());
            if found.start() > start {
                output.push(&piece[start..found.start()]);
            }
            output.push(&piece[found.start()..end]);
            start = end;
        }
        if start < piece.len() {
            output.push(&piece[start..]);
        }
    }

    /// Where a match ends once a run of white space has given its last character back to the word behind it.
    fn end_of(&self, piece: &str, start: usize, end: usize) -> usize {
        let matched = &piece[start..end];
        if !self.gives_back_space
            || end == piece.len()
            || !matched.chars().all(char::is_whitespace)
            || (self.keeps_line_breaks && matched.ends_with(['\r', '\n']))
        {
            return end;
        }
        match matched.char_indices().next_back() {
            Some((last, _)) if last > 0 => start + last,
            _ => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(name: &str, text: &'static str) -> Vec<&'static str> {
        PreTokenizer::named(name).unwrap().split(text)
    }

    #[test]
    fn every_listed_expression_compiles() {
        for name in FAMILIES.iter().flat_map(|family| family.names) {
            assert!(PreTokenizer::named(name).is_some(), "{name}");
        }
        assert!(PreTokenizer::named("no-such-thing").is_none());
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        assert_eq!(split("gpt-2", "a   b \n c  "), ["a", "  ", " b", " \n", " c", "  "]);
        assert_eq!(split("llama-bpe", "a   b \n c  "), ["a", "  ", " b", " \n", " c", "  "]);
        assert_eq!(split("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(split("llama-bpe", "a\n\nb"), ["a", "\n\n", "b"]);
    }

    #[test]
    fn digits_are_grouped_as_the_family_says() {
        assert_eq!(split("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(split("qwen2", "123"), ["1", "2", "3"]);
        assert_eq!(split("smollm", " 12a"), [" ", "1", "2", "a"]);
        assert_eq!(split("gpt-2", " 12a"), [" 12", "a"]);
    }

    #[test]
    fn nothing_of_the_text_is_lost() {
        let text = "Ünï¢öde 日本語\u{3000}\t'RE they'Ll 3.14\r\n\r\n  🦙!! \u{0301}x";
        for name in FAMILIES.iter().flat_map(|family| family.names) {
            assert_eq!(PreTokenizer::named(name).unwrap().split(text).concat(), text, "{name}");
        }
    }
}
