//! The plain reference executor as a [`Backend`].

use plancher_model::Model;
use plancher_program::Reference;

use crate::{Backend, BackendError, LogitsOf};

/// Tokens between two calls of `progress`.
const CHUNK: usize = 32;

/// Runs a model in plain f32 loops: slow, and what the fast backends are compared with.
pub struct ReferenceBackend<'a> {
    reference: Reference<'a>,
    vocab_size: usize,
    capacity: usize,
    logits: Vec<f32>,
}

impl<'a> ReferenceBackend<'a> {
    /// Requests on the reference executor of `model`, with at most `capacity` positions.
    ///
    /// # Errors
    /// When the model lacks a tensor.
    pub fn new(model: &'a Model, capacity: usize) -> crate::Result<Self> {
        let reference = Reference::new(&model.config, &model.weights).map_err(BackendError::from)?;
        Ok(Self { reference, vocab_size: model.config.vocab_size, capacity, logits: Vec::new() })
    }
}

impl Backend for ReferenceBackend<'_> {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn position(&self) -> usize {
        self.reference.position()
    }

    fn truncate(&mut self, position: usize) {
        self.reference.truncate(position);
    }

    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        self.logits.clear();
        let mut done = 0;
        for chunk in tokens.chunks(CHUNK) {
            match logits {
                LogitsOf::All => self.logits.extend(self.reference.prefill(chunk)),
                LogitsOf::Last => self.logits = self.reference.prefill_last(chunk),
            }
            done += chunk.len();
            if !progress(done) {
                break;
            }
        }
        Ok(&self.logits)
    }

    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        self.logits = self.reference.decode(token);
        Ok(&self.logits)
    }

    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        Err("the reference executor has no read ceiling: it does not stream its weights".into())
    }
}
