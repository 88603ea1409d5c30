//! Inside a worker: the consumers read what the finalizer's arrival and clearing are about, so the finalizer must be
//! behind its consumers' reads when it arrives, and they behind its look at the arrivals when the next step begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::exchange::{Exchange, Rules, Shape};
use crate::platform::{Hint, Platform, Word, wait};

/// How the two meet; anything but [`Meetings::RIGHT`] is a mutant.
#[derive(Clone, Copy)]
pub(crate) struct Meetings {
    /// Order of a consumer's "done with the step" (`step_done`).
    pub(crate) done: Ordering,
    /// Order of the finalizer's "the token is there" (`token_there`).
    pub(crate) token: Ordering,
    /// Whether the finalizer waits for its consumers before it lets them go on, not after.
    pub(crate) waits_first: bool,
}

impl Meetings {
    pub(crate) const RIGHT: Self = Self { done: Ordering::Release, token: Ordering::Release, waits_first: true };
}

/// A barrier's two ends: one thread completes its phases, a step each, and another waits for them.
struct Phases<P: Platform> {
    word: P::Word,
    hint: Hint,
}

impl<P: Platform> Phases<P> {
    fn new() -> Self {
        Self { word: P::Word::new(0), hint: Hint::default() }
    }
    fn complete(&self, step: usize, order: Ordering) {
        let phases = step as u32 + 1;
        self.word.store(phases, order);
        self.hint.set(phases);
    }
    fn wait(&self, step: usize, what: &str) {
        let there = || self.hint.reached(step as u32 + 1);
        // A parity is all that a barrier tells.
        wait::<P, _>(what, there, || (self.word.load(Ordering::Acquire) % 2 != step as u32 % 2).then_some(()));
    }
}

struct Worker<P: Platform> {
    done: Phases<P>,
    token: Phases<P>,
}

/// `steps` steps of two workers of two threads each.
pub(crate) fn run<P: Platform>(meetings: Meetings, steps: usize) {
    let shape = Shape { workers: 2, slots: 1, width: 2, launches: 1, steps, moving: false };
    let exchange = Arc::new(Exchange::<P>::new(Rules::RIGHT, shape));
    let workers: Arc<Vec<Worker<P>>> =
        Arc::new((0..2).map(|_| Worker { done: Phases::new(), token: Phases::new() }).collect());
    let mut joins = Vec::new();
    for worker in 0..2 {
        let (shared, exchange) = (Arc::clone(&workers), Arc::clone(&exchange));
        joins.push(P::spawn(move || {
            for step in 0..steps {
                exchange.read(step, 0, 1 - worker);
                shared[worker].done.complete(step, meetings.done);
                shared[worker].token.wait(step, "the end of the step");
            }
        }));
    }
    let finalize = move |worker: usize, exchange: &Exchange<P>, shared: &[Worker<P>]| {
        for step in 0..steps {
            exchange.publish(step, 0, worker);
            if meetings.waits_first {
                shared[worker].done.wait(step, "its consumers");
            }
            exchange.await_arrivals_before(step);
            exchange.clear_before(step, 0, worker);
            shared[worker].token.complete(step, meetings.token);
            if !meetings.waits_first {
                shared[worker].done.wait(step, "its consumers");
            }
            exchange.arrive();
        }
    };
    let (shared, other) = (Arc::clone(&workers), Arc::clone(&exchange));
    joins.push(P::spawn(move || finalize(1, &other, &shared)));
    finalize(0, &exchange, &workers);
    for join in joins {
        join();
    }
}
