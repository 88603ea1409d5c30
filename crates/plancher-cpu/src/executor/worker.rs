//! One worker's way through a step: wait, compute, signal, for each instruction of its list.

use std::time::{Duration, Instant};

use plancher_model::ModelConfig;
use plancher_program::{Operation, Phase, Vectors};

use super::plan::{Plan, Step, WorkerPlan};
use super::trace::{Event, Waited};
use crate::kernels::{Input, Kernels};
use crate::kv_cache::KvCache;
use crate::sync::{Patience, WaitError};
use crate::vector::RopeTable;
use crate::{CpuError, HugeBuffer};

/// Bytes of the own stream that a waiting worker brings into its cache.
const PREFETCH_BYTES: usize = 128 << 10;
/// Cache lines fetched between two looks at a counter.
const PREFETCH_LINES: usize = 8;
const CACHE_LINE: usize = 64;

/// What all workers share during one step.
pub(super) struct StepContext<'a> {
    pub(super) phase: Phase,
    pub(super) plan: &'a Plan,
    pub(super) config: &'a ModelConfig,
    pub(super) weights: &'a plancher_model::Weights,
    pub(super) vectors: &'a Vectors,
    pub(super) kernels: Kernels,
    pub(super) cache: &'a KvCache,
    pub(super) ropes: &'a [RopeTable],
    pub(super) tokens: &'a [u32],
    /// Position of the first of `tokens`.
    pub(super) position: usize,
    pub(super) logits: Logits,
    pub(super) wait_limit: Duration,
}

/// Which rows of logits the step computes, and where they go.
#[derive(Clone, Copy)]
pub(super) enum Logits {
    /// Of the last position, `(vocab_size)`.
    Last(*mut f32),
    /// Of every position, `(tokens, vocab_size)`.
    All(*mut f32),
}

// SAFETY: a context only lends what workers touch by the rules of the checked program: instructions that touch the
// same memory are ordered by its counters.
unsafe impl Sync for StepContext<'_> {}

/// A worker's own memory, kept between steps.
#[derive(Default)]
pub(super) struct Scratch {
    /// Prepared input of products.
    pub(super) input: Input,
    /// Up rows, `(tokens, rows of this worker)`; rotated queries; attention rows.
    pub(super) floats: Vec<f32>,
    pub(super) attention: crate::attention::State,
    /// Keys and values of one position on their way to the cache.
    pub(super) halves: Vec<half::f16>,
    pub(super) events: Vec<Event>,
}

/// One worker in one step.
pub(super) struct Worker<'a> {
    pub(super) index: usize,
    pub(super) context: &'a StepContext<'a>,
    pub(super) own: &'a WorkerPlan,
    pub(super) stream: &'a HugeBuffer,
}

impl Worker<'_> {
    /// Performs the worker's instructions; with `TRACE`, records when. Poisons the counters when it fails.
    pub(super) fn run<const TRACE: bool>(&self, scratch: &mut Scratch) -> Result<(), Failure> {
        let plan = self.context.plan;
        let guard = Poison(plan);
        if TRACE {
            scratch.events.clear();
        }
        for step in &self.own.steps {
            let arrival = TRACE.then(Instant::now);
            let mut waited = None;
            for &(counter, value) in &step.waits {
                self.wait(step, counter, value)?;
                waited = Some(counter);
            }
            let start = TRACE.then(Instant::now);
            self.perform(step, scratch);
            for &counter in &step.signals {
                plan.counters.signal(counter);
            }
            if let (Some(arrival), Some(start)) = (arrival, start) {
                let waited = waited.map(|counter| Waited { counter, since: arrival });
                scratch.events.push(Event { start, end: Instant::now(), waited });
            }
        }
        std::mem::forget(guard);
        Ok(())
    }

    #[inline]
    fn wait(&self, step: &Step, counter: usize, value: u32) -> Result<(), Failure> {
        let plan = self.context.plan;
        let limit = self.context.wait_limit;
        let mut patience = Patience::new(Some(limit));
        let ahead = &self.stream.bytes()[step.ahead..];
        let ahead = &ahead[..ahead.len().min(PREFETCH_BYTES)];
        let mut fetched = 0;
        let waited = plan.counters.wait(counter, plan.generation, value, || {
            if fetched < ahead.len() {
                for _ in 0..PREFETCH_LINES {
                    prefetch(ahead, fetched);
                    fetched += CACHE_LINE;
                }
                return true;
            }
            patience.pass()
        });
        waited.map_err(|error| match error {
            WaitError::Poisoned => Failure::Elsewhere,
            WaitError::GaveUp { seen } => Failure::Here(CpuError::Stuck {
                worker: self.index,
                instruction: step.operation.to_string(),
                counter: plan.counter_names[counter].clone(),
                seen,
                value,
                seconds: limit.as_secs(),
            }),
        })
    }

    fn perform(&self, step: &Step, scratch: &mut Scratch) {
        match step.operation {
            Operation::Embed => self.embed(),
            Operation::AddNormalize { layer, feed_forward } => self.add_normalize(step, layer, feed_forward, scratch),
            Operation::QueryKeyValue { .. } => self.query_key_value(step, scratch),
            Operation::Append { layer } => self.append_chunk(layer, scratch),
            Operation::Attention { layer } if self.context.phase == Phase::Decode => {
                self.decode_attention(layer, scratch);
            }
            Operation::Attention { layer } => self.prefill_attention(layer, scratch),
            Operation::AttentionOutput { layer, .. } => self.attention_output(step, layer, scratch),
            Operation::GateUp { layer, .. } => self.gate_up(step, layer, scratch),
            Operation::Down { .. } => self.down(step, scratch),
            Operation::Head { .. } => self.head(step, scratch),
        }
    }
}

/// Why a worker did not come to the end of its list.
pub(super) enum Failure {
    /// Another worker failed, and says why.
    Elsewhere,
    /// This one failed.
    Here(CpuError),
}

/// Ends the step for the others when this worker leaves it early: by an error or a panic.
struct Poison<'a>(&'a Plan);

impl Drop for Poison<'_> {
    fn drop(&mut self) {
        self.0.counters.poison();
    }
}

#[inline]
fn prefetch(bytes: &[u8], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    if offset < bytes.len() {
        // SAFETY: a prefetch of an address inside the slice; it has no architectural effect.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(bytes.as_ptr().add(offset).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, offset);
}
