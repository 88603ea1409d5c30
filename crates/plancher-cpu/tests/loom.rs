//! The protocol's core under loom, with 2 to 4 threads: every interleaving (with 4 threads, those of at most
//! three preemptions), and every reordering that the memory model allows. Broken variants of the protocol show that the models would notice. The protocol is generic over its
//! platform, so that no `--cfg loom` and no build of its own is needed.

#![expect(clippy::arc_with_non_send_sync, reason = "loom's cells are shared on purpose: it checks every access")]

use std::marker::PhantomData;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use plancher_cpu::sync::{Counters, Platform, WaitError, Word};

/// How a word signals and looks.
trait Orders {
    const SIGNAL: Ordering;
    const LOOK: Ordering;
}

struct Right;
impl Orders for Right {
    const SIGNAL: Ordering = Ordering::Release;
    const LOOK: Ordering = Ordering::Acquire;
}

struct NoRelease;
impl Orders for NoRelease {
    const SIGNAL: Ordering = Ordering::Relaxed;
    const LOOK: Ordering = Ordering::Acquire;
}

struct NoAcquire;
impl Orders for NoAcquire {
    const SIGNAL: Ordering = Ordering::Release;
    const LOOK: Ordering = Ordering::Relaxed;
}

struct LoomWord<O>(AtomicU32, PhantomData<O>);

impl<O: Orders + Send + Sync> Word for LoomWord<O> {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value), PhantomData)
    }
    fn load_acquire(&self) -> u32 {
        self.0.load(O::LOOK)
    }
    fn increment_release(&self) {
        self.0.fetch_add(1, O::SIGNAL);
    }
    fn reset(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

struct Loom<O>(PhantomData<O>);

impl<O: Orders + Send + Sync> Platform for Loom<O> {
    type Word = LoomWord<O>;
}

/// Looks once more after letting the others run.
fn idle() -> bool {
    thread::yield_now();
    true
}

/// One producer a counter signal, one consumer: the consumer sees what all producers wrote.
fn producers_and_a_consumer<O: Orders + Send + Sync + 'static>(producers: u32, generation: u32) {
    // With three producers, all schedules of at most three preemptions; all schedules otherwise.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (producers > 2).then_some(3);
    model.check(move || {
        let counters = Arc::new(Counters::<Loom<O>>::new(&[producers], generation));
        let cells: Arc<Vec<UnsafeCell<u32>>> = Arc::new((0..producers).map(|_| UnsafeCell::new(0)).collect());
        let threads: Vec<_> = (0..producers as usize)
            .map(|producer| {
                let (counters, cells) = (Arc::clone(&counters), Arc::clone(&cells));
                thread::spawn(move || {
                    // SAFETY: the pointer is loom's own, valid in the closure; loom panics where an access is unordered.
                    cells[producer].with_mut(|cell| unsafe { *cell = 7 });
                    counters.signal(0);
                })
            })
            .collect();
        counters.wait(0, generation, producers, idle).unwrap();
        for cell in cells.iter() {
            // SAFETY: as above.
            assert_eq!(cell.with(|cell| unsafe { *cell }), 7);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_wait_sees_what_was_written_before_the_signals() {
    producers_and_a_consumer::<Right>(1, 0);
    producers_and_a_consumer::<Right>(2, 3);
}

#[test]
fn a_wait_is_right_when_the_counter_wraps() {
    // 2 signals a step: step 2^31 - 1 starts two before the end, step 2^31 at zero again.
    producers_and_a_consumer::<Right>(2, u32::MAX / 2);
    producers_and_a_consumer::<Right>(2, u32::MAX);
}

#[test]
fn three_producers() {
    producers_and_a_consumer::<Right>(3, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_signal_without_release_is_noticed() {
    producers_and_a_consumer::<NoRelease>(1, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_wait_without_acquire_is_noticed() {
    producers_and_a_consumer::<NoAcquire>(1, 0);
}

/// Two workers, two steps. In a step, each writes its half of a shared buffer, and reads the other's after `WRITTEN`;
/// both have finished with the buffer after `READ`, which the next step waits for before it writes again.
fn two_steps(generations: bool, wait_before_reuse: bool) {
    const WRITTEN: usize = 0;
    const READ: usize = 1;
    loom::model(move || {
        let counters = Arc::new(Counters::<Loom<Right>>::new(&[2, 2], 0));
        let buffer = Arc::new([UnsafeCell::new(0_u32), UnsafeCell::new(0_u32)]);
        let work = move |worker: usize, counters: &Counters<Loom<Right>>, buffer: &[UnsafeCell<u32>; 2]| {
            for step in 0..2_u32 {
                let generation = if generations { step } else { 0 };
                if step > 0 && wait_before_reuse {
                    counters.wait(READ, step - 1, 2, idle).unwrap();
                }
                // SAFETY: as above.
                buffer[worker].with_mut(|cell| unsafe { *cell = step + 1 });
                counters.signal(WRITTEN);
                counters.wait(WRITTEN, generation, 2, idle).unwrap();
                // SAFETY: as above.
                assert_eq!(buffer[1 - worker].with(|cell| unsafe { *cell }), step + 1, "a stale value");
                counters.signal(READ);
            }
        };
        let other = {
            let (counters, buffer) = (Arc::clone(&counters), Arc::clone(&buffer));
            thread::spawn(move || work(1, &counters, &buffer))
        };
        work(0, &counters, &buffer);
        other.join().unwrap();
    });
}

#[test]
fn a_buffer_is_reused_by_the_next_step() {
    two_steps(true, true);
}

#[test]
#[should_panic(expected = "a stale value")]
fn a_wait_without_its_generation_is_noticed() {
    two_steps(false, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn early_reuse_is_noticed() {
    two_steps(true, false);
}

#[test]
fn poison_ends_every_wait() {
    loom::model(|| {
        let counters = Arc::new(Counters::<Loom<Right>>::new(&[1], 0));
        let waiting = {
            let counters = Arc::clone(&counters);
            thread::spawn(move || counters.wait(0, 0, 1, idle))
        };
        counters.poison();
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Poisoned));
    });
}
