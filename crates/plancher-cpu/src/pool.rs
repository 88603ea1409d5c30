//! Persistent worker threads. The caller's thread is worker 0; the others are pinned, wait for the next job spinning
//! for a short while, and then sleep until they are called.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::affinity::{self, PinnedCaller};
use crate::sync::{Counters, Machine, Patience};

/// Counter 0 starts a job, counter 1 counts the workers that have finished it.
const START: usize = 0;
const DONE: usize = 1;

/// A worker could not be started, or panicked.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The system refused a thread.
    #[error("cannot start worker {worker}: {source}")]
    Spawn {
        /// Which worker.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// A job panicked.
    #[error("worker {worker} panicked: {message}")]
    Panicked {
        /// Which worker.
        worker: usize,
        /// Its panic message.
        message: String,
    },
}

/// What workers run: called once by each with its index.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    counters: Counters<Machine>,
    job: UnsafeCell<Option<*const Job<'static>>>,
    stop: AtomicBool,
    asleep: Box<[AtomicBool]>,
    panic: std::sync::Mutex<Option<(usize, String)>>,
    spin: Duration,
}

// SAFETY: `job` is written by the caller only while every worker waits for START, and read by workers only after
// START was signalled for this job; the counters order the two. Everything else is Sync by itself.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only followed during `run`, whose borrow keeps the job alive and whose bound makes
// it Sync.
unsafe impl Send for Shared {}

/// A fixed set of workers.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    generation: u32,
}

impl Pool {
    /// `workers` workers (at least one, the caller), which spin for about `spin` after a job before they sleep.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(workers: usize, spin: Duration) -> Result<Self, PoolError> {
        let workers = workers.max(1);
        // Asked before any thread is pinned, so that the answer is the process'.
        let _ = affinity::allowed_cpus();
        let shared = Arc::new(Shared {
            counters: Counters::new(&[1, workers as u32 - 1], 0),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            panic: std::sync::Mutex::new(None),
            spin,
        });
        let mut pool = Self { shared, threads: Vec::with_capacity(workers - 1), generation: 0 };
        for worker in 1..workers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("plancher-{worker}"))
                .spawn(move || work(&shared, worker))
                .map_err(|source| PoolError::Spawn { worker, source })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many workers there are, the caller included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.asleep.len()
    }

    /// Runs `job` once on every worker and returns when all have finished. The calling thread is worker 0, and is
    /// pinned meanwhile.
    ///
    /// # Errors
    /// When a worker panicked; the others have finished all the same.
    pub fn run(&mut self, job: &Job<'_>) -> Result<(), PoolError> {
        let shared = &*self.shared;
        let _pinned = PinnedCaller::pin();
        let job: *const Job<'_> = job;
        // SAFETY: only the lifetime changes. Workers follow the pointer only between START and DONE of this job, and
        // this function does not return before DONE.
        #[expect(clippy::transmute_ptr_to_ptr, reason = "a cast cannot extend the lifetime of a trait object")]
        let job: *const Job<'static> = unsafe { std::mem::transmute(job) };
        // SAFETY: all workers wait for START of this generation (DONE of the one before was waited for), so that
        // nobody reads the cell now.
        unsafe { *shared.job.get() = Some(job) };
        self.ring();
        shared.perform(0);
        let mut patience = Patience::new(None);
        let waited = shared.counters.wait(DONE, self.generation, self.threads.len() as u32, || patience.pass());
        debug_assert!(waited.is_ok(), "the pool's counters are never poisoned and its patience has no limit");
        self.generation = self.generation.wrapping_add(1);
        match shared.panic.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            Some((worker, message)) => Err(PoolError::Panicked { worker, message }),
            None => Ok(()),
        }
    }

    fn ring(&self) {
        self.shared.counters.signal(START);
        // With the fence in `work`: either we see that a worker fell asleep, or it sees the signal.
        fence(Ordering::SeqCst);
        for (asleep, thread) in self.shared.asleep[1..].iter().zip(&self.threads) {
            if asleep.load(Ordering::Relaxed) {
                thread.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.ring();
        for thread in self.threads.drain(..) {
            // A worker catches its job's panics, so that there is nothing left to report here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn perform(&self, worker: usize) {
        // SAFETY: between START and DONE nobody writes the cell.
        let job = unsafe { *self.job.get() };
        let Some(job) = job else { return };
        // SAFETY: `run` keeps the job alive until this worker has signalled DONE (or, for worker 0, returned).
        let job = unsafe { &*job };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(worker))) {
            let message = payload
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            self.panic.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert((worker, message));
        }
    }
}

fn work(shared: &Shared, worker: usize) {
    affinity::pin_worker(worker);
    let mut generation = 0_u32;
    loop {
        if !spin_for_start(shared, generation) {
            sleep_until_start(shared, worker, generation);
        }
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        shared.perform(worker);
        shared.counters.signal(DONE);
        generation = generation.wrapping_add(1);
    }
}

/// Whether the next job came while spinning.
fn spin_for_start(shared: &Shared, generation: u32) -> bool {
    let mut patience = Patience::new(None);
    let mut since = None;
    while !shared.counters.reached(START, generation, 1) {
        patience.pass();
        if *since.get_or_insert_with(Instant::now) + shared.spin < Instant::now() {
            return false;
        }
    }
    true
}

fn sleep_until_start(shared: &Shared, worker: usize, generation: u32) {
    shared.asleep[worker].store(true, Ordering::Relaxed);
    // With the fence in `ring`.
    fence(Ordering::SeqCst);
    while !shared.counters.reached(START, generation, 1) {
        std::thread::park();
    }
    shared.asleep[worker].store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_worker_runs_every_job_once_awake_or_asleep() {
        for (workers, spin) in [(1, 0), (2, 0), (3, 50), (8, 0)] {
            let mut pool = Pool::new(workers, Duration::from_micros(spin)).unwrap();
            for _ in 0..200 {
                let runs: Vec<AtomicUsize> = (0..workers).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|worker| {
                    runs[worker].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
                assert!(runs.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let mut pool = Pool::new(3, Duration::ZERO).unwrap();
        let error = pool.run(&|worker| assert_ne!(worker, 2, "second worker fails")).unwrap_err();
        assert!(error.to_string().contains("worker 2 panicked"), "{error}");
        pool.run(&|_| ()).unwrap();
    }

    #[test]
    fn the_callers_cpu_set_is_restored() {
        let before = core_affinity::get_core_ids();
        Pool::new(2, Duration::ZERO).unwrap().run(&|_| ()).unwrap();
        assert_eq!(core_affinity::get_core_ids(), before);
    }
}
