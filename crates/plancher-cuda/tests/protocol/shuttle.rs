//! The protocol under shuttle: more workers and longer runs than loom can go through, by random schedules. Its memory is
//! sequentially consistent: it finds what is wrong with the protocol's logic, loom what is wrong with its orders.

use std::sync::atomic::Ordering;

use shuttle::sync::atomic::AtomicU32;

use crate::exchange::{self, Clearer};
use crate::platform::{Cell, Platform, atomic_word};
use crate::{block, page, ring};

atomic_word!(AtomicU32);

/// Plain memory, as far as shuttle knows it.
struct Plain(AtomicU32);

impl Cell for Plain {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn read(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
    fn write(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

struct Shuttle;

impl Platform for Shuttle {
    type Word = AtomicU32;
    type Cell = Plain;
    const PATIENCE: u32 = 20_000;
    const FREE_LOOKS: u32 = u32::MAX;
    const VAIN_LOOKS: u32 = u32::MAX;
    fn idle() {
        shuttle::thread::yield_now();
    }
    fn spawn(work: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()> {
        let thread = shuttle::thread::spawn(work);
        Box::new(|| thread.join().unwrap())
    }
}

fn exchanges(rules: exchange::Rules, workers: usize, slots: usize, steps: usize, moving: bool, times: usize) {
    let shape = exchange::Shape { workers, slots, width: workers, launches: 2, steps, moving };
    shuttle::check_random(move || exchange::run::<Shuttle>(rules, shape), times);
}

#[test]
fn workers_exchange_under_any_schedule() {
    exchanges(exchange::Rules::RIGHT, 2, 5, 8, false, 60);
    exchanges(exchange::Rules::RIGHT, 5, 3, 7, false, 40);
    exchanges(exchange::Rules::RIGHT, 5, 2, 7, true, 40);
    exchanges(exchange::Rules { clearer: Clearer::Present, ..exchange::Rules::RIGHT }, 4, 2, 7, true, 40);
}

#[test]
#[should_panic(expected = "a stale value")]
fn words_that_are_never_cleared_are_noticed() {
    exchanges(exchange::Rules { clears: false, ..exchange::Rules::RIGHT }, 3, 2, 4, false, 100);
}

#[test]
#[should_panic(expected = "waits in vain for an exchange word")]
fn clearing_without_the_arrivals_is_noticed() {
    // With more than one edge, the data that a step waits for would hide it here.
    let rules = exchange::Rules { waits_before_clear: false, ..exchange::Rules::RIGHT };
    exchanges(rules, 3, 1, 5, false, 2000);
}

#[test]
#[should_panic(expected = "a torn value")]
fn stores_of_half_a_word_are_noticed() {
    exchanges(exchange::Rules { whole_words: false, ..exchange::Rules::RIGHT }, 3, 1, 3, false, 2000);
}

fn rings(rules: ring::Rules, slots: usize, consumers: usize, for_all: bool, times: usize) {
    let shape = ring::Shape { slots, consumers, stages: 8 * slots, for_all };
    shuttle::check_random(move || ring::run::<Shuttle>(rules, shape), times);
}

#[test]
fn stages_arrive_in_order_under_any_schedule() {
    rings(ring::Rules::RIGHT, 3, 8, true, 60);
    rings(ring::Rules::RIGHT, 4, 8, false, 60);
}

#[test]
#[should_panic(expected = "stage")]
fn a_slot_that_is_filled_early_is_noticed() {
    rings(ring::Rules { early: 1, ..ring::Rules::RIGHT }, 3, 4, true, 2000);
}

#[test]
#[should_panic(expected = "stage")]
fn a_slot_that_only_one_consumer_is_done_with_is_noticed() {
    rings(ring::Rules { waits_for_all: false, ..ring::Rules::RIGHT }, 3, 4, true, 2000);
}

#[test]
#[should_panic(expected = "stage")]
fn a_consumer_that_runs_past_what_it_skips_is_noticed() {
    rings(ring::Rules { waits_for_skipped: false, ..ring::Rules::RIGHT }, 3, 4, false, 2000);
}

#[test]
fn appended_rows_are_there_and_steps_end_under_any_schedule() {
    shuttle::check_random(|| page::run::<Shuttle>(page::Rules::RIGHT, 4, 12), 100);
    shuttle::check_random(|| block::run::<Shuttle>(block::Meetings::RIGHT, 8), 100);
}

#[test]
#[should_panic(expected = "a row that is not there")]
fn a_producer_that_runs_ahead_of_what_is_appended_is_noticed() {
    shuttle::check_random(|| page::run::<Shuttle>(page::Rules { waits: false, ..page::Rules::RIGHT }, 2, 5), 1000);
}

#[test]
#[should_panic(expected = "waits in vain")]
fn a_finalizer_that_lets_its_consumers_go_first_is_noticed() {
    let meetings = block::Meetings { waits_first: false, ..block::Meetings::RIGHT };
    shuttle::check_random(move || block::run::<Shuttle>(meetings, 6), 2000);
}
