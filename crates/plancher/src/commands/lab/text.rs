//! Words and numbers as the lab shows them.

use plancher_lab::record::CaseRun;
use plancher_lab::verdict::{Estimate, Rightness, Status};
use plancher_lab::{Dtype, Shape};

use crate::output::significant;

/// Characters of a line of prose.
pub(super) const WIDTH: usize = 100;

/// `text` in lines of at most `width` characters, each after `indent`.
pub(super) fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let options = textwrap::Options::new(width).initial_indent(indent).subsequent_indent(indent).break_words(false);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned() + "\n").collect()
}

/// The number type called `name`.
pub(super) fn dtype(name: &str) -> Result<Dtype, String> {
    match name {
        "f32" => Ok(Dtype::F32),
        "bf16" => Ok(Dtype::Bf16),
        _ => Err("is neither f32 nor bf16".to_owned()),
    }
}

/// `2^28`, `16384x16384`, `8192^3`.
pub(super) fn shape(shape: Shape) -> String {
    match shape {
        Shape::Vector(elements) if elements >= 1024 && elements.is_power_of_two() => format!("2^{}", elements.ilog2()),
        Shape::Product { m, n, k } if m == n && n == k => format!("{m}^3"),
        shape => shape.to_string(),
    }
}

/// `96.2 %`.
pub(super) fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// `96.0 … 96.4 %`.
pub(super) fn interval(estimate: &Estimate) -> String {
    format!("{:.1} … {:.1} %", 100.0 * estimate.low, 100.0 * estimate.high)
}

/// `4390 GB/s`.
pub(super) fn rate(rate: f64, unit: &str) -> String {
    format!("{} {unit}", significant(rate, 4))
}

/// Milliseconds, four significant digits.
pub(super) fn milliseconds(value: f64) -> String {
    significant(value, 4)
}

/// What came of a criterion.
pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Passed => "PASS",
        Status::Missed => "MISSED",
        Status::NotMeasured => "not measured",
        Status::NotCompared => "read it",
    }
}

/// `right`, or what is wrong, in a few words.
pub(super) fn rightness(rightness: &Rightness<'_>) -> String {
    match rightness {
        Rightness::Right { not_taken: 0, .. } => "right".to_owned(),
        Rightness::Right { not_taken, .. } => format!("right, {not_taken} of 5 cases not taken"),
        Rightness::Wrong(case) => format!("WRONG: {}", case.case),
        Rightness::Untried(case) => format!("untried: {case}"),
        Rightness::NotRun(reason) => format!("not run: {reason}"),
    }
}

/// A case that fails, in words.
pub(super) fn failing_case(case: &CaseRun) -> Option<String> {
    let named = |text: &str| format!("case `{}`: {text}", case.case);
    match &case.failure {
        Some(failure) => Some(named(&failure.text)),
        None if case.not_taken.is_some() || case.error == 0.0 || case.error <= case.limit => None,
        None => Some(named(&format!("the error is {:.3} of what is honest, and {} passes", case.error, case.limit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_short() {
        let shapes = [Shape::Vector(1 << 28), Shape::Vector(1000), Shape::cube(8192), Shape::square(16)];
        assert_eq!(shapes.map(shape).join(" "), "2^28 1000 8192^3 16x16");
    }
}
