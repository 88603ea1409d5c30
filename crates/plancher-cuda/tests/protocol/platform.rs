//! What the models are built on: atomic words, memory that needs ordering, threads. Loom and shuttle are two of these.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit atomic word.
pub(crate) trait Word: Send + Sync + 'static {
    fn new(value: u32) -> Self;
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    fn add(&self, value: u32, order: Ordering);
    /// Keeps only the bits that are set in `mask` too; what a 16-bit store into a word of ones is to its 32-bit readers.
    fn and(&self, mask: u32, order: Ordering);
}

/// Makes a model's atomic type a [`Word`]: their methods are the standard library's.
macro_rules! atomic_word {
    ($atomic:ty) => {
        impl $crate::platform::Word for $atomic {
            fn new(value: u32) -> Self {
                Self::new(value)
            }
            fn load(&self, order: ::std::sync::atomic::Ordering) -> u32 {
                self.load(order)
            }
            fn store(&self, value: u32, order: ::std::sync::atomic::Ordering) {
                self.store(value, order);
            }
            fn add(&self, value: u32, order: ::std::sync::atomic::Ordering) {
                self.fetch_add(value, order);
            }
            fn and(&self, mask: u32, order: ::std::sync::atomic::Ordering) {
                self.fetch_and(mask, order);
            }
        }
    };
}
pub(crate) use atomic_word;

/// Plain memory: two accesses that nothing orders, one of them a write, are an error.
pub(crate) trait Cell: Send + Sync + 'static {
    fn new(value: u32) -> Self;
    fn read(&self) -> u32;
    fn write(&self, value: u32);
}

/// Threads, and the memory that they share.
pub(crate) trait Platform: Sized + 'static {
    type Word: Word;
    type Cell: Cell;
    /// After how many looks a wait gives up. More than any wait of a right protocol takes.
    const PATIENCE: u32;
    /// Looks of a wait that do not care for hints.
    const FREE_LOOKS: u32;
    /// Looks of a wait after which others should have been let run.
    const VAIN_LOOKS: u32;
    /// A look did not find what is there: as if one had not looked yet, so that what follows need not be explored again.
    fn missed() {}
    /// Lets the others run.
    fn idle();
    /// Starts a thread; what comes back joins it.
    fn spawn(work: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()>;
}

/// What is known of a word to the model itself, beside what its threads can know: that something has been stored. It keeps
/// explorations small: nobody looks again and again for what is not there yet.
#[derive(Default)]
pub(crate) struct Hint(AtomicU32);

impl Hint {
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::SeqCst);
    }
    pub(crate) fn add(&self, value: u32) {
        self.0.fetch_add(value, Ordering::SeqCst);
    }
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
    pub(crate) fn reached(&self, value: u32) -> bool {
        self.get() >= value
    }
}

/// Looks until `look` finds something; `there` is the hint that it could. Every wait of the kernel has a bound, and so has this
/// one.
pub(crate) fn wait<P: Platform, T>(what: &str, there: impl Fn() -> bool, mut look: impl FnMut() -> Option<T>) -> T {
    for looks in 0..P::PATIENCE {
        let there = there();
        // The first look may find something that it should not; others are for what is there.
        let found = if there || looks < P::FREE_LOOKS { look() } else { None };
        if let Some(found) = found {
            return found;
        }
        if there || looks > P::VAIN_LOOKS {
            P::missed();
        }
        P::idle();
    }
    panic!("waits in vain for {what}");
}
