//! The executor: a model's weights packed for the workers of this machine, its two programs, and one sequence's KV
//! cache.

mod attention;
mod load;
mod plan;
mod products;
mod trace;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plancher_model::Model;
use plancher_program::{Phase, Program, Vectors};

pub use load::Options;
pub use trace::{StepTrace, TraceEvent};

use self::plan::Plan;
use self::worker::{Failure, Logits, Scratch, StepContext, Worker};
use crate::bandwidth::ReadLoop;
use crate::kernels::Kernels;
use crate::kv_cache::{KvCache, kv_bytes};
use crate::vector::RopeTable;
use crate::{CpuError, HugeBuffer, Pool};

/// Which positions' logits a prefill returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// The last position: `(vocab_size)`.
    Last,
    /// Every position: `(tokens, vocab_size)`.
    All,
}

/// Computes logits for one sequence, on pinned worker threads.
///
/// `prefill` and `decode` append at `position()`. The same calls from position 0 give the same bits, whatever was in
/// the cache before.
pub struct Executor {
    model: Arc<Model>,
    options: Options,
    kernels: Kernels,
    pool: Pool,
    streams: Vec<HugeBuffer>,
    vectors: Vectors,
    decode: Plan,
    prefill_program: Program,
    /// Bound to memory when first used.
    prefill: Option<Plan>,
    scratches: Vec<Mutex<Scratch>>,
    ropes: Vec<RopeTable>,
    cache: KvCache,
    position: usize,
    logits: Vec<f32>,
}

