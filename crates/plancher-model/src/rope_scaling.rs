//! The formulas that turn a rotary base and a scaling rule into inverse frequencies. They follow
//! `modeling_rope_utils.py` of Hugging Face transformers 5 (`_compute_linear_scaling_rope_parameters`,
//! `_compute_llama3_parameters`, `_compute_yarn_parameters`), evaluated in f64 and rounded once.

use std::f64::consts::TAU;

use crate::{Rope, RopeLayout};

/// How a model's frequencies were stretched for a longer context.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided by the factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Long wavelengths divided by `factor`, short ones kept, interpolation in between (Llama 3.1).
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f64,
        /// `original_context / low_freq_factor` is where "long" begins.
        low_freq_factor: f64,
        /// `original_context / high_freq_factor` is where "short" ends.
        high_freq_factor: f64,
        /// Positions of the pretraining.
        original_context: f64,
    },
    /// `YaRN` (<https://arxiv.org/abs/2309.00071>).
    Yarn(Yarn),
}

/// Parameters of `YaRN`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Yarn {
    /// The divisor of interpolated frequencies.
    pub(crate) factor: f64,
    /// Positions of the pretraining.
    pub(crate) original_context: f64,
    /// Rotations over the original context above which a dimension is not interpolated (32).
    pub(crate) beta_fast: f64,
    /// Rotations below which it is fully interpolated (1).
    pub(crate) beta_slow: f64,
    /// Round the bounds of the ramp outwards to whole dimensions (true).
    pub(crate) truncate: bool,
    /// Factor on sine and cosine.
    pub(crate) attention_factor: f64,
}

/// The paper's factor on sine and cosine, `0.1 * mscale * ln(factor) + 1`.
pub(crate) fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

impl Rope {
    /// The table of `rotary_dim` elements with base `theta`, stretched by `scaling`.
    ///
    /// # Errors
    /// In words, naming the value, when the result would not be finite and positive.
    pub(crate) fn scaled(
        layout: RopeLayout,
        theta: f64,
        rotary_dim: usize,
        scaling: &RopeScaling,
    ) -> std::result::Result<Self, String> {
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            return Err(format!("rotates {rotary_dim} elements of a head, expected a positive even number"));
        }
        if !(theta.is_finite() && theta > 1.0) {
            return Err(format!("base (theta) is {theta}, expected a number above 1"));
        }
        let plain = (0..rotary_dim / 2).map(|i| theta.powf(-((2 * i) as f64) / rotary_dim as f64));
        let (frequencies, attention_factor): (Vec<f64>, f64) = match scaling {
            RopeScaling::None => (plain.collect(), 1.0),
            RopeScaling::Linear { factor } => (plain.map(|f| f / factor).collect(), 1.0),
            &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let stretch = |frequency: f64| {
                    let rotations = original_context * frequency / TAU;
                    if rotations < low_freq_factor {
                        frequency / factor
                    } else if rotations > high_freq_factor {
                        frequency
                    } else {
                        let smooth = (rotations - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                };
                (plain.map(stretch).collect(), 1.0)
            }
            RopeScaling::Yarn(yarn) => {
                let (low, high) = yarn.ramp(theta, rotary_dim);
                let stretch = |(i, frequency): (usize, f64)| {
                    let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    frequency / yarn.factor * interpolated + frequency * (1.0 - interpolated)
                };
                (plain.enumerate().map(stretch).collect(), yarn.attention_factor)
            }
        };
        let inverse_frequencies: Vec<f32> = frequencies.iter().map(|&f| f as f32).collect();
        let attention_factor = attention_factor as f32;
        let usable = |value: &f32| value.is_finite() && *value >= 0.0;
        if !inverse_frequencies.iter().all(usable) {
            return Err("gives frequencies that are not finite".to_owned());
        }
        if !(usable(&attention_factor) && attention_factor > 0.0) {
            return Err(format!("gives the attention factor {attention_factor}, expected a positive number"));
        }
        Ok(Self { layout, inverse_frequencies, attention_factor })
    }
}

impl Yarn {
    /// The dimensions between which interpolation fades in.
    fn ramp(&self, theta: f64, rotary_dim: usize) -> (f64, f64) {
        let dim = rotary_dim as f64;
        let dimension_of = |rotations: f64| dim * (self.original_context / (rotations * TAU)).ln() / (2.0 * theta.ln());
        let (mut low, mut high) = (dimension_of(self.beta_fast), dimension_of(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        // As the original does, so that the ramp has a slope.
        (low, if high - low == 0.0 { low + 0.001 } else { high })
    }
}
