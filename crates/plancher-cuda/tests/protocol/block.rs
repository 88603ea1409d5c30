//! Inside a worker: the consumers read what the finalizer's arrival and clearing are about, so the finalizer must be
//! behind its consumers' reads when it arrives, and they behind its look at the arrivals when the next step begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::exchange::{Exchange, Rules, Shape};
use crate::platform::{Hint, Platform, Word, wait};

/// How the two meet; anything but [`Meetings::RIGHT`] is a mutant.
#[derive(Clone, Copy)]
pub(crate) struct Meetings {
    /// Order of a consumer's "the sums are there".
    pub(crate) sums: Ordering,
    /// Order of the finalizer's "the step is over".
    pub(crate) over: Ordering,
}

impl Meetings {
    pub(crate) const RIGHT: Self = Self { sums: Ordering::Release, over: Ordering::Release };
}

/// A count that one thread raises and another waits for: a barrier's two ends.
struct Count<P: Platform> {
    word: P::Word,
    hint: Hint,
}

impl<P: Platform> Count<P> {
    fn new() -> Self {
        Self { word: P::Word::new(0), hint: Hint::default() }
    }
    fn set(&self, value: u32, order: Ordering) {
        self.word.store(value, order);
        self.hint.set(value);
    }
    fn wait(&self, value: u32, what: &str) {
        let there = || self.hint.reached(value);
        wait::<P, _>(what, there, || (self.word.load(Ordering::Acquire) >= value).then_some(()));
    }
}

struct Worker<P: Platform> {
    sums: Count<P>,
    over: Count<P>,
}

/// `steps` steps of two workers of two threads each.
pub(crate) fn run<P: Platform>(meetings: Meetings, steps: usize) {
    let shape = Shape { workers: 2, slots: 1, width: 2, launches: 1, steps, moving: false };
    let exchange = Arc::new(Exchange::<P>::new(Rules::RIGHT, shape));
    let workers: Arc<Vec<Worker<P>>> =
        Arc::new((0..2).map(|_| Worker { sums: Count::new(), over: Count::new() }).collect());
    let mut joins = Vec::new();
    for worker in 0..2 {
        let (shared, exchange) = (Arc::clone(&workers), Arc::clone(&exchange));
        joins.push(P::spawn(move || {
            for step in 0..steps {
                exchange.read(step, 0, 1 - worker);
                shared[worker].sums.set(step as u32 + 1, meetings.sums);
                shared[worker].over.wait(step as u32 + 1, "the end of the step");
            }
        }));
    }
    let finalize = move |worker: usize, exchange: &Exchange<P>, shared: &[Worker<P>]| {
        for step in 0..steps {
            exchange.publish(step, 0, worker);
            shared[worker].sums.wait(step as u32 + 1, "partial sums");
            exchange.await_arrivals_before(step);
            exchange.clear_before(step, 0, worker);
            shared[worker].over.set(step as u32 + 1, meetings.over);
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
