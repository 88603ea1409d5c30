//! What a run of the lab measured, as it is written to a file: raw samples, never only means, and no verdicts. Verdicts are
//! computed from it, at once and again in CI.

use std::collections::BTreeMap;

use plancher_cuda::Telemetry;
use serde::{Deserialize, Serialize};

use crate::sanitizer::Tool;
use crate::step::{Ceiling, OccupancyLimiter};
use crate::{Dtype, Shape};

/// The layout of the files that this version writes and reads.
pub const SCHEMA: u32 = 1;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabRun {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The command line.
    pub argv: Vec<String>,
    /// The commit of the program, empty where it is not known.
    pub commit: String,
    /// Whether the program was built from changed files.
    pub dirty: bool,
    /// When it began, as `2026-11-30T02:00:00Z`.
    pub date: String,
    /// On what.
    pub machine: Machine,
    /// The steps, in the plan's order.
    pub steps: Vec<StepRun>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// The GPU and its software.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, such as `NVIDIA H200`.
    pub gpu: String,
    /// What code is compiled for, such as `sm_90a`.
    pub architecture: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Second-level cache, bytes.
    pub l2_bytes: u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The data sheet's bandwidth, 1e9 bytes a second, where the data sheet is known.
    pub datasheet_bandwidth_gb_per_s: Option<f64>,
    /// The data sheet's arithmetic.
    pub datasheet_tflops: Peaks,
    /// The driver's version, such as `580.159.03`.
    pub driver: String,
    /// The newest CUDA that the driver supports.
    pub cuda: String,
    /// NVRTC's version.
    pub nvrtc: String,
    /// cuBLASLt's version; empty where it was not found.
    pub cublas: String,
    /// Clocks, power, temperature before the run.
    pub state_before: Option<Telemetry>,
    /// The same after.
    pub state_after: Option<Telemetry>,
}

/// Rates of arithmetic, 1e12 operations a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// f32 without tensor cores.
    pub fp32: Option<f64>,
    /// bf16 on tensor cores, without sparsity.
    pub bf16: Option<f64>,
}

/// What one step measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The step's id.
    pub step: String,
    /// Its versions, in the catalogue's order, once for each number type.
    pub versions: Vec<VersionRun>,
    /// The ceilings measured in the same process.
    pub ceilings: Vec<CeilingRun>,
    /// Profiles, where they were asked for.
    #[serde(default)]
    pub profile: Vec<ProfileRun>,
    /// What compute-sanitizer said of its versions, where it was asked.
    #[serde(default)]
    pub sanitizer: Vec<SanitizerRun>,
    /// Why the step ended early, where it did.
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl StepRun {
    /// What was measured of a step, which no other tool has watched.
    #[must_use]
    pub fn measured(step: &str, versions: Vec<VersionRun>, ceilings: Vec<CeilingRun>) -> Self {
        Self { step: step.to_owned(), versions, ceilings, profile: Vec::new(), sanitizer: Vec::new(), failure: None }
    }
}

/// Samples of a ceiling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CeilingRun {
    /// Which one.
    pub name: Ceiling,
    /// Of which numbers.
    pub dtype: Dtype,
    /// At which size.
    pub shape: Shape,
    /// `GB/s` or `TFLOP/s`.
    pub unit: String,
    /// The kernel that was the fastest, among which.
    pub how: String,
    /// Rates, in order.
    pub samples: Vec<f64>,
}

/// One version, compiled for one number type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionRun {
    /// Its id.
    pub version: String,
    /// Its numbers.
    pub dtype: Dtype,
    /// The hash of its file.
    pub source_sha256: String,
    /// The compiler's options.
    pub options: Vec<String>,
    /// What it needs of a multiprocessor; `None` where it does not compile.
    pub resources: Option<Resources>,
    /// Why there is nothing more to say: it does not compile, or this GPU cannot run it.
    #[serde(default)]
    pub not_run: Option<String>,
    /// Whether it is right.
    pub cases: Vec<CaseRun>,
    /// How fast it is.
    pub points: Vec<PointRun>,
}

