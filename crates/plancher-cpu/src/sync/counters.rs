//! Counters with generations: a counter is never cleared. In step `g` it starts at `g * total`, where `total` is the
//! number of signals it gets in every step, so a wait for `value` signals of step `g` is a wait for
//! `g * total + value`. All arithmetic wraps; a wait is met when the wrapped difference is not negative, which is
//! right as long as no worker is 2^31 signals behind another.

use super::{Platform, Word};

/// Why a wait ended without its counter having been reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// Another worker failed and said so.
    Poisoned,
    /// The waiting worker's patience ran out.
    GaveUp {
        /// How many signals of this step had arrived.
        seen: u32,
    },
}

/// One word a cache line, and its neighbour, which the adjacent-line prefetcher would drag along.
#[repr(align(128))]
struct Padded<T>(T);

/// A set of dependency counters.
pub struct Counters<P: Platform> {
    words: Box<[Padded<P::Word>]>,
    totals: Box<[u32]>,
    poison: Padded<P::Word>,
}

impl<P: Platform> Counters<P> {
    /// Counters at the start of step `generation`; counter `c` gets exactly `totals[c]` signals in every step.
    #[must_use]
    pub fn new(totals: &[u32], generation: u32) -> Self {
        Self {
            words: totals.iter().map(|&total| Padded(P::Word::new(generation.wrapping_mul(total)))).collect(),
            totals: totals.into(),
            poison: Padded(P::Word::new(0)),
        }
    }

    /// Adds one signal to `counter`; everything this worker wrote before is visible to whoever waits for it.
    #[inline]
    pub fn signal(&self, counter: usize) {
        self.words[counter].0.increment_release();
    }

    /// Signals of step `generation` that have arrived; negative while the step before has not finished.
    #[inline]
    fn arrived(&self, counter: usize, generation: u32) -> i32 {
        let base = generation.wrapping_mul(self.totals[counter]);
        self.words[counter].0.load_acquire().wrapping_sub(base) as i32
    }

    /// Whether `counter` has had `value` signals in step `generation`.
    #[inline]
    #[must_use]
    pub fn reached(&self, counter: usize, generation: u32, value: u32) -> bool {
        self.arrived(counter, generation) >= value as i32
    }

    /// Waits until `counter` has had `value` signals in step `generation`. `idle` is called after every unsuccessful
    /// look and returns false to give up.
    ///
    /// # Errors
    /// When `idle` gave up, or somebody called [`Counters::poison`].
    #[inline]
    pub fn wait(
        &self,
        counter: usize,
        generation: u32,
        value: u32,
        mut idle: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        while !self.reached(counter, generation, value) {
            if self.poison.0.load_acquire() != 0 {
                return Err(WaitError::Poisoned);
            }
            if !idle() {
                return Err(WaitError::GaveUp { seen: self.arrived(counter, generation).max(0) as u32 });
            }
        }
        Ok(())
    }

    /// Ends the step for everybody who waits or will wait.
    pub fn poison(&self) {
        self.poison.0.increment_release();
    }

    /// Puts every counter at the start of step `generation` after a step that failed.
    pub fn restart(&mut self, generation: u32) {
        for (word, &total) in self.words.iter().zip(&self.totals) {
            word.0.reset(generation.wrapping_mul(total));
        }
        self.poison.0.reset(0);
    }
}
