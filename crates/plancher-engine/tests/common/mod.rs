//! A backend without a model: its logits are a function of every token it holds, so that a cache that kept too much or
//! too little shows in the very next logits.

use plancher_engine::sampling::Random;
use plancher_engine::{Backend, BackendError, LogitsOf};

/// The backend: a `progress` call every 4 tokens.
pub(crate) struct FakeBackend {
    vocab_size: usize,
    capacity: usize,
    held: Vec<u32>,
    logits: Vec<f32>,
}

impl FakeBackend {
    pub(crate) fn new(vocab_size: usize, capacity: usize) -> Self {
        Self { vocab_size, capacity, held: Vec::new(), logits: Vec::new() }
    }

    fn row(&self) -> impl Iterator<Item = f32> + use<> {
        let seed = self
            .held
            .iter()
            .fold(17u64, |hash, &token| Random::new(hash ^ u64::from(token).wrapping_mul(0x9E37_79B9)).next_u64());
        let mut random = Random::new(seed);
        (0..self.vocab_size).map(move |_| (random.uniform() * 8.0) as f32)
    }
}

impl Backend for FakeBackend {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn position(&self) -> usize {
        self.held.len()
    }
    fn truncate(&mut self, position: usize) {
        self.held.truncate(position);
    }
    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        assert!(!tokens.is_empty() && self.held.len() + tokens.len() <= self.capacity, "the caller checks");
        self.logits.clear();
        let mut done = 0;
        for chunk in tokens.chunks(4) {
            for &token in chunk {
                assert!((token as usize) < self.vocab_size, "the caller checks");
                self.held.push(token);
                if logits == LogitsOf::All {
                    let row = self.row();
                    self.logits.extend(row);
                }
            }
            done += chunk.len();
            if !progress(done) {
                break;
            }
        }
        if logits == LogitsOf::Last {
            let row = self.row();
            self.logits.extend(row);
        }
        Ok(&self.logits)
    }
    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        self.prefill(&[token], LogitsOf::Last, &mut |_| true)
    }
    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        Ok(20.0)
    }
}
