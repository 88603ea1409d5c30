//! Which version is the best at a size. Only right ones with times that count take part.

use super::point::{counts, fraction, rate};
use super::rightness::rightness;
use crate::record::{Machine, PointRun, StepRun, VersionRun};
use crate::{Dtype, Shape};

/// The version's point at a size, where it is one of the verdicts' (not of a series for a chart, unless there is no other).
#[must_use]
pub fn point(version: &VersionRun, shape: Shape) -> Option<&PointRun> {
    let at = || version.points.iter().filter(|point| point.shape == shape);
    at().find(|point| !point.sweep).or_else(|| at().next())
}

/// The right versions of a type with a valid time at `shape`, the fastest first.
#[must_use]
pub fn fastest_first<'a>(
    step: &'a StepRun,
    machine: &Machine,
    dtype: Dtype,
    shape: Shape,
) -> Vec<(&'a VersionRun, &'a PointRun)> {
    let mut found: Vec<_> = step
        .versions
        .iter()
        .filter(|version| version.dtype == dtype && rightness(version).is_right())
        .filter_map(|version| Some((version, point(version, shape)?)))
        .filter(|(_, point)| counts(machine, dtype, point).is_ok())
        .collect();
    // By the fraction of the ceiling, which knows when the machine was slow; by the rate where there is none.
    let speed = |point: &PointRun| fraction(point).or_else(|| rate(point)).map_or(0.0, |speed| speed.value);
    found.sort_by(|a, b| speed(b.1).total_cmp(&speed(a.1)));
    found
}

/// The best version of a type at `shape`.
#[must_use]
pub fn best<'a>(
    step: &'a StepRun,
    machine: &Machine,
    dtype: Dtype,
    shape: Shape,
) -> Option<(&'a VersionRun, &'a PointRun)> {
    fastest_first(step, machine, dtype, shape).into_iter().next()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::point::tests::{machine, point as point_run};
    use super::super::rightness::tests::version;
    use super::*;
    use crate::step::Ceiling;

    /// Versions by name with their times, in milliseconds.
    pub(in crate::verdict) fn step(times: &[(&str, f64)]) -> StepRun {
        let versions = times
            .iter()
            .map(|(id, time)| VersionRun { points: vec![point_run(&[*time; 5], Ceiling::Triad)], ..version(id) });
        StepRun {
            step: "saxpy".to_owned(),
            versions: versions.collect(),
            ceilings: Vec::new(),
            profile: Vec::new(),
            sanitizer: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn the_wrong_and_the_impossible_are_never_the_best() {
        let mut step = step(&[("slow", 2.0), ("good", 1.3), ("wrong", 1.2), ("impossible", 0.5)]);
        step.versions[2].cases[0].error = 99.0;
        let order = fastest_first(&step, &machine(), Dtype::F32, Shape::Vector(1 << 28));
        assert_eq!(order.iter().map(|(version, _)| version.version.as_str()).collect::<Vec<_>>(), ["good", "slow"]);
        assert!(best(&step, &machine(), Dtype::Bf16, Shape::Vector(1 << 28)).is_none());
        assert!(best(&step, &machine(), Dtype::F32, Shape::Vector(1)).is_none());
    }
}
