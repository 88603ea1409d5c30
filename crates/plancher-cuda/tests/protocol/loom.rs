//! The protocol under loom: all schedules of few preemptions (a thread that waits lets the others run: that is none), and in
//! each all that the memory model lets a load return.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;

use crate::exchange::{self, Clearer};
use crate::platform::{Cell, Platform, atomic_word};
use crate::{block, page, ring};

atomic_word!(AtomicU32);

/// Memory whose accesses loom checks.
struct Checked(UnsafeCell<u32>);

impl Cell for Checked {
    fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }
    fn read(&self) -> u32 {
        // SAFETY: the pointer is loom's own, valid in the closure; loom panics where an access is unordered.
        self.0.with(|cell| unsafe { *cell })
    }
    fn write(&self, value: u32) {
        // SAFETY: as above.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }
}

// SAFETY: loom runs one thread at a time and panics where an access is unordered.
unsafe impl Send for Checked {}
// SAFETY: as above.
unsafe impl Sync for Checked {}

struct Loom;

impl Platform for Loom {
    type Word = AtomicU32;
    type Cell = Checked;
    const PATIENCE: u32 = 2000;
    const FREE_LOOKS: u32 = 1;
    const VAIN_LOOKS: u32 = 3;
    fn missed() {
        loom::skip_branch();
    }
    fn idle() {
        loom::thread::yield_now();
    }
    fn spawn(work: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()> {
        let thread = loom::thread::spawn(work);
        Box::new(|| thread.join().unwrap())
    }
}

/// Two workers, two edges a step, one launch of four tokens: every copy is used again.
const TWO_WORKERS: exchange::Shape =
    exchange::Shape { workers: 2, slots: 2, width: 2, launches: 1, steps: 4, moving: false };

/// Explores all schedules of at most `preemptions` preemptions, and what memory may return in each.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn exchange(rules: exchange::Rules, shape: exchange::Shape, preemptions: usize) {
    explore(preemptions, move || exchange::run::<Loom>(rules, shape));
}

#[test]
fn words_are_exchanged_and_cleared_in_order() {
    exchange(exchange::Rules::RIGHT, TWO_WORKERS, 3);
    exchange(exchange::Rules::RIGHT, exchange::Shape { steps: 6, ..TWO_WORKERS }, 2);
}

#[test]
fn three_workers_exchange_words() {
    for width in [1, 3] {
        exchange(exchange::Rules::RIGHT, exchange::Shape { workers: 3, width, ..TWO_WORKERS }, 0);
    }
}

#[test]
fn a_word_may_change_its_writer() {
    for clearer in [Clearer::Former, Clearer::Present] {
        let rules = exchange::Rules { clearer, ..exchange::Rules::RIGHT };
        exchange(rules, exchange::Shape { steps: 5, moving: true, ..TWO_WORKERS }, 2);
    }
}

#[test]
fn a_second_launch_begins_with_all_words_cleared() {
    exchange(exchange::Rules::RIGHT, exchange::Shape { launches: 2, steps: 2, ..TWO_WORKERS }, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_arrival_without_release_is_noticed() {
    exchange(exchange::Rules { arrive: Ordering::Relaxed, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_look_at_the_arrivals_without_acquire_is_noticed() {
    exchange(exchange::Rules { look: Ordering::Relaxed, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn two_copies_are_noticed() {
    exchange(exchange::Rules { copies: 2, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "a stale value")]
fn words_that_are_never_cleared_are_noticed() {
    let shape = exchange::Shape { slots: 1, ..TWO_WORKERS };
    exchange(exchange::Rules { clears: false, ..exchange::Rules::RIGHT }, shape, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn clearing_without_the_arrivals_is_noticed() {
    exchange(exchange::Rules { waits_before_clear: false, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "a torn value")]
fn stores_of_half_a_word_are_noticed() {
    exchange(exchange::Rules { whole_words: false, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "waits in vain for an exchange word")]
fn a_result_that_looks_like_nothing_is_noticed() {
    exchange(exchange::Rules { maps_sentinel: false, ..exchange::Rules::RIGHT }, TWO_WORKERS, 2);
}

#[test]
#[should_panic(expected = "a stale value")]
fn a_second_launch_with_words_of_the_first_is_noticed() {
    let rules = exchange::Rules { refills: false, ..exchange::Rules::RIGHT };
    exchange(rules, exchange::Shape { launches: 2, steps: 1, ..TWO_WORKERS }, 2);
}

#[test]
fn consumers_and_finalizers_meet() {
    explore(0, || block::run::<Loom>(block::Meetings::RIGHT, 4));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_arrival_that_is_not_behind_the_consumers_is_noticed() {
    explore(0, || block::run::<Loom>(block::Meetings { done: Ordering::Relaxed, ..block::Meetings::RIGHT }, 4));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_step_that_begins_without_the_finalizer_is_noticed() {
    explore(0, || block::run::<Loom>(block::Meetings { token: Ordering::Relaxed, ..block::Meetings::RIGHT }, 4));
}

/// Two slots, two consumers, three stages a slot.
fn ring(rules: ring::Rules, for_all: bool) {
    let shape = ring::Shape { slots: 2, consumers: 2, stages: 6, for_all };
    explore(0, move || ring::run::<Loom>(rules, shape));
}

#[test]
fn stages_arrive_in_order() {
    ring(ring::Rules::RIGHT, true);
    ring(ring::Rules::RIGHT, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_copy_that_lands_without_release_is_noticed() {
    ring(ring::Rules { landed: Ordering::Relaxed, ..ring::Rules::RIGHT }, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_consumer_that_is_done_without_release_is_noticed() {
    ring(ring::Rules { done: Ordering::Relaxed, ..ring::Rules::RIGHT }, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_that_is_filled_early_is_noticed() {
    ring(ring::Rules { early: 1, ..ring::Rules::RIGHT }, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_that_only_one_consumer_is_done_with_is_noticed() {
    ring(ring::Rules { waits_for_all: false, ..ring::Rules::RIGHT }, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_consumer_that_runs_past_what_it_skips_is_noticed() {
    ring(ring::Rules { waits_for_skipped: false, ..ring::Rules::RIGHT }, false);
}

#[test]
fn appended_rows_are_there_when_the_producer_copies_them() {
    explore(1, || page::run::<Loom>(page::Rules::RIGHT, 2, 4));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_append_without_release_is_noticed() {
    explore(1, || page::run::<Loom>(page::Rules { append: Ordering::Relaxed, ..page::Rules::RIGHT }, 2, 5));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_producer_that_looks_without_acquire_is_noticed() {
    explore(1, || page::run::<Loom>(page::Rules { look: Ordering::Relaxed, ..page::Rules::RIGHT }, 2, 5));
}

#[test]
#[should_panic(expected = "a row that is not there")]
fn a_producer_that_runs_ahead_of_what_is_appended_is_noticed() {
    explore(1, || page::run::<Loom>(page::Rules { waits: false, ..page::Rules::RIGHT }, 2, 5));
}
