//! What is said of a learner's kernel: three parts and the next thing to try. Only what was recorded decides, so that all of
//! it can be tested without a GPU.

mod limits;
mod next;

use std::fmt::Write as _;

use plancher_lab::record::{LabRun, Machine, PointRun, ProfileRun, StepRun, VersionRun};
use plancher_lab::verdict::{Rightness, counts, fastest_first, fraction, median, rate, rightness, unit};
use plancher_lab::{Dtype, Step};
use serde::Serialize;

use super::{evidence, text};

/// A verdict on a kernel in one type of numbers.
#[derive(Debug, Serialize)]
pub(super) struct Judgement {
    dtype: Dtype,
    gpu: String,
    /// Whether it is right.
    right: bool,
    /// The same in words: which case fails, where, what was expected.
    rightness: String,
    /// How fast it is, a line for each size.
    speed: Vec<String>,
    /// What limits it, as far as it was counted.
    limits: Vec<String>,
    /// What to try next.
    next: String,
}

/// The verdicts on all that was measured of a file; `ours` is a recorded run of our versions.
pub(super) fn of_run(step: &'static Step, run: &LabRun, ours: Option<&LabRun>) -> Vec<Judgement> {
    let of_step = |of: &StepRun| -> Vec<Judgement> {
        let profile = |version: &VersionRun| of.profile.iter().find(|profile| profile.dtype == version.dtype);
        of.versions.iter().map(|version| of_version(step, version, &run.machine, profile(version), ours)).collect()
    };
    run.steps.iter().flat_map(of_step).collect()
}

impl Judgement {
    /// As it is printed.
    pub(super) fn text(&self, file: &str, step: &Step) -> String {
        let mut out = format!("{file} as `{}` in {} on {}\n", step.id, self.dtype, self.gpu);
        let mut part = |name: &str, lines: &[String]| {
            for (index, line) in lines.iter().enumerate() {
                let first = format!("{:<8} ", if index == 0 { name } else { "" });
                let rest = " ".repeat(9);
                let options = textwrap::Options::new(text::WIDTH).initial_indent(&first).subsequent_indent(&rest);
                for line in textwrap::wrap(line, options.break_words(false)) {
                    out.push_str(line.trim_end());
                    out.push('\n');
                }
            }
        };
        part("right?", std::slice::from_ref(&self.rightness));
        part("fast?", &self.speed);
        part("limits", &self.limits);
        part("next", std::slice::from_ref(&self.next));
        out
    }
}

fn of_version(
    step: &'static Step,
    version: &VersionRun,
    machine: &Machine,
    profile: Option<&ProfileRun>,
    ours: Option<&LabRun>,
) -> Judgement {
    let right = rightness(version);
    let (is_right, points) = (right.is_right(), || version.points.iter().filter(|point| !point.sweep));
    let speed = if is_right {
        points().map(|point| speed(step, version, point, machine, ours)).collect()
    } else {
        vec!["not timed: a wrong kernel has no speed.".to_owned()]
    };
    Judgement {
        dtype: version.dtype,
        gpu: machine.gpu.clone(),
        right: is_right,
        rightness: right_words(&right, version),
        speed,
        limits: limits::limits(version, machine, profile),
        next: next::next(step, version, &right, machine, ours),
    }
}

fn right_words(right: &Rightness<'_>, version: &VersionRun) -> String {
    match right {
        Rightness::Right { error, not_taken } => {
            let taken =
                if *not_taken == 0 { "all five cases".to_owned() } else { format!("{} of five cases", 5 - not_taken) };
            let error = if *error == 0.0 {
                "every bit".to_owned()
            } else {
                format!("error at most {:.0} % of what is allowed", 100.0 * error)
            };
            let rest =
                version.cases.iter().filter_map(|case| Some(format!("{}: {}", case.case, case.not_taken.as_ref()?)));
            let rest: Vec<String> = rest.collect();
            let rest = if rest.is_empty() { String::new() } else { format!(" ({})", rest.join("; ")) };
            format!("yes: {taken}, {error}{rest}.")
        }
        Rightness::Wrong(_) | Rightness::Untried(_) => {
            let words = version.cases.iter().filter_map(text::failing_case).collect::<Vec<_>>();
            format!("NO: {}.", if words.is_empty() { "not all cases were tried".to_owned() } else { words.join("; ") })
        }
        Rightness::NotRun(reason) => format!("NO: {reason}."),
    }
}

/// One size: rate, fraction, and where it stands between our versions.
fn speed(
    step: &'static Step,
    version: &VersionRun,
    point: &PointRun,
    machine: &Machine,
    ours: Option<&LabRun>,
) -> String {
    let size = text::shape(point.shape);
    if let Err(reason) = counts(machine, version.dtype, point) {
        return format!("INVALID at {size}: {reason}.");
    }
    let rate = rate(point).map_or(0.0, |rate| rate.value);
    let time = text::milliseconds(median(&point.milliseconds));
    let mut words = format!("{} at {size} ({time} ms)", text::rate(rate, unit(point)));
    let Some(part) = fraction(point) else { return words + "." };
    let _ = write!(words, ", {} ({}) of {}", text::percent(part.value), text::interval(&part), point.ceiling);
    if let Some(ours) = ours {
        words.push_str(&standing(step, version.dtype, point, ours));
    }
    words + "."
}

/// Between which of ours, or as fast as which.
fn standing(step: &Step, dtype: Dtype, point: &PointRun, ours: &LabRun) -> String {
    let (Some(of_step), Some(part)) = (evidence::step(ours, step.id), fraction(point)) else { return String::new() };
    let order: Vec<(String, f64, bool)> = fastest_first(of_step, &ours.machine, dtype, point.shape)
        .iter()
        .filter_map(|(version, point)| {
            let other = fraction(point)?;
            let stale = if evidence::is_stale(step.id, version) { ", stale" } else { "" };
            let words = format!("`{}` ({}{stale})", version.version, text::percent(other.value));
            Some((words, other.value, other.overlaps(&part)))
        })
        .collect();
    let equal: Vec<&str> = order.iter().filter(|(_, _, equal)| *equal).map(|(words, _, _)| words.as_str()).collect();
    if !equal.is_empty() {
        return format!(": not to be told from {}", equal.join(", "));
    }
    let above = order.iter().rev().find(|(_, value, _)| *value > part.value);
    let below = order.iter().find(|(_, value, _)| *value < part.value);
    match (above, below) {
        (Some((above, ..)), Some((below, ..))) => format!(": between {below} and {above}"),
        (None, Some((below, ..))) => format!(": faster than our best, {below}"),
        (Some((above, ..)), None) => format!(": slower than our slowest, {above}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests;
