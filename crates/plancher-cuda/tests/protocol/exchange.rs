//! The exchange between workers: words that say themselves that they are there, in three copies by step, and the
//! arrival counter that orders their clearing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::platform::{Cell as _, Hint, Platform, Word as _, wait};

/// "Not there yet."
pub(crate) const SENTINEL: u32 = u32::MAX;

/// Who clears a word whose writer changes from one step to the next, as it does when a second split of attention wakes up.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Clearer {
    /// Its writer in the step that is being cleared.
    Former,
    /// Its writer in this step.
    Present,
}

/// How the protocol goes; anything but [`Rules::RIGHT`] is a mutant.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a mutant of its own")]
pub(crate) struct Rules {
    /// Order of an arrival.
    pub(crate) arrive: Ordering,
    /// Order of the look at the arrivals.
    pub(crate) look: Ordering,
    /// Copies of every word.
    pub(crate) copies: usize,
    /// Whether words are cleared at all.
    pub(crate) clears: bool,
    /// Whether the arrivals of the step before are waited for before its words are cleared.
    pub(crate) waits_before_clear: bool,
    /// Whether a word is stored at once, not as two halves.
    pub(crate) whole_words: bool,
    /// Whether a result that equals the sentinel is published as another value.
    pub(crate) maps_sentinel: bool,
    /// Whether all words are filled with the sentinel between two launches.
    pub(crate) refills: bool,
    /// Who clears a word that had another writer in the step before.
    pub(crate) clearer: Clearer,
}

impl Rules {
    pub(crate) const RIGHT: Self = Self {
        arrive: Ordering::Release,
        look: Ordering::Acquire,
        copies: 3,
        clears: true,
        waits_before_clear: true,
        whole_words: true,
        maps_sentinel: true,
        refills: true,
        clearer: Clearer::Former,
    };
}

/// The exchange words of `slots` edges, one word a worker and edge.
pub(crate) struct Exchange<P: Platform> {
    pub(crate) rules: Rules,
    workers: usize,
    slots: usize,
    /// Words of an edge; the workers from there on only read.
    width: usize,
    /// `(copies, slots, width)`.
    words: Vec<P::Word>,
    /// Beside each word, memory that its readers read and that its clearing writes: the two must be ordered.
    readers: Vec<P::Cell>,
    /// The same for all that store to a word.
    writers: Vec<P::Cell>,
    arrivals: P::Word,
    /// Steps that each word has been published for.
    published: Vec<Hint>,
    arrived: Hint,
    /// Launches that have ended.
    launches: Hint,
}

impl<P: Platform> Exchange<P> {
    pub(crate) fn new(rules: Rules, shape: Shape) -> Self {
        let Shape { workers, slots, width, .. } = shape;
        let n = rules.copies * slots * width;
        Self {
            rules,
            workers,
            slots,
            width,
            words: (0..n).map(|_| P::Word::new(SENTINEL)).collect(),
            readers: (0..n).map(|_| P::Cell::new(0)).collect(),
            writers: (0..n).map(|_| P::Cell::new(0)).collect(),
            arrivals: P::Word::new(0),
            published: (0..n).map(|_| Hint::default()).collect(),
            arrived: Hint::default(),
            launches: Hint::default(),
        }
    }

    fn index(&self, step: usize, slot: usize, word: usize) -> usize {
        (step % self.rules.copies * self.slots + slot) * self.width + word
    }

    /// What is published for a word: its launch, step and place; or, once, two NaNs of the worst kind.
    fn result(&self, step: usize, slot: usize, word: usize) -> u32 {
        let place = (step + 1) << 16 | slot << 8 | word;
        let result = if (step, slot, word) == (1, 0, 0) { SENTINEL } else { place as u32 | self.launches.get() << 24 };
        if self.rules.maps_sentinel && result == SENTINEL { 0x7FFF_7FFF } else { result }
    }

    /// Stores the word's result of this step.
    pub(crate) fn publish(&self, step: usize, slot: usize, word: usize) {
        let value = self.result(step, slot, word);
        let index = self.index(step, slot, word);
        self.writers[index].write(0);
        if self.rules.whole_words {
            self.words[index].store(value, Ordering::Relaxed);
        } else {
            self.words[index].and(value | 0xFFFF_0000, Ordering::Relaxed);
            self.published[index].set(step as u32 + 1);
            self.words[index].and(value | 0x0000_FFFF, Ordering::Relaxed);
        }
        self.published[index].set(step as u32 + 1);
    }

