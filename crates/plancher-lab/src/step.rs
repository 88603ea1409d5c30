//! What a step and its versions are: data that the harness runs, the commands print, and tests hold against measurements.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Directives, Dtype, LabError, Operation, Result, Shape};

/// One step of the plan.
#[derive(Debug)]
pub struct Step {
    /// What the commands call it, such as `saxpy`.
    pub id: &'static str,
    /// Its number in the plan, 1 to 12.
    pub number: u32,
    /// A heading.
    pub title: &'static str,
    /// What one wants to know from it, in one sentence.
    pub question: &'static str,
    /// What the learner is to write, some sentences; empty where there is no kernel to write.
    pub task: &'static str,
    /// What its kernels compute; `None` for a step that has no kernels of its own.
    pub operation: Option<Operation>,
    /// From the plain one to the fast one.
    pub versions: &'static [Version],
    /// Which problems are timed.
    pub points: &'static [Point],
    /// The plan's criterion.
    pub plan: Criterion,
    /// Ours.
    pub bar: Criterion,
}

impl Step {
    /// The version called `id`.
    ///
    /// # Errors
    /// If there is none.
    pub fn version(&self, id: &str) -> Result<&'static Version> {
        let known = || self.versions.iter().map(|version| version.id).collect::<Vec<_>>().join(", ");
        self.versions.iter().find(|version| version.id == id).ok_or_else(|| LabError::Unknown {
            what: "version",
            name: id.to_owned(),
            known: known(),
        })
    }

    /// The number types that any of its versions takes, in order.
    #[must_use]
    pub fn dtypes(&self) -> Vec<Dtype> {
        let mut dtypes: Vec<Dtype> = self.versions.iter().flat_map(|version| version.dtypes).copied().collect();
        dtypes.sort_unstable();
        dtypes.dedup();
        dtypes
    }

    /// The problems with such numbers.
    pub fn points_of(&self, dtype: Dtype) -> impl Iterator<Item = &'static Point> {
        self.points.iter().filter(move |point| point.dtype == dtype)
    }
}

/// One kernel file.
#[derive(Debug)]
pub struct Version {
    /// What the commands call it, such as `vectors`; unique in its step.
    pub id: &'static str,
    /// A heading.
    pub title: &'static str,
    /// The file's name below `kernels/`, such as `saxpy/3_vectors.cu`.
    pub file: &'static str,
    /// The file's text.
    pub source: &'static str,
    /// The number types for which it is compiled.
    pub dtypes: &'static [Dtype],
    /// What changed since the version before, and why.
    pub change: &'static str,
    /// What was expected before it was measured.
    pub prediction: Prediction,
    /// What the measurement taught, in words; figures come from the evidence when it is shown.
    pub outcome: &'static str,
    /// Bytes that are on their way from memory at once, where the version makes that its business.
    pub in_flight: InFlight,
    /// The most bytes that a thread may spill, stores and loads together.
    pub spill_budget: u32,
    /// Instructions that must be in its machine code, as the disassembler writes them: `LDG.E.128`, `UBLKCP`.
    pub instructions: &'static [&'static str],
    /// Whether two launches on the same input must give the same bits.
    pub deterministic: bool,
}

impl Version {
    /// How it is launched.
    ///
    /// # Errors
    /// If a directive of its file is wrong.
    pub fn directives(&self) -> Result<Directives> {
        Directives::parse(self.file, self.source)
    }

    /// The hash of its text, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        sha256(self.source)
    }
}

/// The hash of a text, in hexadecimal.
#[must_use]
pub fn sha256(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Loads that a version keeps under way, as its f32 form has them. Compiled for bf16 it has as many elements under way,
/// and half the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// So many bytes a thread.
    PerThread(u32),
    /// So many bytes a block.
    PerBlock(u32),
    /// Not counted.
    Uncounted,
}

impl InFlight {
    /// Bytes on their way to a multiprocessor that holds `blocks` blocks of `threads` threads, for elements of `dtype`.
    #[must_use]
    pub fn bytes(self, dtype: Dtype, threads: u64, blocks: u64) -> Option<u64> {
        let of_f32 = match self {
            Self::PerThread(bytes) => u64::from(bytes) * threads * blocks,
            Self::PerBlock(bytes) => u64::from(bytes) * blocks,
            Self::Uncounted => return None,
        };
        Some(of_f32 * dtype.bytes() / Dtype::F32.bytes())
    }
}

