//! What the protocol is built on: one kind of atomic word, and what to do between two looks at it.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit word shared by workers.
pub trait Word: Send + Sync {
    /// A word that holds `value`.
    fn new(value: u32) -> Self;
    /// Reads with acquire ordering.
    fn load_acquire(&self) -> u32;
    /// Adds one, wrapping, with release ordering.
    fn increment_release(&self);
    /// Overwrites; nobody else looks meanwhile.
    fn reset(&self, value: u32);
}

/// The atomics of a machine, or of a model checker.
pub trait Platform {
    /// Its atomic word.
    type Word: Word;
}

/// The machine itself.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Platform for Machine {
    type Word = AtomicU32;
}

impl Word for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load_acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn increment_release(&self) {
        self.fetch_add(1, Ordering::Release);
    }

    fn reset(&self, value: u32) {
        self.store(value, Ordering::Relaxed);
    }
}