/// What a kernel needs of a multiprocessor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills, stores and loads together.
    pub spill_bytes: u32,
    /// Shared memory of a block, static and dynamic.
    pub shared_bytes: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks on a multiprocessor at once; 0 where no GPU was asked.
    pub blocks_per_multiprocessor: u32,
    /// What keeps more from it.
    pub limiter: OccupancyLimiter,
}

/// One of the five cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseRun {
    /// Which one.
    pub case: Case,
    /// The sizes that were tried.
    pub shapes: Vec<Shape>,
    /// The largest error, as a multiple of what the precision honestly gives.
    pub error: f64,
    /// The largest multiple that passes.
    pub limit: f64,
    /// What went wrong first.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// A limit that the version declares, by which it does not take this case.
    #[serde(default)]
    pub not_taken: Option<String>,
}

/// The five cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Case {
    /// The size that is timed, or a smaller one of its kind.
    #[serde(rename = "nominal")]
    Nominal,
    /// Sizes that no tile divides.
    #[serde(rename = "tails")]
    Tails,
    /// Nothing, and a single element.
    #[serde(rename = "empty and one")]
    EmptyAndOne,
    /// Arrays that begin one element after a boundary.
    #[serde(rename = "misaligned")]
    Misaligned,
    /// Large numbers, infinities, NaN, denormals.
    #[serde(rename = "extreme")]
    Extreme,
}

impl Case {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 5] = [Self::EmptyAndOne, Self::Tails, Self::Misaligned, Self::Extreme, Self::Nominal];
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nominal => "nominal",
            Self::Tails => "tails",
            Self::EmptyAndOne => "empty and one",
            Self::Misaligned => "misaligned",
            Self::Extreme => "extreme",
        })
    }
}

/// Why a kernel, or a measurement, does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Of which kind.
    pub kind: FailureKind,
    /// At which size.
    #[serde(default)]
    pub shape: Option<Shape>,
    /// The first wrong element, counted in row-major order.
    #[serde(default)]
    pub element: Option<u64>,
    /// What it should be. (JSON has no NaN and no infinity: those are written as text.)
    #[serde(default, with = "number")]
    pub expected: Option<f64>,
    /// What it is.
    #[serde(default, with = "number")]
    pub got: Option<f64>,
    /// The whole, in one line.
    pub text: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An element is not what it should be.
    WrongValue,
    /// An element was never written.
    NotWritten,
    /// An element is NaN and should not be, or the other way round.
    Nan,
    /// Something was written outside the result.
    OutOfBounds,
    /// An input was changed.
    InputChanged,
    /// The result is more precise than its type of arithmetic can be.
    TooPrecise,
    /// Two launches on the same input differ in a version that promises they do not.
    NotRepeatable,
    /// The result of a timed launch was wrong though the cases were right.
    TimedLaunchWrong,
    /// Faster than physics: below bytes over bandwidth, or operations over peak.
    BelowFloor,
    /// The device's time and the host's do not agree, as for work that is done elsewhere.
    TimesDisagree,
    /// The result was not there yet when the stream had passed the mark behind the launch.
    OtherStream,
    /// Part of the second-level cache was left set aside.
    PersistingL2,
    /// The GPU reported a fault.
    Fault,
    /// It cannot be launched: its parameters are not those of the step, or it asks for more than the GPU has.
    CannotLaunch,
    /// It did not end in time.
    Hang,
    /// The process ended without a word.
    Crash,
    /// It does not compile, or its directives are wrong.
    DoesNotCompile,
}

