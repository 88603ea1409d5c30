//! The ring: background copies fill its slots strictly by turns, consumers wait for a stage by its barrier's parity, and
//! a slot is filled again when all consumers are done with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::platform::{Cell as _, Hint, Platform, Word as _, wait};

/// How the ring goes; anything but [`Rules::RIGHT`] is a mutant.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Order of a copy's "has landed".
    pub(crate) landed: Ordering,
    /// Order of a consumer's "is done with it".
    pub(crate) done: Ordering,
    /// Whether a slot is filled only after all consumers are done with it, not just the first.
    pub(crate) waits_for_all: bool,
    /// How many stages too early a slot is filled again.
    pub(crate) early: usize,
    /// Whether a consumer waits also for stages that hold nothing for it.
    pub(crate) waits_for_skipped: bool,
}

impl Rules {
    pub(crate) const RIGHT: Self = Self {
        landed: Ordering::Release,
        done: Ordering::Release,
        waits_for_all: true,
        early: 0,
        waits_for_skipped: true,
    };
}

/// What is explored. Every slot has a thread that stands for the copies into it.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slots: usize,
    pub(crate) consumers: usize,
    pub(crate) stages: usize,
    /// Whether every stage has something for every consumer, as weights do; pages of the past go to one of them.
    pub(crate) for_all: bool,
}

struct Ring<P: Platform> {
    rules: Rules,
    shape: Shape,
    contents: Vec<P::Cell>,
    /// Completed phases of each slot's barrier.
    phases: Vec<P::Word>,
    filled: Vec<Hint>,
    /// Stages that each consumer is done with.
    done: Vec<P::Word>,
    freed: Vec<Hint>,
}

impl<P: Platform> Ring<P> {
    /// All copies into one slot.
    fn fill(&self, slot: usize) {
        let consumers = if self.rules.waits_for_all { self.shape.consumers } else { 1 };
        for stage in (slot..self.shape.stages).step_by(self.shape.slots) {
            let needed = (stage + 1).saturating_sub(self.shape.slots + self.rules.early) as u32;
            for consumer in 0..consumers {
                let there = || self.freed[consumer].reached(needed);
                wait::<P, _>("a stage to be used up", there, || {
                    (self.done[consumer].load(Ordering::Acquire) >= needed).then_some(())
                });
            }
            self.contents[slot].write(stage as u32);
            self.phases[slot].add(1, self.rules.landed);
            self.filled[slot].add(1);
        }
    }

    fn consume(&self, consumer: usize) {
        for stage in 0..self.shape.stages {
            let (slot, phase) = (stage % self.shape.slots, (stage / self.shape.slots) as u32);
            let mine = self.shape.for_all || stage.div_ceil(2) % self.shape.consumers == consumer;
            if mine || self.rules.waits_for_skipped {
                // A parity is all that a barrier tells.
                let passed = |completed: u32| completed % 2 != phase % 2;
                let there = || !self.rules.waits_for_skipped || self.filled[slot].reached(phase + 1);
                wait::<P, _>("a stage", there, || passed(self.phases[slot].load(Ordering::Acquire)).then_some(()));
            }
            if mine {
                assert_eq!(self.contents[slot].read(), stage as u32, "a wrong stage");
            }
            self.done[consumer].store(stage as u32 + 1, self.rules.done);
            self.freed[consumer].set(stage as u32 + 1);
        }
    }
}

pub(crate) fn run<P: Platform>(rules: Rules, shape: Shape) {
    let ring = Arc::new(Ring::<P> {
        rules,
        shape,
        contents: (0..shape.slots).map(|_| P::Cell::new(u32::MAX)).collect(),
        phases: (0..shape.slots).map(|_| P::Word::new(0)).collect(),
        filled: (0..shape.slots).map(|_| Hint::default()).collect(),
        done: (0..shape.consumers).map(|_| P::Word::new(0)).collect(),
        freed: (0..shape.consumers).map(|_| Hint::default()).collect(),
    });
    let mut joins = Vec::new();
    for slot in 1..shape.slots {
        let ring = Arc::clone(&ring);
        joins.push(P::spawn(move || ring.fill(slot)));
    }
    for consumer in 0..shape.consumers {
        let ring = Arc::clone(&ring);
        joins.push(P::spawn(move || ring.consume(consumer)));
    }
    ring.fill(0);
    for join in joins {
        join();
    }
}
