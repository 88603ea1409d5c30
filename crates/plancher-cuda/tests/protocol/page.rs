//! Pages of keys and values: a consumer appends to the open page, and in later steps the worker's own producer copies it
//! into the ring, running ahead of the consumers as far as the ring reaches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::platform::{Cell as _, Hint, Platform, Word as _, wait};

/// How appending goes; anything but [`Rules::RIGHT`] is a mutant.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Order of a consumer's "has been appended".
    pub(crate) append: Ordering,
    /// Order of the producer's look.
    pub(crate) look: Ordering,
    /// Whether the producer looks at all.
    pub(crate) waits: bool,
}

impl Rules {
    pub(crate) const RIGHT: Self = Self { append: Ordering::Release, look: Ordering::Acquire, waits: true };
}

struct Pages<P: Platform> {
    rules: Rules,
    rows: Vec<P::Cell>,
    /// Steps whose row is there, by the consumer whose page it is.
    appended: Vec<P::Word>,
    hints: Vec<Hint>,
    /// Steps that the producer has copied all rows for: what a stage's barrier says.
    copied: P::Word,
    landed: Hint,
}

/// Positions of a page here.
const PAGE: usize = 2;

impl<P: Platform> Pages<P> {
    fn consume(&self, consumer: usize, steps: usize) {
        for step in 0..steps {
            let page = step / PAGE;
            // Both wait for the stage with the rows of the past.
            let there = || self.landed.reached(step as u32);
            wait::<P, _>("rows of the past", there, || {
                (self.copied.load(Ordering::Acquire) >= step as u32).then_some(())
            });
            if page % self.appended.len() == consumer {
                self.rows[step].write(step as u32 + 1);
                self.appended[consumer].store(step as u32 + 1, self.rules.append);
                self.hints[consumer].set(step as u32 + 1);
            }
        }
    }

    fn produce(&self, steps: usize) {
        for step in 1..steps {
            // Only the newest row may still be missing; for older ones this has been waited for in earlier steps.
            let consumer = (step - 1) / PAGE % self.appended.len();
            if self.rules.waits {
                let there = || self.hints[consumer].reached(step as u32);
                wait::<P, _>("a row to be appended", there, || {
                    (self.appended[consumer].load(self.rules.look) >= step as u32).then_some(())
                });
            }
            for row in 0..step {
                assert_eq!(self.rows[row].read(), row as u32 + 1, "a row that is not there");
            }
            self.copied.store(step as u32, Ordering::Release);
            self.landed.set(step as u32);
        }
    }
}

/// `steps` steps of a worker with `consumers` consumers and a producer.
pub(crate) fn run<P: Platform>(rules: Rules, consumers: usize, steps: usize) {
    let pages = Arc::new(Pages::<P> {
        rules,
        rows: (0..steps).map(|_| P::Cell::new(0)).collect(),
        appended: (0..consumers).map(|_| P::Word::new(0)).collect(),
        hints: (0..consumers).map(|_| Hint::default()).collect(),
        copied: P::Word::new(0),
        landed: Hint::default(),
    });
    let joins: Vec<_> = (0..consumers)
        .map(|consumer| {
            let pages = Arc::clone(&pages);
            P::spawn(move || pages.consume(consumer, steps))
        })
        .collect();
    pages.produce(steps);
    for join in joins {
        join();
    }
}
