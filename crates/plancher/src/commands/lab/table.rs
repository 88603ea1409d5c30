//! The table of a step: every version at every size that a verdict goes by, and what came of the two criteria.

use std::fmt::Write as _;

use plancher_lab::record::{LabRun, Machine, PointRun, StepRun, VersionRun};
use plancher_lab::step::{Criterion, Test};
use plancher_lab::verdict::{
    Outcome, Part, Rightness, Status, counts, criterion, datasheet_fraction, fastest_first, fraction, median, point,
    rate, rightness, unit,
};
use plancher_lab::{Dtype, Shape, Step};

use super::{evidence, text};
use crate::table::markdown;

const HEADER: [&str; 10] = [
    "version",
    "numbers",
    "size",
    "ms",
    "rate",
    "of its ceiling",
    "interval",
    "of data sheet",
    "over the first",
    "verdict",
];

/// What `lab run` prints of a step.
pub(super) fn step(step: &Step, run: &StepRun, machine: &Machine) -> String {
    let mut out = format!("Step {}, {} (`{}`)\n", step.number, step.title, step.id);
    if let Some(failure) = &run.failure {
        let _ = writeln!(out, "ended early: {}", failure.text);
    }
    out.push_str(&markdown(&HEADER, 3, &rows(step, run, machine)));
    let lines = reasons(run, machine).into_iter().chain(equals(step, run, machine));
    for line in lines.chain(verdicts(step, Some(run), machine)) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// The header and the rows.
pub(super) fn header_and_rows(step: &Step, run: &StepRun, machine: &Machine) -> ([&'static str; 10], Vec<Vec<String>>) {
    (HEADER, rows(step, run, machine))
}

fn rows(step: &Step, run: &StepRun, machine: &Machine) -> Vec<Vec<String>> {
    let of_version = |version: &VersionRun| -> Vec<Vec<String>> {
        let points: Vec<&PointRun> = version.points.iter().filter(|point| !point.sweep).collect();
        if points.is_empty() {
            let mut row = vec![version.version.clone(), version.dtype.to_string()];
            row.resize(HEADER.len() - 1, String::new());
            row.push(verdict(step, version, None, machine));
            return vec![row];
        }
        points.into_iter().map(|point| row(step, run, version, point, machine)).collect()
    };
    run.versions.iter().flat_map(of_version).collect()
}

fn row(step: &Step, run: &StepRun, version: &VersionRun, of: &PointRun, machine: &Machine) -> Vec<String> {
    let first = run
        .versions
        .iter()
        .find(|first| first.dtype == version.dtype)
        .and_then(|first| point(first, of.shape))
        .map(|first| median(&first.milliseconds) / median(&of.milliseconds));
    let of_ceiling = fraction(of);
    vec![
        version.version.clone(),
        version.dtype.to_string(),
        text::shape(of.shape),
        text::milliseconds(median(&of.milliseconds)),
        rate(of).map_or_else(String::new, |rate| text::rate(rate.value, unit(of))),
        of_ceiling.map_or_else(String::new, |fraction| format!("{} {}", of.ceiling, text::percent(fraction.value))),
        of_ceiling.map_or_else(String::new, |fraction| text::interval(&fraction)),
        datasheet_fraction(machine, version.dtype, of).map_or_else(String::new, |part| text::percent(part.value)),
        first.filter(|ratio| ratio.is_finite()).map_or_else(String::new, |ratio| format!("{ratio:.2}x")),
        verdict(step, version, Some(of), machine),
    ]
}

/// In a word or two; why, [`reasons`] say.
fn verdict(step: &Step, version: &VersionRun, point: Option<&PointRun>, machine: &Machine) -> String {
    let right = rightness(version);
    let mut words = match right {
        Rightness::NotRun(_) => "not run".to_owned(),
        _ => text::rightness(&right),
    };
    if right.is_right() && point.is_some_and(|point| counts(machine, version.dtype, point).is_err()) {
        "INVALID".clone_into(&mut words);
    }
    if evidence::is_stale(step.id, version) {
        words.push_str(", stale");
    }
    words
}

/// Why versions are wrong, and times invalid, a line each.
fn reasons(run: &StepRun, machine: &Machine) -> Vec<String> {
    let of_version = |version: &VersionRun| -> Vec<String> {
        let named = |words: &str| format!("{} {}: {words}", version.version, version.dtype);
        let failures: Vec<String> =
            version.cases.iter().filter_map(text::failing_case).map(|words| named(&words)).collect();
        match rightness(version) {
            Rightness::Right { .. } => {
                let invalid = |point: &PointRun| counts(machine, version.dtype, point).err();
                let words = |point: &PointRun| Some(format!("{}: {}", text::shape(point.shape), invalid(point)?));
                version.points.iter().filter_map(words).map(|words| named(&words)).collect()
            }
            Rightness::NotRun(reason) if failures.is_empty() => vec![named(reason)],
            _ => failures,
        }
    };
    run.versions.iter().flat_map(of_version).collect()
}

/// Which versions are as fast as the best one, as far as can be told.
fn equals(step: &Step, run: &StepRun, machine: &Machine) -> Vec<String> {
    let sizes = step.points.iter().filter(|point| !point.sweep);
    sizes.filter_map(|of| of_size(run, machine, of.dtype, of.shape)).collect()
}

fn of_size(run: &StepRun, machine: &Machine, dtype: Dtype, shape: Shape) -> Option<String> {
    let order = fastest_first(run, machine, dtype, shape);
    let (best, best_point) = order.first()?;
    let best_fraction = fraction(best_point)?;
    let equal: Vec<&str> = order[1..]
        .iter()
        .filter(|(_, point)| fraction(point).is_some_and(|other| other.overlaps(&best_fraction)))
        .map(|(version, _)| version.version.as_str())
        .collect();
    let equal =
        if equal.is_empty() { String::new() } else { format!("; not to be told from it: {}", equal.join(", ")) };
    Some(format!("fastest, {dtype} at {}: {}{equal}", text::shape(shape), best.version))
}

/// What came of the plan's criterion and of ours, a line each.
pub(super) fn verdicts(step: &Step, run: Option<&StepRun>, machine: &Machine) -> Vec<String> {
    let line = |who: &str, of: &Criterion| {
        let outcome = criterion(of, run, machine);
        let measured = measured(of, &outcome, run);
        let measured = if measured.is_empty() { measured } else { format!(" ({measured})") };
        let stale = run.is_some_and(|run| evidence::decided_by_stale(step, run, of, &outcome));
        let stale = if stale { ", stale" } else { "" };
        format!("{who}: {}: {}{stale}{measured}", of.text, text::status(outcome.status))
    };
    vec![line("the plan", &step.plan), line("our bar", &step.bar)]
}

/// What was measured of a criterion: `f32 2^28 96.2 % of triad (unrolled)`.
pub(super) fn measured(criterion: &Criterion, outcome: &Outcome, run: Option<&StepRun>) -> String {
    if outcome.status == Status::NotCompared {
        return run.and_then(ratios).unwrap_or_default();
    }
    let part = |(test, part): (&Test, &Part)| {
        let fraction = part.fraction?;
        let version = part.version.as_deref().unwrap_or_default();
        Some(format!(
            "{} {} {} of {} by {version}",
            test.dtype,
            text::shape(test.shape),
            text::percent(fraction.value),
            test.ceiling
        ))
    };
    criterion.tests.iter().zip(&outcome.parts).filter_map(part).collect::<Vec<_>>().join("; ")
}

/// How much faster each version is than the first one: `1.00x, 2.31x, 4.20x`.
pub(super) fn ratios(run: &StepRun) -> Option<String> {
    let dtype = run.versions.first()?.dtype;
    let mut first = None;
    let ratios = run.versions.iter().filter(|version| version.dtype == dtype).filter_map(|version| {
        let time = median(&version.points.iter().find(|point| !point.sweep)?.milliseconds);
        let first = *first.get_or_insert(time);
        Some(format!("{} {:.2}x", version.version, first / time))
    });
    let ratios: Vec<String> = ratios.collect();
    (!ratios.is_empty()).then(|| format!("{dtype}: {}", ratios.join(", ")))
}

/// One line about where and when.
pub(super) fn heading(run: &LabRun) -> String {
    let machine = &run.machine;
    let commit = if run.commit.is_empty() { String::new() } else { format!(", commit {}", short(&run.commit)) };
    format!(
        "{} ({}, driver {}, NVRTC {}), {}{commit}{}",
        machine.gpu,
        machine.architecture,
        machine.driver,
        machine.nvrtc,
        run.date,
        if run.dirty { " with changes" } else { "" }
    )
}

fn short(commit: &str) -> &str {
    commit.get(..9).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use plancher_lab::catalogue;

    use super::super::samples::{run, version};

    #[test]
    fn a_steps_table_has_a_line_a_version_what_is_equal_and_both_verdicts() {
        let step = catalogue::step("saxpy").expect("there");
        let mut wrong = version("grid_stride", 0.9);
        wrong.cases[1].error = 9.0;
        let versions = vec![
            version("scalar", 0.85),
            wrong,
            version("vectors", 0.98),
            version("unrolled", 0.9805),
            version("bulk_ring", 1.5),
        ];
        let mut run = run(versions);
        assert!(super::step(step, &run.steps[0], &run.machine).contains("PASS, stale"));
        // All but the first are as they are in the catalogue.
        for version in &mut run.steps[0].versions[1..] {
            version.source_sha256 = step.version(&version.version).expect("there").sha256();
        }
        insta::assert_snapshot!(super::step(step, &run.steps[0], &run.machine));
    }
}
