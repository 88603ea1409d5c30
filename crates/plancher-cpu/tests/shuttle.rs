//! The protocol under shuttle: more workers and longer programs than loom can go through, by random schedules.

use std::sync::Arc;

use plancher_cpu::sync::{Counters, Platform, Word};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

struct ShuttleWord(AtomicU32);

impl Word for ShuttleWord {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load_acquire(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    fn increment_release(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
    fn reset(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

struct Shuttle;

impl Platform for Shuttle {
    type Word = ShuttleWord;
}

fn idle() -> bool {
    thread::yield_now();
    true
}

/// What is done to the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Right,
    /// Every step waits as if it were the first.
    NoGeneration,
    /// The next layer writes a buffer before the last one has been read.
    EarlyReuse,
    /// A worker waits for one signal too few.
    MissingSignal,
}

/// `workers` workers, `steps` steps of `layers` layers. A layer is a product (each worker writes its element of `x`),
/// a wait for all, a second product (each reads all of `x` and writes its element of `y`), and a wait for all; the
/// next layer reads all of `y`. Values depend on everything before, so that one stale read shows in the end.
fn run(variant: Variant, workers: usize, layers: usize, steps: u32) {
    let all = workers as u32;
    let counters = Arc::new(Counters::<Shuttle>::new(&vec![all; 2 * layers + 1], 0));
    let x: Arc<Vec<AtomicU32>> = Arc::new((0..workers).map(|_| AtomicU32::new(0)).collect());
    let y: Arc<Vec<AtomicU32>> = Arc::new((0..workers).map(|_| AtomicU32::new(1)).collect());
    let sum = |buffer: &[AtomicU32]| buffer.iter().fold(0_u32, |sum, v| sum.wrapping_add(v.load(Ordering::Relaxed)));
    let threads: Vec<_> = (0..workers)
        .map(|worker| {
            let (counters, x, y) = (Arc::clone(&counters), Arc::clone(&x), Arc::clone(&y));
            thread::spawn(move || {
                let mut seen = Vec::new();
                for step in 0..steps {
                    let generation = if variant == Variant::NoGeneration { 0 } else { step };
                    for layer in 0..layers {
                        let value = sum(&y).wrapping_mul(3);
                        x[worker].store(value.wrapping_add(worker as u32), Ordering::Relaxed);
                        counters.signal(2 * layer);
                        let enough = if variant == Variant::MissingSignal { all - 1 } else { all };
                        counters.wait(2 * layer, generation, enough, idle).unwrap();
                        let value = sum(&x).wrapping_mul(5);
                        y[worker].store(value.wrapping_add(worker as u32), Ordering::Relaxed);
                        counters.signal(2 * layer + 1);
                        if variant != Variant::EarlyReuse {
                            counters.wait(2 * layer + 1, generation, all, idle).unwrap();
                        }
                    }
                    seen.push(sum(&y));
                    counters.signal(2 * layers);
                    counters.wait(2 * layers, generation, all, idle).unwrap();
                }
                seen
            })
        })
        .collect();
    let seen: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for worker in &seen {
        assert_eq!(*worker, expected(workers as u32, layers, steps), "a stale value");
    }
}

/// The same computation, plainly.
fn expected(workers: u32, layers: usize, steps: u32) -> Vec<u32> {
    let mut y: Vec<u32> = vec![1; workers as usize];
    let sum = |values: &[u32]| values.iter().fold(0_u32, |sum, v| sum.wrapping_add(*v));
    (0..steps)
        .map(|_| {
            for _ in 0..layers {
                let x: Vec<u32> = (0..workers).map(|w| sum(&y).wrapping_mul(3).wrapping_add(w)).collect();
                y = (0..workers).map(|w| sum(&x).wrapping_mul(5).wrapping_add(w)).collect();
            }
            sum(&y)
        })
        .collect()
}

#[test]
fn workers_agree_under_any_schedule() {
    shuttle::check_random(|| run(Variant::Right, 2, 3, 3), 300);
    shuttle::check_random(|| run(Variant::Right, 5, 2, 3), 100);
    shuttle::check_random(|| run(Variant::Right, thread_rng().gen_range(1..9), 2, 2), 100);
}

#[test]
#[should_panic(expected = "a stale value")]
fn a_wait_without_its_generation_is_noticed() {
    shuttle::check_random(|| run(Variant::NoGeneration, 3, 2, 3), 1000);
}

#[test]
#[should_panic(expected = "a stale value")]
fn early_reuse_is_noticed() {
    shuttle::check_random(|| run(Variant::EarlyReuse, 3, 3, 2), 1000);
}

#[test]
#[should_panic(expected = "a stale value")]
fn a_missing_signal_is_noticed() {
    shuttle::check_random(|| run(Variant::MissingSignal, 3, 3, 2), 1000);
}
