//! Runs a packed GPU program on one thread of the CPU, to the letter: the instruction words and stream bytes that the kernel
//! reads, the eight consumers, the finalizer and the producer of every worker, the ring, the exchange with its sentinel and
//! three copies, pages and splits of attention, 16-bit roundings, and the kernel's order of additions. It is what the
//! kernel is compared with, and what shows that a program's result does not depend on who runs when ([`Schedule`]).
//!
//! A run that cannot go on ends with who waits for what ([`Fault::Stuck`]); a word that is written before it was cleared, or
//! cleared before it was written, ends it, too.

mod attention;
mod cache;
mod consumer;
mod element;
mod fault;
mod finalizer;
mod image;
mod machine;
mod memory;
mod model;
mod producer;
mod schedule;
mod worker;

use std::cell::RefCell;

use plancher_model::{ModelConfig, Weights};

pub use fault::{Fault, Waiting};
pub use image::Image;
pub use schedule::Schedule;

use super::Plan;
use cache::Cache;
use machine::{Machine, Task};
use model::Model;

/// Runs a program on one sequence and remembers its keys and values.
pub struct Interpreter<'a> {
    model: Model<'a>,
    cache: Cache,
    position: usize,
    logits: Vec<f32>,
}

impl<'a> Interpreter<'a> {
    /// Looks through a program: every instruction must name rows, units and stages that exist. `image` need not be the one
    /// that `plan` gives.
    ///
    /// # Errors
    /// When it has instructions that say nothing sensible, or the model is not whole.
    pub fn new(config: &'a ModelConfig, weights: &Weights, plan: &'a Plan, image: Image) -> Result<Self, Fault> {
        let model = Model::new(config, weights, plan, image)?;
        Ok(Self { model, cache: Cache::new(plan), position: 0, logits: Vec::new() })
    }

    /// Positions in the cache.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Forgets every position from `position` on.
    pub fn truncate(&mut self, position: usize) {
        self.position = self.position.min(position);
        self.cache.truncate(self.position);
    }

    /// Those of the last step, `(vocab_size)`.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Appends a token and computes its logits, choosing nothing.
    ///
    /// # Errors
    /// When the cache has no room, or the program is wrong.
    pub fn append(&mut self, token: u32, schedule: Schedule) -> Result<&[f32], Fault> {
        self.run(token, 1, false, &[], schedule, &mut |_| false)?;
        Ok(&self.logits)
    }

    /// Appends `token`, then the most likely one each time, and returns the tokens chosen, `steps` at most: the last one is
    /// not appended. The run ends early with a token of `end_tokens`, with `u32::MAX` where no logit is finite, or when
    /// `stop`, which is asked in every step with the tokens that have reached the host, says so.
    ///
    /// # Errors
    /// When the cache has no room, or the program is wrong.
    pub fn greedy(
        &mut self,
        token: u32,
        steps: usize,
        end_tokens: &[u32],
        schedule: Schedule,
        stop: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<Vec<u32>, Fault> {
        self.run(token, steps, true, end_tokens, schedule, stop)
    }

    fn run(
        &mut self,
        token: u32,
        steps: usize,
        chooses: bool,
        end_tokens: &[u32],
        schedule: Schedule,
        stop: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<Vec<u32>, Fault> {
        let position = self.position;
        let end = position.saturating_add(steps);
        if end > self.model.plan.target.positions {
            let problem = "the program is for fewer positions";
            return Err(Fault::Unsupported { field: "positions", value: end, problem });
        }
        self.cache.reserve(end);
        let task = Task { token, position, steps, chooses, end_tokens, stop: RefCell::new(stop) };
        let outcome = {
            let machine = Machine::new(&self.model, task, &mut self.cache, schedule);
            machine.run()
        };
        // What a run that failed has left is not looked at.
        let (tokens, logits) = outcome.inspect_err(|_| self.cache.truncate(position))?;
        self.position += if chooses { tokens.len() } else { steps };
        self.logits = logits;
        Ok(tokens)
    }
}
