//! A decode run against its floor: the bytes a token needs by `plancher-floor`'s count, the rate at which this machine
//! can read them, and the fraction of it that was reached.

use plancher_floor::{Hardware, ModelShape, Regime, Setting, floor};
use serde::Serialize;

use crate::{Result, Storage, Timing};

/// Decode speed beside its floor. GB are 1e9 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecodeReport {
    /// Tokens a second over the decode steps, of all sequences together.
    pub tokens_per_s: f64,
    /// Bytes that a step must read for each of its sequences: the stored weights, shared between them, and keys and
    /// values at the run's mean context.
    pub bytes_per_token: u64,
    /// Bytes that a step must read over its time.
    pub gb_per_s: f64,
    /// The measured rate of only reading: on the CPU that working set with the same threads, on a GPU its memory.
    pub ceiling_gb_per_s: f64,
    /// A step's bytes at the ceiling.
    pub floor_ms: f64,
    /// Mean time of a step.
    pub measured_ms: f64,
}

/// The decode steps that a report is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeSteps {
    /// Sequences that each step appends a token to.
    pub batch: usize,
    /// Mean positions that a sequence attends to, 1 or more.
    pub context: usize,
    /// Seconds a step.
    pub seconds: f64,
}

impl DecodeReport {
    /// The report of `steps` of a model of `shape`, kept as `storage` says, on a machine that reads at `ceiling` GB/s.
    ///
    /// # Errors
    /// When the ceiling, the batch or the context is not plausible.
    pub fn new(shape: &ModelShape, storage: Storage, steps: DecodeSteps, ceiling: f64) -> Result<Self> {
        let machine = Hardware::from_bandwidth("this machine", ceiling * 1e9, "measured by reading")?;
        let setting = Setting { kv: storage.kv, ..Setting::default() };
        let regime = Regime::decode(steps.batch as u64, steps.context as u64);
        let stored = shape.clone().with_weights(storage.weights, storage.weights);
        let floor = floor(&stored, &machine, regime, setting)?;
        let bytes = floor.bytes() as u64;
        Ok(Self {
            tokens_per_s: steps.batch as f64 / steps.seconds,
            bytes_per_token: bytes / steps.batch as u64,
            gb_per_s: bytes as f64 / 1e9 / steps.seconds,
            ceiling_gb_per_s: ceiling,
            floor_ms: 1e3 * floor.seconds(),
            measured_ms: 1e3 * steps.seconds,
        })
    }

    /// The report of a generation; `None` without a decode step.
    ///
    /// # Errors
    /// As for [`DecodeReport::new`].
    pub fn of_generation(shape: &ModelShape, storage: Storage, timing: &Timing, ceiling: f64) -> Result<Option<Self>> {
        if timing.steps == 0 {
            return Ok(None);
        }
        let seconds = timing.decode.as_secs_f64().max(1e-9) / timing.steps as f64;
        let steps = DecodeSteps { batch: 1, context: timing.mean_context().max(1), seconds };
        Self::new(shape, storage, steps, ceiling).map(Some)
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

    use plancher_floor::Format;

    use super::*;

    #[test]
    fn the_report_counts_the_floors_bytes_at_the_mean_context() {
        let shape = plancher_floor::presets::model("llama-3.2-1b").expect("a preset");
        let timing = Timing { steps: 4, decode: Duration::from_millis(400), context_sum: 4000, ..Timing::default() };
        let cpu = Storage::default();
        let report = DecodeReport::of_generation(&shape, cpu, &timing, 25.0).expect("plausible").expect("steps");
        // 16 layers of 8 KV heads of 64, key and value, f16, at 1000 tokens.
        let kv = 16 * 8 * 64 * 2 * 2 * 1000;
        let weights = shape.weights().map(|weight| weight.elements().expect("small") as u64 * 2).sum::<u64>();
        assert_eq!(report.bytes_per_token, weights + kv);
        assert!((report.floor_ms - report.bytes_per_token as f64 / 25e6).abs() < 1e-9);
        assert!((report.measured_ms - 100.0).abs() < 1e-9 && (report.tokens_per_s - 10.0).abs() < 1e-9);
        assert!((report.fraction() - report.gb_per_s / 25.0).abs() < 1e-9);
        assert_eq!(DecodeReport::of_generation(&shape, cpu, &Timing::default(), 25.0).expect("plausible"), None);
        assert!(DecodeReport::new(&shape, cpu, DecodeSteps { batch: 1, context: 10, seconds: 0.1 }, 0.0).is_err());
    }

    #[test]
    fn a_batch_shares_the_weights_and_a_backend_may_store_them_otherwise() {
        let shape = plancher_floor::presets::model("llama-3.2-1b").expect("a preset");
        let report = |batch, weights| {
            let storage = Storage { weights, kv: Format::Bf16 };
            DecodeReport::new(&shape, storage, DecodeSteps { batch, context: 1000, seconds: 0.1 }, 25.0)
                .expect("plausible")
        };
        let (kv, one) = (16 * 8 * 64 * 2 * 2 * 1000, report(1, None));
        let eight = report(8, None);
        assert_eq!(eight.bytes_per_token, (one.bytes_per_token + 7 * kv) / 8);
        assert!((eight.tokens_per_s - 80.0).abs() < 1e-9 && (eight.measured_ms - 100.0).abs() < 1e-9);
        assert!((eight.floor_ms - 8.0 * eight.bytes_per_token as f64 / 25e6).abs() < 1e-6);
        // In half the bytes, all but the norms are halved.
        let half = report(1, Some(Format::Fp8));
        assert!(half.bytes_per_token - kv < (one.bytes_per_token - kv) * 502 / 1000);
    }
}
