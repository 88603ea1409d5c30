//! The state of one step: how far each worker is, the counters, and the buffers.

use super::{Cache, Interpreter};
use crate::vectors::Vectors;
use crate::{BufferRole, Phase, Program, TileLayout};
use plancher_model::{ModelConfig, Weights};

pub(super) struct Step<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) weights: &'a Weights,
    pub(super) vectors: &'a Vectors,
    pub(super) layout: &'a dyn TileLayout,
    pub(super) streams: &'a [Vec<u8>],
    pub(super) caches: &'a mut [Cache],
    pub(super) program: &'a Program,
    pub(super) tokens: &'a [u32],
    /// Of the first token.
    pub(super) position: usize,
    /// By [`crate::BufferId`]: `(tokens, elements)`.
    buffers: Vec<Vec<f32>>,
    counters: Vec<u32>,
    done: Vec<usize>,
}

impl<'a> Step<'a> {
    pub(super) fn new(interpreter: &'a mut Interpreter<'_>, program: &'a Program, tokens: &'a [u32]) -> Self {
        let buffers = program.buffers.iter().map(|buffer| match buffer.role {
            BufferRole::Cache(_) => Vec::new(),
            // What nobody writes must not look like a result.
            _ => vec![f32::NAN; tokens.len() * buffer.elements],
        });
        Self {
            config: interpreter.config,
            weights: interpreter.weights,
            vectors: &interpreter.vectors,
            layout: interpreter.layout,
            streams: &interpreter.streams,
            caches: &mut interpreter.caches,
            program,
            tokens,
            position: interpreter.position,
            buffers: buffers.collect(),
            counters: vec![0; program.counters.len()],
            done: vec![0; program.workers.len()],
        }
    }

    pub(super) fn can_go_on(&self, worker: usize) -> bool {
        let next = self.program.workers[worker].instructions.get(self.done[worker]);
        next.is_some_and(|next| next.waits.iter().all(|wait| self.counters[wait.counter.0] >= wait.value))
    }

    /// Does the worker's next instruction.
    pub(super) fn perform(&mut self, worker: usize) {
        let instruction = &self.program.workers[worker].instructions[self.done[worker]];
        self.compute(worker, &instruction.operation);
        for counter in &instruction.signals {
            self.counters[counter.0] += 1;
        }
        self.done[worker] += 1;
    }

    pub(super) fn into_logits(mut self) -> Vec<f32> {
        let logits = self.id(BufferRole::Logits, 0);
        std::mem::take(&mut self.buffers[logits])
    }

    fn id(&self, role: BufferRole, worker: usize) -> usize {
        match self.program.buffer(role, worker) {
            Some(id) => id.0,
            None => unreachable!("the checker has seen that there is a buffer `{role}`"),
        }
    }

    /// The row of a token in a buffer.
    pub(super) fn row(&self, role: BufferRole, worker: usize, token: usize) -> &[f32] {
        let id = self.id(role, worker);
        let elements = self.program.buffers[id].elements;
        &self.buffers[id][token * elements..(token + 1) * elements]
    }

    pub(super) fn row_mut(&mut self, role: BufferRole, worker: usize, token: usize) -> &mut [f32] {
        let id = self.id(role, worker);
        let elements = self.program.buffers[id].elements;
        &mut self.buffers[id][token * elements..(token + 1) * elements]
    }

    /// The tokens whose residual is this worker's: all in decode, a contiguous share in prefill.
    pub(super) fn share(&self, worker: usize) -> std::ops::Range<usize> {
        let (tokens, workers) = (self.tokens.len(), self.program.workers.len());
        match self.program.target.phase {
            Phase::Decode => 0..tokens,
            Phase::Prefill => tokens * worker / workers..tokens * (worker + 1) / workers,
        }
    }

    /// Whether the keys and values of a position are this worker's to append.
    pub(super) fn keeps(&self, worker: usize, position: usize) -> bool {
        position / self.program.target.kv_chunk % self.program.workers.len() == worker
    }
}