/// What was expected of a version, before it was measured, and with which arithmetic.
#[derive(Debug)]
pub struct Prediction {
    /// The arithmetic, in words.
    pub text: &'static str,
    /// What limits it.
    pub limiter: Limiter,
    /// Between which fractions of the ceiling it runs, at the first point of its type.
    pub fraction: (f64, f64),
    /// The same in bf16, where that differs.
    pub fraction_bf16: Option<(f64, f64)>,
    /// Conflicts of shared memory's banks for each request, beyond the first pass.
    pub bank_conflicts_per_request: Option<f64>,
    /// 32-byte sectors for each request to global memory.
    pub sectors_per_request: Option<f64>,
    /// The two reasons one of which warps wait for most, in Nsight Compute's words: `long_scoreboard`, `lg_throttle`.
    pub top_stalls: [&'static str; 2],
    /// What keeps more blocks from a multiprocessor.
    pub occupancy_limiter: OccupancyLimiter,
}

impl Prediction {
    /// What it says that a profile can tell.
    #[must_use]
    pub const fn claims(&self) -> Claims {
        Claims {
            limiter: self.limiter,
            bytes: 1.0,
            bank_conflicts_per_request: self.bank_conflicts_per_request,
            sectors_per_request: self.sectors_per_request,
            top_stalls: self.top_stalls,
            occupancy_limiter: self.occupancy_limiter,
        }
    }
}

/// What is said of a version, each part of which a profile can confirm or refute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claims {
    /// What limits it.
    pub limiter: Limiter,
    /// Bytes that memory moves, as a multiple of those that must move.
    pub bytes: f64,
    /// Conflicts of shared memory's banks for each request, beyond the passes that it must take.
    pub bank_conflicts_per_request: Option<f64>,
    /// 32-byte sectors for each request to global memory.
    pub sectors_per_request: Option<f64>,
    /// The two reasons one of which warps wait for most.
    pub top_stalls: [&'static str; 2],
    /// What keeps more blocks from a multiprocessor.
    pub occupancy_limiter: OccupancyLimiter,
}

/// A part of what was predicted that a profile has refuted, and what is said since.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Of [`Claims::limiter`].
    Limiter(Limiter),
    /// Of [`Claims::bytes`].
    Bytes(f64),
    /// Of [`Claims::bank_conflicts_per_request`].
    BankConflicts(f64),
    /// Of [`Claims::sectors_per_request`].
    Sectors(f64),
    /// Of [`Claims::top_stalls`].
    TopStalls([&'static str; 2]),
    /// Of [`Claims::occupancy_limiter`].
    OccupancyLimiter(OccupancyLimiter),
}

impl Claims {
    /// The claims with one part changed.
    #[must_use]
    pub const fn with(mut self, change: Change) -> Self {
        match change {
            Change::Limiter(limiter) => self.limiter = limiter,
            Change::Bytes(bytes) => self.bytes = bytes,
            Change::BankConflicts(conflicts) => self.bank_conflicts_per_request = Some(conflicts),
            Change::Sectors(sectors) => self.sectors_per_request = Some(sectors),
            Change::TopStalls(stalls) => self.top_stalls = stalls,
            Change::OccupancyLimiter(limiter) => self.occupancy_limiter = limiter,
        }
        self
    }
}

/// What a kernel's time goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The memory's bandwidth.
    Memory,
    /// The second-level cache.
    L2,
    /// The first-level cache and shared memory.
    L1,
    /// The multiprocessors' arithmetic, or the issue of instructions for it.
    Compute,
    /// The tensor cores.
    TensorCores,
    /// Waiting: too little is under way for any unit to be busy.
    Latency,
}

impl std::fmt::Display for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory bandwidth",
            Self::L2 => "second-level cache",
            Self::L1 => "first-level cache and shared memory",
            Self::Compute => "arithmetic",
            Self::TensorCores => "tensor cores",
            Self::Latency => "latency",
        })
    }
}

/// What keeps more blocks from a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OccupancyLimiter {
    /// Nothing: it holds as many threads as it can.
    Threads,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// The number of blocks that a multiprocessor takes.
    Blocks,
}

impl std::fmt::Display for OccupancyLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Threads => "threads",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Blocks => "blocks",
        })
    }
}

/// What a rate is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ceiling {
    /// The data sheet.
    DataSheet,
    /// Copying.
    Copy,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// `a = b + s c`.
    Triad,
    /// Reading what lies in the second-level cache.
    L2,
    /// The vendor's matrix product of the same shape and type.
    Cublas,
}

impl std::fmt::Display for Ceiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DataSheet => "data sheet",
            Self::Copy => "copy",
            Self::Read => "read",
            Self::Write => "write",
            Self::Triad => "triad",
            Self::L2 => "L2",
            Self::Cublas => "cuBLAS",
        })
    }
}

/// A problem that is timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its numbers.
    pub dtype: Dtype,
    /// Its size.
    pub shape: Shape,
    /// What the rate is compared with.
    pub ceiling: Ceiling,
    /// Whether this is one of a series of sizes, for a chart; verdicts use the others.
    pub sweep: bool,
}

/// When a step has been done.
#[derive(Debug)]
pub struct Criterion {
    /// In words.
    pub text: &'static str,
    /// What is compared; all must hold. Empty where the criterion is not a comparison of rates.
    pub tests: &'static [Test],
}

/// A comparison of a rate with a ceiling: the median of the ratios of paired samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// Of one version, or of the best one.
    pub version: Option<&'static str>,
    /// The numbers.
    pub dtype: Dtype,
    /// The size.
    pub shape: Shape,
    /// What the rate is compared with.
    pub ceiling: Ceiling,
    /// The smallest ratio that passes.
    pub at_least: f64,
    /// The largest one, where the criterion has one.
    pub at_most: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_sha256() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn bf16_has_half_the_bytes_of_f32_in_flight() {
        let bytes = |loads: InFlight, dtype| loads.bytes(dtype, 128, 13);
        assert_eq!(bytes(InFlight::PerThread(128), Dtype::F32), Some(212_992));
        assert_eq!(bytes(InFlight::PerThread(128), Dtype::Bf16), Some(106_496));
        assert_eq!(bytes(InFlight::PerBlock(65_536), Dtype::Bf16), Some(425_984));
        assert_eq!(bytes(InFlight::Uncounted, Dtype::F32), None);
    }
}
