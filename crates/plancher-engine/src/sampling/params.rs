//! The sampling settings and their ranges.

use crate::{EngineError, Result};

/// How the next token is chosen. The default is greedy: the most likely token.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SamplingParams {
    /// Divides the logits before the draw; 0 picks the most likely token and ignores the rest.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest most likely tokens whose probabilities sum to at least `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least `min_p` times as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Makes tokens that occurred less likely when above 1; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Seed of the draw.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl SamplingParams {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that is not a number or out of its range.
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name, expected, value: f32| {
            if ok { Ok(()) } else { Err(EngineError::Parameter { name, expected, value: value.to_string() }) }
        };
        check(
            self.temperature.is_finite() && self.temperature >= 0.0,
            "temperature",
            "a finite number, 0 or more",
            self.temperature,
        )?;
        check(self.top_p > 0.0 && self.top_p <= 1.0, "top_p", "above 0 and at most 1", self.top_p)?;
        check((0.0..=1.0).contains(&self.min_p), "min_p", "between 0 and 1", self.min_p)?;
        check(
            self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0,
            "repetition_penalty",
            "a finite number above 0",
            self.repetition_penalty,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_settings_are_named() {
        let default = SamplingParams::default();
        assert!(default.validate().is_ok());
        let bad = [
            (SamplingParams { temperature: f32::NAN, ..default }, "temperature"),
            (SamplingParams { temperature: -0.5, ..default }, "temperature"),
            (SamplingParams { temperature: f32::INFINITY, ..default }, "temperature"),
            (SamplingParams { top_p: 0.0, ..default }, "top_p"),
            (SamplingParams { top_p: 1.01, ..default }, "top_p"),
            (SamplingParams { top_p: f32::NAN, ..default }, "top_p"),
            (SamplingParams { min_p: -0.1, ..default }, "min_p"),
            (SamplingParams { min_p: f32::NAN, ..default }, "min_p"),
            (SamplingParams { repetition_penalty: 0.0, ..default }, "repetition_penalty"),
        ];
        for (params, name) in bad {
            let message = params.validate().expect_err(name).to_string();
            assert!(message.starts_with(&format!("`{name}` must be")), "{message}");
        }
    }
}
