//! One sequence on a backend, with the tokens that its KV cache holds, so that the next prompt computes only what
//! differs: a conversation's turns, or a prompt that was extended.

use crate::sampling::SamplingParams;
use crate::{Backend, EngineError, Executor, LogitsOf, Result, Telemetry};

/// A backend and the tokens it holds.
pub struct Sequence {
    backend: Box<dyn Backend>,
    tokens: Vec<u32>,
    /// Logits after the last token, `(vocab_size)`; empty before the first.
    logits: Vec<f32>,
}

/// What a prefill did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens that were already in the cache.
    pub reused: usize,
    /// Tokens computed.
    pub computed: usize,
    /// False when `progress` stopped it: there are no logits to continue from.
    pub complete: bool,
}

impl Sequence {
    /// An empty sequence on `backend`.
    #[must_use]
    pub fn new(mut backend: Box<dyn Backend>) -> Self {
        backend.truncate(0);
        Self { backend, tokens: Vec::new(), logits: Vec::new() }
    }

    /// The tokens held by the cache.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// The read ceiling of the backend's weights, GB/s, measured now.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn read_ceiling(&mut self) -> Result<f64> {
        Ok(self.backend.read_ceiling()?)
    }

    /// Lets the backend run decode steps in another way, as [`Backend::set_executor`] does.
    ///
    /// # Errors
    /// When it cannot.
    pub fn set_executor(&mut self, executor: Executor) -> Result<()> {
        Ok(self.backend.set_executor(executor)?)
    }

    /// The backend, for what only it can do. Whatever changes the cache must leave it as it was.
    pub(crate) fn backend_mut(&mut self) -> &mut dyn Backend {
        self.backend.as_mut()
    }

    /// The clocks, power and temperature of the backend's device, where it has one.
    pub fn telemetry(&mut self) -> Option<Telemetry> {
        self.backend.telemetry()
    }

    /// Forgets everything: the next prompt is computed from its first token.
    pub fn reset(&mut self) {
        self.backend.truncate(0);
        self.tokens.clear();
        self.logits.clear();
    }

    /// The logits after the last token, `(vocab_size)`; empty when there are none to continue from.
    #[must_use]
    pub fn last_logits(&self) -> &[f32] {
        &self.logits
    }

    /// The same, to be changed for a moment.
    pub(crate) fn last_logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }

    /// Makes the sequence hold exactly `prompt`. What the cache shares with `prompt` from the start stays; the rest is
    /// computed. `progress` is told how many tokens of the prompt are done and returns false to stop.
    ///
    /// # Errors
    /// When the prompt is empty, does not fit, or has a token that is not the model's; when the backend fails.
    pub fn prefill(&mut self, prompt: &[u32], progress: &mut dyn FnMut(usize) -> bool) -> Result<Prefill> {
        check_prompt(prompt, self.backend.as_ref())?;
        // The last token is always computed: the cache holds keys and values, not logits.
        let shared = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(prompt.len() - 1);
        self.backend.truncate(shared);
        self.tokens.truncate(shared);
        self.append(&prompt[shared..], &mut |done| progress(shared + done))?;
        let held = self.tokens.len();
        Ok(Prefill { reused: shared, computed: held - shared, complete: held == prompt.len() })
    }

    /// Appends `tokens` and keeps the logits after the last, unless `progress` stopped it.
    pub(crate) fn append(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        let start = self.tokens.len();
        self.logits.clear();
        let result = self.backend.prefill(tokens, LogitsOf::Last, progress).map(|logits| self.logits.extend(logits));
        let appended = self.backend.position().saturating_sub(start).min(tokens.len());
        self.tokens.extend_from_slice(&tokens[..appended]);
        if appended < tokens.len() {
            self.logits.clear();
        }
        Ok(result?)
    }

    /// Appends `token`; the logits after it are then [`Sequence::last_logits`].
    ///
    /// # Errors
    /// When the backend fails.
    pub fn decode(&mut self, token: u32) -> Result<()> {
        self.logits.clear();
        let logits = self.backend.decode(token)?;
        self.logits.extend_from_slice(logits);
        self.tokens.push(token);
        Ok(())
    }

    /// Begins the backend's own token loop after a prefill; false when it has none. At most `most` tokens will be asked
    /// for, and the context's end is minded.
    pub(crate) fn start_loop(
        &mut self,
        params: SamplingParams,
        history: &[u32],
        most: usize,
        end_tokens: &[u32],
    ) -> Result<bool> {
        let left = self.backend.capacity() - self.tokens.len() + 1;
        let Some(token_loop) = self.backend.token_loop() else { return Ok(false) };
        token_loop.start(params, history, most.min(left), end_tokens)?;
        self.logits.clear();
        Ok(true)
    }

    /// The loop's next token, after `last` was appended where there is one.
    pub(crate) fn next_of_loop(&mut self, last: Option<u32>) -> Result<Option<u32>> {
        let Some(token_loop) = self.backend.token_loop() else { return Ok(None) };
        let token = token_loop.next_token()?;
        self.tokens.extend(last);
        Ok(token)
    }

    /// Ends the loop: the cache then holds exactly this sequence's tokens.
    pub(crate) fn stop_loop(&mut self) -> Result<()> {
        let position = self.tokens.len();
        match self.backend.token_loop() {
            Some(token_loop) => Ok(token_loop.stop(position)?),
            None => Ok(()),
        }
    }
}

/// Refuses prompts that a backend's contract excludes.
pub(crate) fn check_prompt(prompt: &[u32], backend: &dyn Backend) -> Result<()> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    if prompt.len() > backend.capacity() {
        return Err(EngineError::PromptTooLong { prompt: prompt.len(), context: backend.capacity() });
    }
    let vocab_size = backend.vocab_size();
    match prompt.iter().find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(EngineError::UnknownToken { token, vocab_size }),
        None => Ok(()),
    }
}
