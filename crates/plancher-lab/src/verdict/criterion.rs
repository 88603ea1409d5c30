//! Whether a step has been done: every comparison of its criterion, by the version named or by the best one.

use serde::Serialize;

use super::estimate::Estimate;
use super::point::{counts, fraction_of};
use super::ranking::{best, point};
use super::rightness::rightness;
use crate::record::{Machine, StepRun};
use crate::step::{Ceiling, Criterion, Test};

/// What came of a criterion or of one of its comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was reached.
    Passed,
    /// It was measured, and missed.
    Missed,
    /// Not all of it was measured, or no right version was.
    NotMeasured,
    /// It is not a comparison of rates: read it.
    NotCompared,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// The version that was compared.
    pub version: Option<String>,
    /// Its fraction of the ceiling.
    pub fraction: Option<Estimate>,
    /// What came of it.
    pub status: Status,
}

/// What came of a criterion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Of all of it.
    pub status: Status,
    /// Of each comparison, in the criterion's order.
    pub parts: Vec<Part>,
}

/// Holds what was measured against a criterion.
#[must_use]
pub fn criterion(criterion: &Criterion, step: Option<&StepRun>, machine: &Machine) -> Outcome {
    let parts: Vec<Part> = criterion.tests.iter().map(|test| part(test, step, machine)).collect();
    // What was missed is missed, whatever else was not measured.
    let all = |status| parts.iter().any(|part| part.status == status);
    let status = match () {
        () if parts.is_empty() => Status::NotCompared,
        () if all(Status::Missed) => Status::Missed,
        () if all(Status::NotMeasured) => Status::NotMeasured,
        () => Status::Passed,
    };
    Outcome { status, parts }
}

fn part(test: &Test, step: Option<&StepRun>, machine: &Machine) -> Part {
    let chosen = step.and_then(|step| match test.version {
        None => best(step, machine, test.dtype, test.shape),
        Some(id) => step
            .versions
            .iter()
            .filter(|version| version.version == id && version.dtype == test.dtype && rightness(version).is_right())
            .find_map(|version| Some((version, point(version, test.shape)?)))
            .filter(|(_, point)| counts(machine, test.dtype, point).is_ok()),
    });
    let fraction = chosen.and_then(|(_, point)| fraction_of(test.ceiling, machine, test.dtype, point));
    Part {
        version: chosen.map(|(version, _)| version.version.clone()),
        fraction,
        status: fraction.map_or(Status::NotMeasured, |fraction| {
            if passes(test, &fraction) { Status::Passed } else { Status::Missed }
        }),
    }
}

/// The median decides; but who claims to be as fast as another implementation must be so with the whole interval.
fn passes(test: &Test, fraction: &Estimate) -> bool {
    let rival = test.ceiling == Ceiling::Cublas && test.at_least >= 1.0;
    let value = if rival { fraction.low } else { fraction.value };
    value >= test.at_least && test.at_most.is_none_or(|most| fraction.value <= most)
}

#[cfg(test)]
mod tests {
    use super::super::point::tests::machine;
    use super::super::ranking::tests::step;
    use super::*;
    use crate::{Dtype, Shape};

    const TEST: Test = Test {
        version: None,
        dtype: Dtype::F32,
        shape: Shape::Vector(1 << 28),
        ceiling: Ceiling::Triad,
        at_least: 0.95,
        at_most: None,
    };

    fn status(tests: &'static [Test], times: &[(&str, f64)]) -> Status {
        criterion(&Criterion { text: "", tests }, Some(&step(times)), &machine()).status
    }

    #[test]
    fn the_best_version_decides_unless_one_is_named() {
        const BEST: &[Test] = &[TEST];
        const NAMED: &[Test] = &[Test { version: Some("slow"), ..TEST }];
        const BETWEEN: &[Test] = &[Test { version: Some("slow"), at_least: 0.5, at_most: Some(0.7), ..TEST }];
        const SHEET: &[Test] = &[Test { ceiling: Ceiling::DataSheet, at_least: 0.8, ..TEST }, TEST];
        const UNKNOWN: &[Test] = &[Test { ceiling: Ceiling::Copy, ..TEST }];
        // 4.8 GB in 1.25 ms are 3840 GB/s, 0.96 of the ceiling and 0.80 of the data sheet; in 2 ms 0.60.
        let times = [("slow", 2.0), ("good", 1.25)];
        assert_eq!(status(BEST, &times), Status::Passed);
        assert_eq!(status(NAMED, &times), Status::Missed);
        assert_eq!(status(BETWEEN, &times), Status::Passed);
        assert_eq!(status(BETWEEN, &[("slow", 1.5)]), Status::Missed);
        assert_eq!(status(SHEET, &times), Status::Passed);
        assert_eq!(status(UNKNOWN, &times), Status::NotMeasured);
        assert_eq!(status(NAMED, &[("good", 1.25)]), Status::NotMeasured);
        assert_eq!(status(&[], &times), Status::NotCompared);
    }

    #[test]
    fn a_rival_is_reached_by_the_whole_interval() {
        let test = Test { ceiling: Ceiling::Cublas, at_least: 1.0, ..TEST };
        let fraction = |low, value| Estimate { value, low, high: 1.1, samples: 9 };
        assert!(passes(&test, &fraction(1.0, 1.02)) && !passes(&test, &fraction(0.99, 1.02)));
        assert!(passes(&TEST, &fraction(0.94, 0.95)));
    }
}
