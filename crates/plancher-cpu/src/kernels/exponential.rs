//! What sampling asks of a whole vocabulary: `exp`, sums of `exp`, and the logits above a threshold. Every instruction
//! set does the same operations in the same order, without fused multiply-adds, so that a seed draws the same tokens
//! on every machine.

use super::Kernels;
#[cfg(target_arch = "x86_64")]
use super::{Isa, avx512};

/// Partial sums kept side by side: the lanes of the widest vectors.
const LANES: usize = 16;
/// Values that are summed in f32 before the sums go on in f64.
pub(super) const SUMMED_IN_F32: usize = 1024;

/// Adding it rounds to an integer and leaves that in the low bits: 1.5 · 2²³.
pub(super) const MAGIC: f32 = 12_582_912.0;
/// The high bits of ln 2: its products with small integers are exact.
pub(super) const LN2_HIGH: f32 = 0.693_359_4;
/// ln 2 less its high bits.
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
/// Below it `exp` gives 0: the result would be subnormal.
pub(super) const LEAST: f32 = -87.0;
/// Coefficients of exp(r) for |r| <= 0.3466, highest power first: the Taylor series to the term below half an ulp.
pub(super) const COEFFICIENTS: [f32; 8] =
    [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// `exp(x)` for `x <= 0`, within 3 ulp; 0 below -87, where the result would be subnormal, and for NaN. Written so
/// that loops over it become vector code: the standard library's is a call a value.
#[inline]
#[must_use]
pub fn exponential(x: f32) -> f32 {
    // exp(x) = 2^n · exp(r) with n the nearest integer to x / ln 2.
    let in_range = x >= LEAST;
    let x = if in_range { x } else { 0.0 };
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        p = p * r + coefficient;
    }
    // n shifted into the exponent: MAGIC's own bits leave at the top.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(p.to_bits()));
    if in_range { power } else { 0.0 }
}

impl Kernels {
    /// `Σ exp(values - maximum)`, NaN counting as nothing; `maximum` is at least every value. The same bits on every
    /// instruction set.
    #[must_use]
    pub fn sum_of_exponentials(&self, values: &[f32], maximum: f32) -> f64 {
        let sum = |part: &[f32]| match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            Isa::Avx512 | Isa::Amx => unsafe { avx512::lanes_of_exponentials(part, maximum) },
            _ => lanes_of_exponentials(part, maximum),
        };
        values.chunks(SUMMED_IN_F32).flat_map(sum).map(f64::from).sum()
    }

    /// Collects the values of at least `threshold` and their indices, in ascending order of index; NaN never is.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` values.
    pub fn at_least(&self, values: &[f32], threshold: f32, indices: &mut Vec<u32>, found: &mut Vec<f32>) {
        assert!(u32::try_from(values.len()).is_ok(), "{} values", values.len());
        indices.clear();
        found.clear();
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            Isa::Avx512 | Isa::Amx => unsafe { avx512::at_least(values, threshold, indices, found) },
            _ => at_least(values, threshold, indices, found),
        }
    }
}

/// The reference: lane `i` sums the values whose index is `i` modulo the number of lanes.
fn lanes_of_exponentials(values: &[f32], maximum: f32) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    for chunk in values.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += exponential(x - maximum);
        }
    }
    lanes
}

/// The reference.
fn at_least(values: &[f32], threshold: f32, indices: &mut Vec<u32>, found: &mut Vec<f32>) {
    for (index, &value) in (0..).zip(values) {
        if value >= threshold {
            indices.push(index);
            found.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_agrees_with_the_standard_library() {
        for step in 0..=86_000 {
            let x = -(step as f32) / 1000.0;
            let want = f64::from(x).exp();
            let got = exponential(x);
            let error = (f64::from(got) / want - 1.0).abs();
            assert!(error < 3.0 * f64::from(f32::EPSILON) / 2.0, "exp({x}) is {got}, off by {error:e}");
        }
        assert_eq!(exponential(0.0).to_bits(), 1.0f32.to_bits());
        assert!([-1e30, f32::NEG_INFINITY, f32::NAN].into_iter().all(|x| exponential(x) == 0.0));
    }
}
