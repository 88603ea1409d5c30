//! Whether what was predicted of a version is what was measured.

use super::estimate::Estimate;
use super::point::{counts, fraction};
use crate::record::{Machine, PointRun, VersionRun};
use crate::{Dtype, Version};

/// A prediction beside its measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held<'a> {
    /// Where it was measured: the first size of its type that is not one of a series.
    pub point: &'a PointRun,
    /// The fraction of the ceiling that was predicted, from and to.
    pub predicted: (f64, f64),
    /// What was measured.
    pub measured: Estimate,
}

impl Held<'_> {
    /// Whether the interval of what was measured meets what was predicted.
    #[must_use]
    pub fn held(&self) -> bool {
        self.measured.meets(self.predicted)
    }
}

/// What is predicted of a version in numbers of a type.
#[must_use]
pub fn expected(version: &Version, dtype: Dtype) -> (f64, f64) {
    let prediction = &version.prediction;
    prediction.fraction_bf16.filter(|_| dtype == Dtype::Bf16).unwrap_or(prediction.fraction)
}

/// The prediction of `version` beside what `run` measured; `None` where nothing that counts was.
#[must_use]
pub fn prediction<'a>(version: &Version, run: &'a VersionRun, machine: &Machine) -> Option<Held<'a>> {
    let point = run.points.iter().find(|point| !point.sweep)?;
    counts(machine, run.dtype, point).ok()?;
    Some(Held { point, predicted: expected(version, run.dtype), measured: fraction(point)? })
}

#[cfg(test)]
mod tests {
    use super::super::point::tests::machine;
    use super::super::ranking::tests::step;
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_prediction_holds_when_the_measurement_meets_it() {
        let version = catalogue::step("saxpy").expect("there").version("scalar").expect("there");
        let (low, high) = version.prediction.fraction;
        // 4.8 GB against a ceiling of 4000 GB/s.
        let held = |fraction: f64| {
            let step = step(&[("scalar", 1.2 / fraction)]);
            prediction(version, &step.versions[0], &machine()).map(|held| held.held())
        };
        assert_eq!(held(f64::midpoint(low, high)), Some(true));
        assert_eq!(held(low * 0.9), Some(false));
        assert_eq!(held(2.0), None);
    }
}
