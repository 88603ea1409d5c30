//! Perplexity as llama.cpp's `llama-perplexity` defines it, so that figures can be compared: the text's tokens are cut
//! into windows of `window` tokens, each computed from an empty cache with its first token replaced by the begin
//! token (where the tokenizer adds one); the tokens after the first half of a window are scored, so that each has
//! between half a window and a window of context.

use crate::sampling::log_sum_exp;
use crate::{Backend, EngineError, LogitsOf, Result};

/// Positions whose logits are kept at a time: bounds memory at 64 rows of the vocabulary.
const SLICE: usize = 64;

/// The fewest tokens of a window.
pub const LEAST_WINDOW: usize = 4;

/// A running or final estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Perplexity {
    /// `exp(mean negative log-likelihood)`.
    pub perplexity: f64,
    /// One standard error of it.
    pub standard_error: f64,
    /// Tokens scored.
    pub tokens: usize,
    /// Windows done.
    pub windows: usize,
}

/// Scores `tokens` (begin token already in front where the tokenizer adds one). `progress` receives the running
/// estimate after each window and the number of windows, and returns false to stop there.
///
/// # Errors
/// When there are fewer than two windows of tokens, the window is less than [`LEAST_WINDOW`] or more than the backend's capacity,
/// or a token is unknown; when the backend fails.
pub fn perplexity(
    backend: &mut dyn Backend,
    tokens: &[u32],
    window: usize,
    begin_token: Option<u32>,
    progress: &mut dyn FnMut(Perplexity, usize) -> bool,
) -> Result<Perplexity> {
    if window < LEAST_WINDOW {
        return Err(EngineError::Parameter { name: "context", expected: "at least 4", value: window.to_string() });
    }
    if window > backend.capacity() {
        return Err(EngineError::PromptTooLong { prompt: window, context: backend.capacity() });
    }
    if tokens.len() < 2 * window {
        return Err(EngineError::TextTooShort { tokens: tokens.len(), window, needed: 2 * window });
    }
    let vocab_size = backend.vocab_size();
    if let Some(&token) = tokens.iter().chain(&begin_token).find(|&&token| token as usize >= vocab_size) {
        return Err(EngineError::UnknownToken { token, vocab_size });
    }
    let n_windows = tokens.len() / window;
    let (mut sum, mut sum_of_squares, mut estimate) = (0.0, 0.0, Perplexity::default());
    for chunk in tokens.chunks_exact(window) {
        for loss in window_losses(backend, chunk, begin_token)? {
            sum += loss;
            sum_of_squares += loss * loss;
            estimate.tokens += 1;
        }
        let n = estimate.tokens as f64;
        let mean = sum / n;
        let variance_of_mean = ((sum_of_squares / n - mean * mean) / (n - 1.0)).max(0.0);
        estimate.perplexity = mean.exp();
        estimate.standard_error = if n > 1.0 { estimate.perplexity * variance_of_mean.sqrt() } else { 0.0 };
        estimate.windows += 1;
        if !progress(estimate, n_windows) {
            break;
        }
    }
    backend.truncate(0);
    Ok(estimate)
}

/// Negative log-likelihoods of the tokens after the first half of `chunk`.
fn window_losses(backend: &mut dyn Backend, chunk: &[u32], begin_token: Option<u32>) -> Result<Vec<f64>> {
    let mut input = chunk.to_vec();
    if let Some(token) = begin_token {
        input[0] = token;
    }
    // Logits at `first` predict the first scored token; the last token of the window is only predicted.
    let first = chunk.len() / 2;
    let (unscored, scored) = input[..chunk.len() - 1].split_at(first);
    let vocab_size = backend.vocab_size();
    let position_error = |position| EngineError::NotFinite { position };
    let mut losses = Vec::with_capacity(scored.len());
    backend.truncate(0);
    if !unscored.is_empty() {
        backend.prefill(unscored, LogitsOf::Last, &mut |_| true)?;
    }
    for (slice, targets) in scored.chunks(SLICE).zip(chunk[first + 1..].chunks(SLICE)) {
        let start = first + losses.len();
        let logits = backend.prefill(slice, LogitsOf::All, &mut |_| true)?;
        for (offset, (row, &target)) in logits.chunks_exact(vocab_size).zip(targets).enumerate() {
            let loss = log_sum_exp(row) - f64::from(row[target as usize]);
            if !loss.is_finite() {
                return Err(position_error(start + offset));
            }
            losses.push(loss);
        }
    }
    Ok(losses)
}
