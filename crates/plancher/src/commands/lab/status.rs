//! `lab status`: the plan's tracking table, with what was measured.

use std::fmt::Write as _;

use clap::Args;
use plancher_lab::catalogue::{LATER, STEPS};
use plancher_lab::record::{LabRun, Machine};
use plancher_lab::step::{Ceiling, Criterion};
use plancher_lab::verdict::{Outcome, Sanitizing, Status, criterion, explanations, of_explanations, sanitizing};
use plancher_lab::{Step, plural};
use serde::Serialize;

use super::evidence::{self, EvidenceOption};
use super::{explain, table, text};
use crate::output;
use crate::table::wrapped;

/// Show the tracking table: what each step asks, what was measured, what came of it
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    evidence: EvidenceOption,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let recorded = arguments.evidence.load()?;
    let rows = rows(recorded.as_ref().map(|recorded| &recorded.run));
    if arguments.json {
        return output::json(&rows);
    }
    let narrow = |cells: Vec<String>| NARROW.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>();
    let cells: Vec<Vec<String>> = cells(&rows).into_iter().map(narrow).collect();
    output::shown(&wrapped(&NARROW.map(|column| HEADER[column]), &cells))?;
    let heading = recorded.as_ref().map_or_else(
        || "nothing is recorded: `lab run all --out FILE` measures, on a GPU".to_owned(),
        |recorded| format!("{}: {}", recorded.from, table::heading(&recorded.run)),
    );
    output::note(&heading);
    if let Some(recorded) = &recorded {
        output::note(&sanitized(&recorded.run));
    }
    Ok(())
}

/// A line of what compute-sanitizer found in all versions of a run; what was not asked, or did not end, is not clean.
pub(super) fn sanitized(run: &LabRun) -> String {
    let Sanitizing { versions, clean, unasked, errors } = sanitizing(run);
    if unasked == versions {
        return "compute-sanitizer: not asked (`lab sanitize`)".to_owned();
    }
    let mut words = format!("compute-sanitizer: {clean} of {} clean", plural(versions, "version"));
    if errors > 0 {
        let _ = write!(words, ", {}", plural(errors, "error"));
    }
    format!("{words} {}", explain::RACECHECK)
}

pub(super) const HEADER: [&str; 7] = ["#", "step", "the plan asks", "plan", "we ask", "ours", "measured"];
/// What a terminal has room for: `lab list` says what is asked.
const NARROW: [usize; 6] = [0, 1, 2, 3, 5, 6];

/// One step of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    number: u32,
    id: &'static str,
    title: &'static str,
    here: bool,
    plan: &'static str,
    plan_status: Status,
    bar: &'static str,
    bar_status: Status,
    measured: String,
    /// A kernel that decided has changed since it was measured.
    stale: bool,
}

/// The table.
pub(super) fn rows(run: Option<&LabRun>) -> Vec<Row> {
    let here =
        STEPS.iter().map(|step| if step.operation.is_some() { measured(step, run) } else { explained(step, run) });
    let later = LATER.iter().map(|later| Row {
        number: later.number,
        id: later.id,
        title: later.title,
        here: false,
        plan: later.plan,
        plan_status: Status::NotMeasured,
        bar: later.bar,
        bar_status: Status::NotMeasured,
        measured: "not here yet".to_owned(),
        stale: false,
    });
    here.chain(later).collect()
}

/// The cells of the rows.
pub(super) fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let cells = |row: &Row| {
        let status = |status| match status {
            _ if !row.here => String::new(),
            Status::Passed | Status::Missed if row.stale => format!("{}, stale", text::status(status)),
            status => text::status(status).to_owned(),
        };
        vec![
            row.number.to_string(),
            row.title.to_owned(),
            row.plan.to_owned(),
            status(row.plan_status),
            row.bar.to_owned(),
            status(row.bar_status),
            row.measured.clone(),
        ]
    };
    rows.iter().map(cells).collect()
}

fn row(step: &'static Step, statuses: (Status, Status), measured: String, stale: bool) -> Row {
    Row {
        number: step.number,
        id: step.id,
        title: step.title,
        here: true,
        plan: step.plan.text,
        plan_status: statuses.0,
        bar: step.bar.text,
        bar_status: statuses.1,
        measured,
        stale,
    }
}

fn measured(step: &'static Step, run: Option<&LabRun>) -> Row {
    let of_step = run.and_then(|run| evidence::step(run, step.id));
    let nothing = Machine::default();
    let machine = run.map_or(&nothing, |run| &run.machine);
    let (plan, bar) = (criterion(&step.plan, of_step, machine), criterion(&step.bar, of_step, machine));
    let mut words: Vec<String> = Vec::new();
    if plan.status == Status::NotCompared {
        words.extend(of_step.and_then(table::ratios));
    }
    for part in summary(&step.plan, &plan).into_iter().chain(summary(&step.bar, &bar)) {
        if !words.contains(&part) {
            words.push(part);
        }
    }
    let is_stale =
        |criterion, outcome| of_step.is_some_and(|of| evidence::decided_by_stale(step, of, criterion, outcome));
    let stale = is_stale(&step.plan, &plan) || is_stale(&step.bar, &bar);
    row(step, (plan.status, bar.status), words.join("; "), stale)
}

/// What the comparisons with each ceiling came to: `97.0 % of copy`, or from where to where.
fn summary(criterion: &Criterion, outcome: &Outcome) -> Vec<String> {
    let mut ceilings: Vec<Ceiling> = criterion.tests.iter().map(|test| test.ceiling).collect();
    ceilings.dedup();
    let of_ceiling = |ceiling: Ceiling| {
        let tests = criterion.tests.iter().zip(&outcome.parts).filter(|(test, _)| test.ceiling == ceiling);
        let fractions = tests.filter_map(|(_, part)| Some(part.fraction?.value));
        let (low, high) =
            fractions.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        (high > 0.0).then(|| match (text::percent(low), text::percent(high)) {
            (low, high) if low == high => format!("{low} of {ceiling}"),
            (low, high) => format!("{low} to {high} of {ceiling}"),
        })
    };
    ceilings.into_iter().filter_map(of_ceiling).collect()
}

fn explained(step: &'static Step, run: Option<&LabRun>) -> Row {
    let explained = run.map(explanations).unwrap_or_default();
    let statuses = of_explanations(&explained);
    let told: Vec<_> = explained.iter().filter(|one| one.explanation.is_told()).collect();
    if told.is_empty() {
        return row(step, statuses, String::new(), false);
    }
    let hold = told.iter().filter(|one| one.explanation.holds()).count();
    let how = match told.iter().filter(|one| one.is_profiled()).count() {
        0 => "counted, without a profiler".to_owned(),
        profiled if profiled == told.len() => told[0].profile.source.clone(),
        profiled => format!("{profiled} profiled, the others counted"),
    };
    let stale = run.is_some_and(|run| told.iter().any(|one| evidence::is_stale_explanation(run, one)));
    let unmeasured: usize = explained.iter().map(|one| one.explanation.unmeasured()).sum();
    let unmeasured =
        if unmeasured == 0 { String::new() } else { format!("; not measured: {}", plural(unmeasured, "claim")) };
    let corrected = told.iter().filter(|one| one.explanation.is_corrected()).count();
    let corrected =
        if corrected == 0 { String::new() } else { format!("; {corrected} say otherwise than was first predicted") };
    let verb = if hold == 1 { "holds" } else { "hold" };
    let explanations = plural(told.len(), "explanation");
    row(step, statuses, format!("{hold} of {explanations} {verb} ({how}){corrected}{unmeasured}"), stale)
}