/// Times at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointRun {
    /// The size.
    pub shape: Shape,
    /// Elements of the result (of the input for a reduction).
    pub elements: u64,
    /// Bytes that must move.
    pub bytes: u64,
    /// Operations that must be done.
    pub flops: u64,
    /// Times of single launches by the device's clock, in order.
    pub milliseconds: Vec<f64>,
    /// The same launches by the host's clock, from before the launch until the device was waited for.
    pub host_milliseconds: Vec<f64>,
    /// What the rate is compared with.
    pub ceiling: Ceiling,
    /// Rates of the ceiling, in the unit of the kernel's own: each measured right after the launch of the same index.
    pub ceiling_samples: Vec<f64>,
    /// Where its data lie.
    pub label: Label,
    /// Timed launches whose whole result was looked at afterwards.
    pub verified: u32,
    /// Bytes that a multiprocessor has under way, where the version says it.
    #[serde(default)]
    pub in_flight_bytes: Option<u64>,
    /// Whether this belongs to a series of sizes.
    #[serde(default)]
    pub sweep: bool,
    /// Why these times do not count.
    #[serde(default)]
    pub failure: Option<Failure>,
}

/// Where a measurement's data lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// In memory: what is touched before data come round again is at least four times the second-level cache.
    Memory,
    /// In the second-level cache, at least in part.
    L2,
}

/// A kernel as a profiler saw it, or as it was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileRun {
    /// The version.
    pub version: String,
    /// Its numbers.
    pub dtype: Dtype,
    /// At which size.
    #[serde(default)]
    pub shape: Option<Shape>,
    /// Microseconds.
    pub duration_us: f64,
    /// Bytes read from memory.
    pub dram_bytes_read: Option<f64>,
    /// Bytes written to memory.
    pub dram_bytes_written: Option<f64>,
    /// How busy each unit was, in per cent of its most (Speed of Light).
    pub sol: BTreeMap<String, f64>,
    /// What warps waited for: shares of all waiting.
    pub stalls: BTreeMap<String, f64>,
    /// Conflicts of shared memory's banks for each request.
    pub bank_conflicts: Option<f64>,
    /// Passes through shared memory for each request, those for conflicts among them.
    #[serde(default)]
    pub shared_passes: Option<f64>,
    /// 32-byte sectors for each request to global memory, of loads or of stores, whichever move more.
    pub sectors_per_request: Option<f64>,
    /// Warps that were there, in per cent of the most.
    pub occupancy_percent: Option<f64>,
    /// What kept more from it.
    pub occupancy_limiter: Option<OccupancyLimiter>,
    /// What else would have kept just as many from it.
    #[serde(default)]
    pub also_limits: Vec<OccupancyLimiter>,
    /// `ncu 2025.3` or the like, or `counted`.
    pub source: String,
}

/// What one tool of compute-sanitizer said of a version at small sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SanitizerRun {
    /// The version.
    pub version: String,
    /// Its numbers.
    pub dtype: Dtype,
    /// The hash of its file.
    pub source_sha256: String,
    /// The tool.
    pub tool: Tool,
    /// `compute-sanitizer 2025.3.1` or the like; empty where there is none.
    #[serde(default)]
    pub program: String,
    /// The sizes at which it was launched below the tool.
    #[serde(default)]
    pub shapes: Vec<Shape>,
    /// What it found: errors, or hazards. `None` where it said nothing to the end, which is not the same as nothing found.
    pub errors: Option<u64>,
    /// The first line of its first report.
    #[serde(default)]
    pub first: Option<String>,
    /// Why it found nothing out.
    #[serde(default)]
    pub not_run: Option<String>,
}

/// Numbers that JSON does not have.
mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        let number =
            value.map(|value| if value.is_finite() { Number::Finite(value) } else { Number::Text(value.to_string()) });
        number.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match Option::<Number>::deserialize(deserializer)? {
            None => Ok(None),
            Some(Number::Finite(value)) => Ok(Some(value)),
            Some(Number::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_does_not_have_come_back() {
        let failure = Failure {
            kind: FailureKind::Nan,
            shape: Some(Shape::Vector(7)),
            element: Some(3),
            expected: Some(f64::INFINITY),
            got: Some(f64::NAN),
            text: "element 3".to_owned(),
        };
        let text = serde_json::to_string(&failure).expect("it is JSON");
        let back: Failure = serde_json::from_str(&text).expect("it is read");
        assert_eq!(back.expected, Some(f64::INFINITY));
        assert!(back.got.is_some_and(f64::is_nan));
        assert_eq!(serde_json::to_string(&back).expect("it is JSON"), text);
    }
}