    /// Waits for the word, and checks it.
    pub(crate) fn read(&self, step: usize, slot: usize, word: usize) {
        let index = self.index(step, slot, word);
        let there = || self.published[index].reached(step as u32 + 1);
        let value = wait::<P, _>("an exchange word", there, || {
            let value = self.words[index].load(Ordering::Relaxed);
            (value != SENTINEL).then_some(value)
        });
        self.readers[index].read();
        let expected = self.result(step, slot, word);
        if value != expected {
            let kind = if value >> 16 == 0xFFFF || value & 0xFFFF == 0xFFFF { "torn" } else { "stale" };
            panic!("a {kind} value: {value:#010x} instead of {expected:#010x}");
        }
    }

    /// Clears a word of the step before `step`, whose arrivals the caller has waited for.
    pub(crate) fn clear_before(&self, step: usize, slot: usize, word: usize) {
        if step > 0 && self.rules.clears {
            let index = self.index(step - 1, slot, word);
            self.readers[index].write(0);
            self.writers[index].write(0);
            self.words[index].store(SENTINEL, Ordering::Relaxed);
        }
    }

    /// Says that all that this worker reads in this step has been read.
    pub(crate) fn arrive(&self) {
        self.arrivals.add(1, self.rules.arrive);
        self.arrived.add(1);
    }

    /// Waits until every worker has arrived in the step before `step`.
    pub(crate) fn await_arrivals_before(&self, step: usize) {
        if self.rules.waits_before_clear {
            let all = (step * self.workers) as u32;
            let there = || self.arrived.reached(all);
            wait::<P, _>("arrivals", there, || (self.arrivals.load(self.rules.look) >= all).then_some(()));
        }
    }

    /// What the host does between two launches, when nobody else runs.
    fn restart(&self) {
        if self.rules.refills {
            for word in &self.words {
                word.store(SENTINEL, Ordering::Relaxed);
            }
        }
        self.arrivals.store(0, Ordering::Relaxed);
        self.arrived.set(0);
        self.launches.add(1);
        self.published.iter().for_each(|hint| hint.set(0));
    }

    /// One worker's part of a launch. An edge is a word of every worker, which all of them read; the last edge's words
    /// are the candidates for the token, and only then are the words of the step before cleared. `writer(step, word)`
    /// is who writes a word.
    fn launch(&self, worker: usize, steps: usize, writer: impl Fn(usize, usize) -> usize) {
        let writer = &writer;
        let words = |step| (0..self.width).filter(move |&word| writer(step, word) == worker);
        for step in 0..steps {
            for slot in 0..self.slots {
                if slot + 1 == self.slots {
                    self.await_arrivals_before(step);
                    let clears = match self.rules.clearer {
                        Clearer::Former => step.saturating_sub(1),
                        Clearer::Present => step,
                    };
                    for slot in 0..self.slots {
                        words(clears).for_each(|word| self.clear_before(step, slot, word));
                    }
                }
                words(step).for_each(|word| self.publish(step, slot, word));
                // What it has written itself, a worker need not wait for: fewer states.
                let others = (0..self.width).filter(|word| words(step).all(|own| own != *word));
                others.for_each(|word| self.read(step, slot, word));
            }
            self.arrive();
        }
    }
}

/// What is explored.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) workers: usize,
    /// Edges of a step.
    pub(crate) slots: usize,
    /// Words of an edge, one a worker; workers beyond that only read.
    pub(crate) width: usize,
    pub(crate) launches: usize,
    /// Tokens of a launch.
    pub(crate) steps: usize,
    /// Every word changes its writer after every second step.
    pub(crate) moving: bool,
}

pub(crate) fn run<P: Platform>(rules: Rules, shape: Shape) {
    let exchange = Arc::new(Exchange::<P>::new(rules, shape));
    let writer = move |step, word| if shape.moving { (word + step / 2) % shape.workers } else { word };
    for launch in 0..shape.launches {
        let joins: Vec<_> = (1..shape.workers)
            .map(|worker| {
                let exchange = Arc::clone(&exchange);
                P::spawn(move || exchange.launch(worker, shape.steps, writer))
            })
            .collect();
        exchange.launch(0, shape.steps, writer);
        for join in joins {
            join();
        }
        if launch + 1 < shape.launches {
            exchange.restart();
        }
    }
}
