//! What a worker does between two looks at a counter: spin at first, then give its core to others, and finally give
//! up, so that a lost signal is an error and not a hang.

use std::time::{Duration, Instant};

/// Looks with a pause instruction between them before the core is given away: about 100 us.
const SPINS: u32 = 2_000;
/// Yields between two looks at the clock.
const YIELDS_PER_CLOCK: u32 = 256;

/// The waiting state of one wait.
#[derive(Debug)]
pub struct Patience {
    looks: u32,
    limit: Option<Duration>,
    since: Option<Instant>,
}

impl Patience {
    /// Waits for at most about `limit`, or for ever.
    #[must_use]
    pub fn new(limit: Option<Duration>) -> Self {
        Self { looks: 0, limit, since: None }
    }

    /// Passes some time; false when the limit is over.
    #[inline]
    pub fn pass(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        if self.looks < SPINS {
            std::hint::spin_loop();
            return true;
        }
        self.slow_pass()
    }

    /// Whether this wait is still in its spinning phase.
    #[must_use]
    pub fn spinning(&self) -> bool {
        self.looks < SPINS
    }

    #[cold]
    fn slow_pass(&mut self) -> bool {
        std::thread::yield_now();
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.looks == u32::MAX {
            self.looks = SPINS;
        }
        !self.looks.is_multiple_of(YIELDS_PER_CLOCK) || self.limit.is_none_or(|limit| since.elapsed() < limit)
    }
}