impl Executor {
    /// Rows of the head.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.model.config.vocab_size
    }

    /// Positions that the KV cache can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.options.context
    }

    /// Positions held now.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Worker threads, the caller's included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }

    /// The kernels in use.
    #[must_use]
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Forgets every position from `position` on.
    pub fn truncate(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// Weight bytes that one decode step reads, as packed.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        let steps = self.decode.workers.iter().flat_map(|worker| &worker.steps);
        steps.flat_map(|step| &step.pieces).map(|piece| piece.bytes.len() as u64).sum()
    }

    /// KV bytes that one decode step reads at `context` positions.
    #[must_use]
    pub fn kv_bytes(&self, context: usize) -> u64 {
        kv_bytes(&self.model.config, context)
    }

    /// Appends `tokens` in chunks; `progress` is told how many are done as chunks end, and returns false to stop (the
    /// tokens appended so far stay). Returns the logits asked for, of the appended tokens.
    ///
    /// # Errors
    /// When a step fails; the sequence is then cut back to where it was.
    ///
    /// # Panics
    /// When `tokens` is empty, a token is not below [`Executor::vocab_size`], or there is no room for all of them.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], CpuError> {
        self.assert_fits(tokens);
        let vocab = self.vocab_size();
        let rows = if logits == LogitsOf::All { tokens.len() } else { 1 };
        self.logits.resize(rows * vocab, 0.0);
        let begin = self.position;
        let mut done = 0;
        for chunk in tokens.chunks(self.options.prefill_chunk) {
            let wanted = match logits {
                LogitsOf::All => Logits::All(self.logits[done * vocab..].as_mut_ptr()),
                // Of every chunk: it may be the last one, and costs little beside the chunk itself.
                LogitsOf::Last => Logits::Last(self.logits.as_mut_ptr()),
            };
            if let Err(error) = self.append(chunk, wanted) {
                self.position = begin;
                return Err(error);
            }
            done += chunk.len();
            if !progress(done) {
                break;
            }
        }
        let rows = if logits == LogitsOf::All { done } else { 1 };
        Ok(&self.logits[..rows * vocab])
    }

    /// Appends one token and returns its logits, `(vocab_size)`.
    ///
    /// # Errors
    /// When the step fails; nothing is appended then.
    ///
    /// # Panics
    /// When `token` is not below [`Executor::vocab_size`], or the cache is full.
    pub fn decode(&mut self, token: u32) -> Result<&[f32], CpuError> {
        self.assert_fits(&[token]);
        let vocab = self.vocab_size();
        self.logits.resize(vocab, 0.0);
        let out = Logits::Last(self.logits.as_mut_ptr());
        self.append(&[token], out)?;
        Ok(&self.logits)
    }

    /// As [`Executor::decode`], and tells what every worker did when.
    ///
    /// # Errors
    /// As for [`Executor::decode`].
    ///
    /// # Panics
    /// As for [`Executor::decode`].
    pub fn decode_traced(&mut self, token: u32) -> Result<(&[f32], StepTrace), CpuError> {
        self.step_traced(&[token])
    }

    /// As [`Executor::prefill`] of one chunk with the logits of its last position, and tells what every worker did
    /// when.
    ///
    /// # Errors
    /// As for [`Executor::prefill`].
    ///
    /// # Panics
    /// As for [`Executor::prefill`]; when there are fewer than two tokens or more than a chunk holds.
    pub fn prefill_traced(&mut self, tokens: &[u32]) -> Result<(&[f32], StepTrace), CpuError> {
        let most = self.options.prefill_chunk;
        assert!((2..=most).contains(&tokens.len()), "{} tokens are not between 2 and {most}", tokens.len());
        self.step_traced(tokens)
    }

    /// Positions that prefill computes at a time.
    #[must_use]
    pub fn prefill_chunk(&self) -> usize {
        self.options.prefill_chunk
    }

    fn step_traced(&mut self, tokens: &[u32]) -> Result<(&[f32], StepTrace), CpuError> {
        self.assert_fits(tokens);
        let vocab = self.vocab_size();
        self.logits.resize(vocab, 0.0);
        let out = Logits::Last(self.logits.as_mut_ptr());
        let phase = phase_of(tokens);
        let began = Instant::now();
        self.run::<true>(phase, tokens, out)?;
        let duration = began.elapsed();
        let plan = match phase {
            Phase::Decode => Some(&self.decode),
            Phase::Prefill => self.prefill.as_ref(),
        };
        let mut events = Vec::new();
        for (worker, scratch) in self.scratches.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let recorded = scratch.events.iter().zip(&plan.workers[worker].steps);
            events.extend(recorded.map(|(event, step)| event.resolve(began, worker, step, &plan.counter_names)));
        }
        Ok((&self.logits, StepTrace { events, duration }))
    }

    /// The rate at which the workers can read the packed weights and do nothing else now, in GB/s: the best round of
    /// several read loops. On a shared machine it holds for the moment only: measure it beside what is compared.
    ///
    /// # Errors
    /// When a worker panicked.
    pub fn read_ceiling(&mut self) -> Result<f64, CpuError> {
        const ROUNDS: usize = 2;
        let bytes: usize = self.streams.iter().map(HugeBuffer::len).sum();
        let streams = &self.streams;
        let mut best = Duration::MAX;
        for read in std::iter::repeat_n(ReadLoop::ALL, ROUNDS).flatten() {
            let began = Instant::now();
            self.pool.run(&|worker| {
                std::hint::black_box(read.read(streams[worker].bytes()));
            })?;
            best = best.min(began.elapsed());
        }
        Ok(bytes as f64 / best.as_secs_f64() / 1e9)
    }

    fn assert_fits(&self, tokens: &[u32]) {
        let vocab = self.vocab_size();
        assert!(!tokens.is_empty(), "there are no tokens");
        assert!(tokens.iter().all(|&token| (token as usize) < vocab), "tokens must be below {vocab}");
        let (position, capacity) = (self.position, self.capacity());
        assert!(tokens.len() <= capacity - position, "{} tokens after {position} of {capacity}", tokens.len());
    }

    fn append(&mut self, tokens: &[u32], logits: Logits) -> Result<(), CpuError> {
        self.run::<false>(phase_of(tokens), tokens, logits)
    }

    /// Performs one step on all workers.
    fn run<const TRACE: bool>(&mut self, phase: Phase, tokens: &[u32], logits: Logits) -> Result<(), CpuError> {
        self.cache.reserve(self.position + tokens.len())?;
        for (table, rope) in self.ropes.iter_mut().zip(&self.model.config.ropes) {
            table.fill(rope, self.position, tokens.len());
        }
        let plan = match phase {
            Phase::Decode => &mut self.decode,
            Phase::Prefill => {
                let (positions, kernels) = (self.options.prefill_chunk, self.kernels);
                load::prefill_plan(&mut self.prefill, &self.prefill_program, &self.vectors, positions, kernels)?
            }
        };
        let context = StepContext {
            phase,
            plan,
            config: &self.model.config,
            weights: &self.model.weights,
            vectors: &self.vectors,
            kernels: self.kernels,
            cache: &self.cache,
            ropes: &self.ropes,
            tokens,
            position: self.position,
            logits,
            wait_limit: self.options.wait_limit,
        };
        let (streams, scratches) = (&self.streams, &self.scratches);
        let failure = Mutex::new(None);
        let ran = self.pool.run(&|index| {
            let own = &context.plan.workers[index];
            let worker = Worker { index, context: &context, own, stream: &streams[index] };
            let mut scratch = scratches[index].lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(Failure::Here(error)) = worker.run::<TRACE>(&mut scratch) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = ran.map_err(CpuError::from).and(failure.map_or(Ok(()), Err)) {
            plan.counters.restart(plan.generation);
            return Err(error);
        }
        plan.generation = plan.generation.wrapping_add(1);
        self.position += tokens.len();
        Ok(())
    }
}

/// Which program appends `tokens`.
fn phase_of(tokens: &[u32]) -> Phase {
    if tokens.len() == 1 { Phase::Decode } else { Phase::Prefill }
}
