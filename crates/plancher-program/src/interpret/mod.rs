//! The interpreter: runs checked programs of either phase in plain safe Rust, its workers multiplexed on the calling
//! thread, on streams packed by any [`TileLayout`]. Slow, but it honours the program to the letter (order, waits,
//! streams, private copies, split attention), and so it is what backends are compared with.

mod operations;
mod state;

use plancher_model::{ModelConfig, Weights};

use crate::vectors::Vectors;
use crate::{PackProgress, Phase, Program, ProgramError, TileLayout, check, lower, pack_worker};
use state::Step;

/// In which order workers take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One instruction each in turn, if it can go on.
    RoundRobin,
    /// A random worker that can go on does one instruction; the seed fixes the choice.
    Random(u64),
}

/// The keys and values of one layer, each `(positions, n_kv_heads * head_dim)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Runs a decode and a prefill program on one sequence and remembers its keys and values.
pub struct Interpreter<'a> {
    config: &'a ModelConfig,
    weights: &'a Weights,
    layout: &'a dyn TileLayout,
    decode: &'a Program,
    prefill: &'a Program,
    vectors: Vectors,
    streams: Vec<Vec<u8>>,
    caches: Vec<Cache>,
    position: usize,
}

impl<'a> Interpreter<'a> {
    /// Checks both programs and packs their common streams.
    ///
    /// # Errors
    /// When the model is not one that can be lowered, a program does not pass the checker, is of the other phase, or
    /// their streams differ.
    pub fn new(
        config: &'a ModelConfig,
        weights: &'a Weights,
        layout: &'a dyn TileLayout,
        decode: &'a Program,
        prefill: &'a Program,
    ) -> Result<Self, ProgramError> {
        let lowered = lower(config, weights)?;
        for (program, phase) in [(decode, Phase::Decode), (prefill, Phase::Prefill)] {
            check(program, layout)?;
            if program.target.phase != phase {
                return Err(ProgramError::Phase { expected: phase, found: program.target.phase });
            }
        }
        let streams_match = decode.workers.len() == prefill.workers.len()
            && decode.workers.iter().zip(&prefill.workers).all(|(d, p)| d.segments == p.segments);
        if !streams_match {
            return Err(ProgramError::StreamsDiffer);
        }
        let progress = PackProgress::new(decode);
        let mut streams: Vec<_> = decode.workers.iter().map(|worker| vec![0; worker.stream_bytes]).collect();
        for (worker, stream) in streams.iter_mut().enumerate() {
            pack_worker(decode, worker, weights, layout, stream, &progress)?;
        }
        Ok(Self {
            config,
            weights,
            layout,
            decode,
            prefill,
            vectors: Vectors::new(config, weights)?,
            streams,
            caches: vec![Cache::default(); lowered.sizes.caches.len()],
            position: 0,
        })
    }

    /// Appends `tokens` by the prefill program and returns their logits, `(tokens, vocab_size)`.
    ///
    /// # Panics
    /// When a token is not below the vocabulary's size.
    pub fn prefill(&mut self, tokens: &[u32], order: Order) -> Vec<f32> {
        self.run(self.prefill, tokens, order)
    }

    /// Appends one token by the decode program and returns its logits, `(vocab_size)`.
    ///
    /// # Panics
    /// When the token is not below the vocabulary's size.
    pub fn decode(&mut self, token: u32, order: Order) -> Vec<f32> {
        self.run(self.decode, &[token], order)
    }

    fn run(&mut self, program: &Program, tokens: &[u32], order: Order) -> Vec<f32> {
        for (cache, layer) in self.caches.iter_mut().zip(&self.config.layers) {
            let elements = (self.position + tokens.len()) * layer.kv_rows();
            cache.keys.resize(elements, 0.0);
            cache.values.resize(elements, 0.0);
        }
        let mut step = Step::new(self, program, tokens);
        let mut turns = Turns::new(order, program.workers.len());
        let total: usize = program.workers.iter().map(|worker| worker.instructions.len()).sum();
        for _ in 0..total {
            let worker = turns.next(|worker| step.can_go_on(worker));
            step.perform(worker);
        }
        let logits = step.into_logits();
        self.position += tokens.len();
        logits
    }
}

/// Chooses who goes on.
struct Turns {
    order: Order,
    workers: usize,
    state: u64,
}

impl Turns {
    fn new(order: Order, workers: usize) -> Self {
        let state = if let Order::Random(seed) = order { seed } else { 0 };
        Self { order, workers, state }
    }

    /// A worker that can go on, looked for from the next one (or a random one).
    fn next(&mut self, can_go_on: impl Fn(usize) -> bool) -> usize {
        let start = match self.order {
            Order::RoundRobin => self.state as usize,
            Order::Random(_) => {
                // Knuth's linear congruential generator; its high bits are random enough to shuffle turns.
                self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.state >> 33) as usize
            }
        };
        let candidates = (0..self.workers).map(|i| (start + i) % self.workers);
        let Some(worker) = candidates.into_iter().find(|&worker| can_go_on(worker)) else {
            unreachable!("the checker has proved that a program ends")
        };
        if self.order == Order::RoundRobin {
            self.state = worker as u64 + 1;
        }
        worker
    }
}
