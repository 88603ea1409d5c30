//! The contract between requests and whatever computes logits: one sequence, a position, and a cache that can be
//! cut back.

/// What a failed step was about; each backend has its own error behind it.
pub type BackendError = Box<dyn std::error::Error + Send + Sync>;

/// Which positions' logits a prefill returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// The last position: `(vocab_size)`.
    Last,
    /// Every position: `(tokens, vocab_size)`.
    All,
}

/// Computes logits for one sequence and remembers its keys and values.
///
/// Contract: `prefill` and `decode` append at `position()`; the same calls from position 0 give the same bits,
/// whatever was in the cache before; `truncate` never computes. Tokens are below `vocab_size()` and positions below
/// `capacity()`: callers check, implementations assert.
pub trait Backend {
    /// Rows of the head.
    fn vocab_size(&self) -> usize;
    /// Positions that the KV cache can hold.
    fn capacity(&self) -> usize;
    /// Positions held now.
    fn position(&self) -> usize;
    /// Forgets every position from `position` on.
    fn truncate(&mut self, position: usize);
    /// Appends `tokens` (at least one); `progress` is told how many are done as chunks end and returns false to stop
    /// (the tokens appended so far stay, as `position()` tells). Returns the logits asked for, of the appended tokens.
    ///
    /// # Errors
    /// When the step fails; the sequence is then cut back to where it was.
    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError>;
    /// Appends one token and returns its logits `(vocab_size)`.
    ///
    /// # Errors
    /// As for `prefill`.
    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError>;
    /// The rate at which this backend's workers can read the step's weights and do nothing else, GB/s, measured now.
    ///
    /// # Errors
    /// When it cannot be measured.
    fn read_ceiling(&mut self) -> Result<f64, BackendError>;
}
