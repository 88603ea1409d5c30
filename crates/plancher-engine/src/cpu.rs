//! The program executor on CPU threads as a [`Backend`].

use plancher_cpu::Executor;

use crate::{Backend, BackendError, LogitsOf};

/// Runs a model's programs on this machine's CPU.
pub struct CpuBackend {
    executor: Executor,
}

impl CpuBackend {
    /// Requests on `executor`.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        Self { executor }
    }
}

impl Backend for CpuBackend {
    fn vocab_size(&self) -> usize {
        self.executor.vocab_size()
    }

    fn capacity(&self) -> usize {
        self.executor.capacity()
    }

    fn position(&self) -> usize {
        self.executor.position()
    }

    fn truncate(&mut self, position: usize) {
        self.executor.truncate(position);
    }

    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        let logits = match logits {
            LogitsOf::Last => plancher_cpu::LogitsOf::Last,
            LogitsOf::All => plancher_cpu::LogitsOf::All,
        };
        Ok(self.executor.prefill(tokens, logits, progress)?)
    }

    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        Ok(self.executor.decode(token)?)
    }

    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        Ok(self.executor.read_ceiling()?)
    }
}
