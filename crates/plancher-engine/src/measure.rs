//! A decode run against its floor: the bytes a token needs, the rate at which this machine can read them, and the
//! fraction of it that was reached.

use serde::Serialize;

use crate::{Sequence, Timing};

/// Decode speed beside its floor. GB are 1e9 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecodeReport {
    /// Tokens a second over the decode steps.
    pub tokens_per_s: f64,
    /// Bytes read by a step: the packed weights, and keys and values at the run's mean context.
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
    /// The report of steps that read `bytes_per_token` in `seconds_per_token` each; `None` when no time passed.
    #[must_use]
    pub fn new(bytes_per_token: u64, seconds_per_token: f64, ceiling_gb_per_s: f64) -> Option<Self> {
        if seconds_per_token <= 0.0 || ceiling_gb_per_s <= 0.0 {
            return None;
        }
        let gigabytes = bytes_per_token as f64 / 1e9;
        Some(Self {
            tokens_per_s: 1.0 / seconds_per_token,
            bytes_per_token,
            gb_per_s: gigabytes / seconds_per_token,
            ceiling_gb_per_s,
            floor_ms: 1e3 * gigabytes / ceiling_gb_per_s,
            measured_ms: 1e3 * seconds_per_token,
        })
    }

    /// The report of a generation; `None` without a decode step.
    pub fn of_generation(sequence: &mut Sequence, timing: &Timing) -> Option<Self> {
        if timing.steps == 0 {
            return None;
        }
        let backend = sequence.backend();
        let bytes = backend.weight_bytes() + backend.kv_bytes(timing.mean_context());
        let seconds = timing.decode.as_secs_f64() / timing.steps as f64;
        Self::new(bytes, seconds, sequence.read_ceiling())
    }

    /// Floor over measured time: 1 is the floor itself.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        self.floor_ms / self.measured_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_and_fraction_follow_from_bytes_and_ceiling() {
        let report = DecodeReport::new(100_000_000, 0.005, 40.0).expect("positive");
        assert!((report.floor_ms - 2.5).abs() < 1e-12);
        assert!((report.fraction() - 0.5).abs() < 1e-12);
        assert!((report.gb_per_s - 20.0).abs() < 1e-12);
        assert_eq!(DecodeReport::new(1, 0.0, 40.0), None);
    }
}
