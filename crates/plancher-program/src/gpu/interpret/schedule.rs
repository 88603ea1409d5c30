//! In which order the warps of all workers take their turns. What a run computes must not depend on it.

use std::collections::BTreeSet;

/// Warps of a worker: eight consumers, these two, and what lets its stores arrive.
pub(super) const FINALIZER: usize = 8;
pub(super) const PRODUCER: usize = 9;
pub(super) const MEMORY: usize = 10;
pub(super) const WARPS: usize = 11;

/// Who goes next, of all warps that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Who has waited longest.
    RoundRobin,
    /// Anybody; the seed fixes the choice.
    Random(u64),
    /// Every turn takes a random time, and some take very long.
    Delays(u64),
    /// Who is furthest in the program.
    Ahead,
    /// Who is furthest behind.
    Behind,
    /// This worker only when nobody else can go on.
    HoldWorker(usize),
    /// Consumers only when nobody else can go on.
    HoldConsumers,
    /// Finalizers only when nobody else can go on.
    HoldFinalizers,
    /// Producers only when nobody else can go on.
    HoldProducers,
    /// What was written reaches others only when nobody can go on without, and clears later still.
    HoldStores,
}

/// The warps that can go on, ordered by when they will.
pub(super) struct Scheduler {
    schedule: Schedule,
    /// Priority (least first), order of arrival, warp.
    ready: BTreeSet<(u64, u64, usize)>,
    arrivals: u64,
    now: u64,
    random: u64,
}

impl Scheduler {
    pub(super) fn new(schedule: Schedule) -> Self {
        let random = match schedule {
            Schedule::Random(seed) | Schedule::Delays(seed) => seed,
            _ => 0,
        };
        Self { schedule, ready: BTreeSet::new(), arrivals: 0, now: 0, random }
    }

    /// `warp` (counted over all workers) can go on; `progress` says how far it is.
    pub(super) fn push(&mut self, warp: usize, progress: u64) {
        let hold = |held: bool| u64::from(held);
        let priority = match self.schedule {
            Schedule::Random(_) => self.next_random(),
            Schedule::Delays(_) => {
                let random = self.next_random();
                let longest = if random.is_multiple_of(64) { 100_000 } else { 64 };
                self.now + (random >> 8) % longest
            }
            Schedule::Ahead => u64::MAX - progress,
            Schedule::Behind => progress,
            Schedule::HoldWorker(worker) => hold(warp / WARPS == worker),
            Schedule::HoldConsumers => hold(warp % WARPS < FINALIZER),
            Schedule::HoldFinalizers => hold(warp % WARPS == FINALIZER),
            Schedule::HoldProducers => hold(warp % WARPS == PRODUCER),
            Schedule::HoldStores if warp % WARPS == MEMORY => 1 + (progress >> 32),
            Schedule::RoundRobin | Schedule::HoldStores => 0,
        };
        self.arrivals += 1;
        self.ready.insert((priority, self.arrivals, warp));
    }

    pub(super) fn pop(&mut self) -> Option<usize> {
        let (priority, _, warp) = self.ready.pop_first()?;
        if let Schedule::Delays(_) = self.schedule {
            self.now = priority;
        }
        Some(warp)
    }

    /// Whether a copy in the background lands now, although its producer could ask for more first.
    pub(super) fn lands_now(&mut self) -> bool {
        match self.schedule {
            Schedule::RoundRobin => true,
            Schedule::Random(_) | Schedule::Delays(_) => self.next_random().is_multiple_of(2),
            _ => false,
        }
    }

    /// Which of so many stores arrives next, of which somebody may wait for one.
    pub(super) fn pick(&mut self, stores: usize, awaited: impl FnOnce() -> Option<usize>) -> usize {
        match self.schedule {
            Schedule::RoundRobin => 0,
            Schedule::HoldStores => awaited().unwrap_or(0),
            _ => (self.next_random() % stores as u64) as usize,
        }
    }

    pub(super) fn holds_stores(&self) -> bool {
        self.schedule == Schedule::HoldStores
    }

    /// Whether a worker's further stores arrive later.
    pub(super) fn stores_rest(&mut self) -> bool {
        match self.schedule {
            Schedule::Random(_) | Schedule::Delays(_) => self.next_random().is_multiple_of(4),
            Schedule::HoldStores => true,
            _ => false,
        }
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
