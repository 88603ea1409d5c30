//! What to continue: text or token ids, from an argument or standard input, as a chat turn or as it is.

use std::io::{IsTerminal, Read};

use anyhow::Context;
use plancher_model::{ChatMessage, ChatOptions, Model, Tokenizer};

use crate::arguments::parse_ids;
use crate::failure::usage;

/// Longest text read from standard input, in bytes.
const MOST_INPUT: u64 = 64 << 20;

/// What the user gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

impl Prompt {
    /// The prompt from the arguments, else from standard input. `-` stands for standard input.
    pub(crate) fn read(text: Option<&str>, ids: Option<&str>) -> anyhow::Result<Self> {
        match (text, ids) {
            (_, Some("-")) => Ok(Self::Ids(parse_ids(&read_stdin()?).map_err(usage)?)),
            (_, Some(ids)) => Ok(Self::Ids(parse_ids(ids).map_err(|problem| usage(format!("`--ids`: {problem}")))?)),
            (Some(text), None) if text != "-" => Ok(Self::Text(text.to_owned())),
            (None, None) if std::io::stdin().is_terminal() => {
                Err(usage("there is no prompt: give one as an argument, with `--ids`, or on standard input"))
            }
            (_, None) => {
                let mut text = read_stdin()?;
                // The line end that a shell's `echo` adds is not part of the prompt.
                if text.ends_with('\n') {
                    text.pop();
                    if text.ends_with('\r') {
                        text.pop();
                    }
                }
                Ok(Self::Text(text))
            }
        }
    }
}

/// All of standard input.
pub(crate) fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().take(MOST_INPUT + 1).read_to_string(&mut text).context("standard input")?;
    if text.len() as u64 > MOST_INPUT {
        return Err(usage(format!("standard input has more than {MOST_INPUT} bytes")));
    }
    Ok(text)
}

/// The model's tokenizer, or an error that says what works without one.
pub(crate) fn tokenizer(model: &Model) -> anyhow::Result<&Tokenizer> {
    model.tokenizer.as_ref().ok_or_else(|| {
        let path = model.path.display();
        usage(format!("`{path}` has no tokenizer, so text cannot be read or shown: give token ids with `--ids` (`perplexity`: `--ids-file`)"))
    })
}

/// The tokens of a conversation, ready for the model's next turn.
pub(crate) fn chat_tokens(model: &Model, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
    let template = model
        .chat_template
        .as_ref()
        .ok_or_else(|| usage(format!("`{}` has no chat template: use `generate --raw`", model.path.display())))?;
    let text = template.render(messages, &ChatOptions { add_generation_prompt: true, ..ChatOptions::default() })?;
    // The template writes the begin token itself where the model wants one.
    Ok(tokenizer(model)?.encode(&text, false, true)?)
}

/// The tokens of a text as it is.
pub(crate) fn raw_tokens(model: &Model, text: &str) -> anyhow::Result<Vec<u32>> {
    Ok(tokenizer(model)?.encode(text, true, false)?)
}

/// Every token that ends an answer.
pub(crate) fn end_tokens(model: &Model) -> Vec<u32> {
    let mut tokens = model.generation.end_tokens.clone();
    tokens.extend(model.tokenizer.iter().flat_map(Tokenizer::end_tokens));
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// The bytes that a generated token shows: nothing for a special one, and nothing without a tokenizer.
pub(crate) fn shown_bytes(model: &Model, token: u32) -> Vec<u8> {
    let tokenizer = model.tokenizer.as_ref().filter(|tokenizer| !tokenizer.is_special(token));
    tokenizer.map(|tokenizer| tokenizer.token_bytes(token).to_vec()).unwrap_or_default()
}
