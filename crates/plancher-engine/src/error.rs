//! The error of this crate: one line that names the setting and the value that was wrong.

use crate::BackendError;

/// Why a request could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A setting is out of its range.
    #[error("`{name}` must be {expected}, not {value}")]
    Parameter {
        /// The setting's name.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        value: String,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty: a model needs at least one token to continue")]
    EmptyPrompt,
    /// A token is not one of the model's.
    #[error("token {token} is not in the model's vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Tokens are `0..vocab_size`.
        vocab_size: usize,
    },
    /// The prompt does not fit.
    #[error("the prompt has {prompt} tokens but the context holds {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions of the context.
        context: usize,
    },
    /// A text is too short to be scored.
    #[error("the text has {tokens} tokens; perplexity with windows of {window} needs at least {needed}")]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Positions of a window.
        window: usize,
        /// The least number of tokens.
        needed: usize,
    },
    /// A backend decodes fewer sequences at once.
    #[error("a batch of {batch} is more than the {most} that this backend decodes at once")]
    BatchTooLarge {
        /// Sequences asked for.
        batch: usize,
        /// The most there can be.
        most: usize,
    },
    /// No logit is a finite number, so there is no best token.
    #[error("the model's logits at position {position} are not finite numbers")]
    NotFinite {
        /// The position whose logits they are.
        position: usize,
    },
    /// The floor's arithmetic refused its input.
    #[error(transparent)]
    Floor(#[from] plancher_floor::FloorError),
    /// The step failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
