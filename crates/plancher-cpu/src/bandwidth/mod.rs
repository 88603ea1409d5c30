//! How fast this machine moves memory: read, copy and triad by working-set size and number of threads. The figures
//! are ceilings that decoding is compared with, and what `doctor` shows.

mod traffic;

use std::time::{Duration, Instant};

use serde::Serialize;

pub use traffic::ReadLoop;
use traffic::{copy, triad};

use crate::{CpuError, HugeBuffer, Pool};

/// A kind of memory traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// Vector loads only, by the fastest of several loops.
    Read,
    /// `a = b`: counts both arrays.
    Copy,
    /// `a = b + scale * c` on f32: counts all three arrays.
    Triad,
}

impl Traffic {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Read, Self::Copy, Self::Triad];

    fn arrays(self) -> usize {
        match self {
            Self::Read => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Triad => "triad",
        })
    }
}

/// One measured rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// What moved.
    pub traffic: Traffic,
    /// Threads that moved it.
    pub threads: usize,
    /// Bytes that all threads went through in one pass, over and over.
    pub working_set: usize,
    /// The best of several passes, 10^9 bytes a second. Stores count once: the read for ownership that hardware may
    /// add is not counted.
    pub gb_per_s: f64,
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Working sets in bytes.
    pub working_sets: Vec<usize>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Kinds.
    pub traffic: Vec<Traffic>,
    /// About how long all of it may take.
    pub budget: Duration,
}

impl Sweep {
    /// From 64 KiB to 1 GiB in steps of four, but at most a quarter of the memory that is available; one thread and
    /// all `threads`.
    #[must_use]
    pub fn standard(threads: usize, available_memory: Option<u64>) -> Self {
        let largest = available_memory.map_or(256 << 20, |bytes| (bytes / 4).min(1 << 30) as usize);
        let working_sets = (0..8).map(|step| (64 << 10) << (2 * step)).filter(|&bytes| bytes <= largest);
        let threads = if threads > 1 { vec![1, threads] } else { vec![1] };
        Self {
            working_sets: working_sets.collect(),
            threads,
            traffic: Traffic::ALL.to_vec(),
            budget: Duration::from_secs(5),
        }
    }

    /// Measures; `progress` is told measurements done and their number.
    ///
    /// # Errors
    /// When memory or threads cannot be had.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Rate>, CpuError> {
        let number = self.working_sets.len() * self.threads.len() * self.traffic.len();
        let mut rates = Vec::with_capacity(number);
        let deadline = Instant::now() + self.budget;
        for &threads in &self.threads {
            let mut pool = Pool::new(threads, Duration::from_millis(1))?;
            for &traffic in &self.traffic {
                for &working_set in &self.working_sets {
                    progress(rates.len(), number);
                    let left = (number - rates.len()) as u32;
                    let slice = deadline.saturating_duration_since(Instant::now()) / left;
                    rates.push(measure(&mut pool, traffic, working_set, slice)?);
                }
            }
        }
        progress(number, number);
        Ok(rates)
    }
}

/// The best pass over `working_set` bytes within about `budget` (at least three passes).
fn measure(pool: &mut Pool, traffic: Traffic, working_set: usize, budget: Duration) -> Result<Rate, CpuError> {
    /// A timed pass moves at least this much, so that starting it does not count.
    const PASS_BYTES: usize = 32 << 20;
    const LINE: usize = 64;
    let threads = pool.workers();
    let share = (working_set / threads / traffic.arrays() / LINE * LINE).max(LINE);
    let arrays = (0..threads * traffic.arrays()).map(|_| HugeBuffer::new(share)).collect::<Result<Vec<_>, _>>()?;
    let own = |worker: usize| &arrays[worker * traffic.arrays()..(worker + 1) * traffic.arrays()];
    pool.run(&|worker| {
        for array in own(worker) {
            // SAFETY: each array has one owner, and this first touch is its own.
            unsafe { array.as_ptr().write_bytes(1, array.len()) };
        }
    })?;
    let moved = share * traffic.arrays() * threads;
    let repeats = (PASS_BYTES / moved).max(1);
    let started = Instant::now();
    let mut best = Duration::MAX;
    for pass in 0.. {
        let read = ReadLoop::ALL[pass % ReadLoop::ALL.len()];
        if pass >= 3 && started.elapsed() >= budget {
            break;
        }
        let began = Instant::now();
        pool.run(&|worker| {
            for _ in 0..repeats {
                match own(worker) {
                    [a] => {
                        std::hint::black_box(read.read(a.bytes()));
                    }
                    // SAFETY: the arrays of a worker are distinct, of equal length, a multiple of 64 bytes, and
                    // touched by nobody else.
                    [a, b] => unsafe { copy(a.as_ptr(), b.as_ptr(), share) },
                    // SAFETY: as above.
                    [a, b, c] => unsafe { triad(a.as_ptr(), b.as_ptr(), c.as_ptr(), share) },
                    _ => {}
                }
            }
        })?;
        best = best.min(began.elapsed());
    }
    let gb_per_s = (moved * repeats) as f64 / best.as_secs_f64().max(1e-9) / 1e9;
    Ok(Rate { traffic, threads, working_set: moved, gb_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_measures_every_combination_and_reports_its_progress() {
        let sweep = Sweep {
            working_sets: vec![64 << 10, 1 << 20],
            threads: vec![1, 2],
            traffic: Traffic::ALL.to_vec(),
            budget: Duration::from_millis(20),
        };
        let mut calls = Vec::new();
        let rates = sweep.run(&mut |done, of| calls.push((done, of))).unwrap();
        assert_eq!(rates.len(), 12);
        assert_eq!(calls, (0..=12).map(|done| (done, 12)).collect::<Vec<_>>());
        assert!(rates.iter().all(|rate| rate.gb_per_s > 0.0 && rate.working_set <= 1 << 20));
    }

    #[test]
    fn the_standard_sweep_stays_within_memory() {
        let sweep = Sweep::standard(4, Some(8 << 20));
        assert_eq!(sweep.working_sets, [64 << 10, 256 << 10, 1 << 20]);
        assert_eq!(sweep.threads, [1, 4]);
        assert_eq!(*Sweep::standard(1, None).working_sets.last().unwrap(), 256 << 20);
    }
}
