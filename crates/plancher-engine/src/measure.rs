//! A decode run against its floor: the bytes a token needs by `plancher-floor`'s count, the rate at which this machine
//! can read them, and the fraction of it that was reached.

use plancher_floor::{Hardware, ModelShape, Regime, Setting, floor};
use serde::Serialize;

use crate::shape::KV_FORMAT;
use crate::{Result, Timing};

/// Decode speed beside its floor. GB are 1e9 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecodeReport {
    /// Tokens a second over the decode steps.
    pub tokens_per_s: f64,
    /// Bytes that a step must read: the stored weights, and keys and values at the run's mean context.
    pub bytes_per_token: u64,
    /// `bytes_per_token × tokens_per_s`.
    pub gb_per_s: f64,
    /// The measured rate of only reading that working set with the same threads.
    pub ceiling_gb_per_s: f64,
    /// `bytes_per_token` at the ceiling.
    pub floor_ms: f64,
    /// Mean time of a step.
    pub measured_ms: f64,
}

impl DecodeReport {
    /// The report of decode steps at a mean `context` (1 or more) that took `seconds` each, on a machine that reads
    /// the weights at `ceiling` GB/s.
    ///
    /// # Errors
    /// When the ceiling or the context is not plausible.
    pub fn new(shape: &ModelShape, context: usize, seconds: f64, ceiling: f64) -> Result<Self> {
        let machine = Hardware::from_bandwidth("this CPU", ceiling * 1e9, "measured by reading the packed weights")?;
        let setting = Setting { kv: KV_FORMAT, ..Setting::default() };
        let floor = floor(shape, &machine, Regime::decode(1, context as u64), setting)?;
        let bytes = floor.bytes() as u64;
        Ok(Self {
            tokens_per_s: 1.0 / seconds,
            bytes_per_token: bytes,
            gb_per_s: bytes as f64 / 1e9 / seconds,
            ceiling_gb_per_s: ceiling,
            floor_ms: 1e3 * floor.seconds(),
            measured_ms: 1e3 * seconds,
        })
    }

    /// The report of a generation; `None` without a decode step.
    ///
    /// # Errors
    /// As for [`DecodeReport::new`].
    pub fn of_generation(shape: &ModelShape, timing: &Timing, ceiling: f64) -> Result<Option<Self>> {
        if timing.steps == 0 {
            return Ok(None);
        }
        let seconds = timing.decode.as_secs_f64().max(1e-9) / timing.steps as f64;
        Self::new(shape, timing.mean_context().max(1), seconds, ceiling).map(Some)
    }

    /// Floor over measured time: 1 is the floor itself.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        self.floor_ms / self.measured_ms
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_report_counts_the_floors_bytes_at_the_mean_context() {
        let shape = plancher_floor::presets::model("llama-3.2-1b").expect("a preset");
        let timing = Timing { steps: 4, decode: Duration::from_millis(400), context_sum: 4000, ..Timing::default() };
        let report = DecodeReport::of_generation(&shape, &timing, 25.0).expect("plausible").expect("steps");
        // 16 layers of 8 KV heads of 64, key and value, f16, at 1000 tokens.
        let kv = 16 * 8 * 64 * 2 * 2 * 1000;
        let weights = shape.weights().map(|weight| weight.elements().expect("small") as u64 * 2).sum::<u64>();
        assert_eq!(report.bytes_per_token, weights + kv);
        assert!((report.floor_ms - report.bytes_per_token as f64 / 25e6).abs() < 1e-9);
        assert!((report.measured_ms - 100.0).abs() < 1e-9 && (report.tokens_per_s - 10.0).abs() < 1e-9);
        assert!((report.fraction() - report.gb_per_s / 25.0).abs() < 1e-9);
        assert_eq!(DecodeReport::of_generation(&shape, &Timing::default(), 25.0).expect("plausible"), None);
        assert!(DecodeReport::new(&shape, 10, 0.1, 0.0).is_err());
    }
}
