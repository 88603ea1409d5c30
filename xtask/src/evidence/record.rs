//! One measurement series as it was written by the program that measured it.

use serde::Deserialize;

/// The version of the schema that this program reads.
pub(crate) const SCHEMA: u32 = 1;

/// A series of raw samples with all that is needed to judge it. Keys that only people read (`argv`, `date`,
/// `machine`, …) must be there, whatever they hold.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) schema: u32,
    /// `machine/model/format/…/quantity`, lower case.
    pub(crate) name: String,
    /// Of the figure: `x`, `ms`, `s`, `tokens/s`, `GB/s`, `TFLOP/s`, `%`, `errors`.
    pub(crate) unit: String,
    /// What README's table says it is.
    pub(crate) title: String,
    pub(crate) argv: serde_json::Value,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: serde_json::Value,
    /// Ceilings measured in the same process: name to samples in GB/s.
    pub(crate) ceilings: std::collections::BTreeMap<String, Vec<f64>>,
    /// Raw values in the order they were taken.
    pub(crate) samples: Vec<f64>,
    /// Unit of `samples` and `baseline_samples`, where it differs from `unit` (a ratio's parts).
    pub(crate) sample_unit: Option<String>,
    /// Taken off every sample before anything is computed from it.
    pub(crate) deduction: Option<Deduction>,
    /// What it was compared with.
    pub(crate) baseline: Option<String>,
    /// Interleaved with `samples`: the figure is then the median of `samples[i] / baseline_samples[i]`.
    pub(crate) baseline_samples: Option<Vec<f64>>,
    /// Bytes that must move for one sample's unit of work (one token, one pass).
    pub(crate) bytes: Option<u64>,
    /// FLOP of the same.
    pub(crate) flops: Option<u64>,
    /// What the output was compared with.
    pub(crate) check: Option<Check>,
    /// CPU figures: the crates whose code was timed.
    pub(crate) code: Option<Code>,
    /// GPU figures: the kernels that ran.
    pub(crate) kernels: Option<Vec<Kernel>>,
    /// What we set out to reach.
    pub(crate) bar: Option<Bar>,
}

/// A part of every sample that the figure does not count.
#[derive(Debug, Deserialize)]
pub(crate) struct Deduction {
    /// Why.
    pub(crate) what: String,
    /// How much, in the unit of the samples.
    pub(crate) value: f64,
}

/// How the output of the timed run was verified.
#[derive(Debug, Deserialize)]
pub(crate) struct Check {
    /// What it was compared with.
    pub(crate) against: String,
    /// The largest error found, in that comparison's own measure.
    pub(crate) error: f64,
    /// The error above which the run would have been refused.
    pub(crate) tolerance: f64,
}

/// The crates whose sources were timed, and their hash then.
#[derive(Debug, Deserialize)]
pub(crate) struct Code {
    pub(crate) crates: Vec<String>,
    pub(crate) sha256: String,
}

/// A kernel source as it was when it ran.
#[derive(Debug, Deserialize)]
pub(crate) struct Kernel {
    pub(crate) source: String,
    pub(crate) source_sha256: String,
}

/// A target for the figure.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// The figure must not be below.
    AtLeast(f64),
    /// The figure must not be above.
    AtMost(f64),
}
