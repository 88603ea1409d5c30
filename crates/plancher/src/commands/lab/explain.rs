//! `lab explain`: what each version changes, what was predicted and with which arithmetic, what was measured, and whether
//! the prediction held. The words are the catalogue's; every figure comes from the recorded run.

use std::fmt::Write as _;

use clap::Args;
use plancher_lab::profile::Check;
use plancher_lab::record::{LabRun, VersionRun};
use plancher_lab::verdict::{
    Explained, Sanitized, counts, explained, fraction, median, prediction, rate, rightness, sanitized, unit,
};
use plancher_lab::{Step, Version, plural};
use serde_json::{Value, json};

use super::evidence::{self, EvidenceOption};
use super::{step, table, text};
use crate::output;

/// Explain a step: what each version changes, the prediction, the measurement, whether it held
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The step, by name or number
    #[arg(value_name = "STEP", value_parser = step)]
    step: &'static Step,
    /// Only this version
    #[arg(value_name = "VERSION")]
    only: Option<String>,
    #[command(flatten)]
    evidence: EvidenceOption,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is to be said wherever racecheck's result is.
pub(super) const RACECHECK: &str = "(Racecheck sees shared memory only.)";

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let step = arguments.step;
    let versions: Vec<&'static Version> = match &arguments.only {
        Some(id) => vec![step.version(id).map_err(|error| crate::failure::usage(error.to_string()))?],
        None => step.versions.iter().collect(),
    };
    let recorded = arguments.evidence.load()?;
    let run = recorded.as_ref().map(|recorded| &recorded.run);
    if arguments.json {
        return output::json(&as_json(step, &versions, run));
    }
    output::shown(&page(step, &versions, run))?;
    if let Some(recorded) = &recorded {
        output::note(&format!("{}: {}", recorded.from, table::heading(&recorded.run)));
    }
    Ok(())
}

/// The whole explanation.
pub(super) fn page(step: &'static Step, versions: &[&'static Version], run: Option<&LabRun>) -> String {
    let mut out = format!("Step {}, {}\n", step.number, step.title);
    out.push_str(&text::wrapped(step.question, "", text::WIDTH));
    out.push('\n');
    if versions.is_empty() {
        out.push_str(&text::wrapped(step.task, "", text::WIDTH));
        out.push('\n');
    }
    out.push_str(&text::wrapped(&format!("The plan asks: {}.", step.plan.text), "", text::WIDTH));
    out.push_str(&text::wrapped(&format!("We ask: {}.", step.bar.text), "", text::WIDTH));
    for version in versions {
        let number = step.versions.iter().position(|other| other.id == version.id).unwrap_or_default() + 1;
        let _ = write!(out, "\n{number}. {} (`{}`, kernels/{})\n", version.title, version.id, version.file);
        for (name, words) in paragraphs(step, version, run) {
            out.push_str(&text::wrapped(&format!("{name}: {words}"), "   ", text::WIDTH));
        }
    }
    out
}

/// A version's paragraphs, each with its name.
pub(super) fn paragraphs(
    step: &'static Step,
    version: &'static Version,
    run: Option<&LabRun>,
) -> Vec<(&'static str, String)> {
    let mut paragraphs = vec![("changed", version.change.to_owned()), ("predicted", predicted(step, version))];
    let measured = run.and_then(|run| Some((run, evidence::step(run, step.id)?)));
    let mut found = false;
    if let Some((run, of_step)) = measured {
        for of in of_step.versions.iter().filter(|of| of.version == version.id) {
            found = true;
            paragraphs.push(("measured", measurement(step, version, of, run)));
            paragraphs.extend(
                explained(step, of_step, of, &run.machine).map(|explained| ("explained", explanation(&explained))),
            );
            let found = sanitized(of_step, &of.version, of.dtype);
            if found != Sanitized::NotAsked {
                paragraphs.push(("sanitized", format!("{}, {found}. {RACECHECK}", of.dtype)));
            }
        }
    }
    if !found {
        paragraphs.push(("measured", "not yet.".to_owned()));
    }
    if !version.outcome.is_empty() {
        paragraphs.push(("learned", version.outcome.to_owned()));
    }
    paragraphs
}

fn predicted(step: &Step, version: &Version) -> String {
    let prediction = &version.prediction;
    let range = |(low, high): (f64, f64)| format!("{:.0} to {:.0} %", 100.0 * low, 100.0 * high);
    let ceiling = version
        .dtypes
        .first()
        .and_then(|&dtype| step.points_of(dtype).next())
        .map_or_else(String::new, |point| format!(" of {}", point.ceiling));
    let mut words = format!("{}{ceiling}", range(prediction.fraction));
    if let Some(bf16) = prediction.fraction_bf16 {
        let _ = write!(words, " (bf16: {})", range(bf16));
    }
    let _ = write!(words, ", limited by {}", prediction.limiter);
    if let Some(sectors) = prediction.sectors_per_request {
        let _ = write!(words, ", at most {} a request", plural(sectors, "sector"));
    }
    if let Some(conflicts) = prediction.bank_conflicts_per_request {
        let _ = write!(words, ", {} a request", plural(conflicts, "bank conflict"));
    }
    let _ = write!(
        words,
        ", warps wait for {}, more blocks are kept away by {}. {}",
        prediction.top_stalls.join(" or "),
        prediction.occupancy_limiter,
        prediction.text
    );
    words
}

fn measurement(step: &Step, version: &Version, of: &VersionRun, run: &LabRun) -> String {
    let right = rightness(of);
    let mut words = format!("{}, {}", of.dtype, text::rightness(&right));
    for point in of.points.iter().filter(|point| !point.sweep) {
        let _ = write!(words, "; at {} ", text::shape(point.shape));
        if let Err(reason) = counts(&run.machine, of.dtype, point) {
            let _ = write!(words, "INVALID: {reason}");
            continue;
        }
        if let Some(fraction) = fraction(point) {
            let _ = write!(
                words,
                "{} ({}) of {}, ",
                text::percent(fraction.value),
                text::interval(&fraction),
                point.ceiling
            );
        }
        let rate = rate(point).map_or(0.0, |rate| rate.value);
        let time = text::milliseconds(median(&point.milliseconds));
        let _ = write!(words, "{} in {time} ms", text::rate(rate, unit(point)));
    }
    words.push('.');
    if let Some(held) = prediction(version, of, &run.machine).filter(|_| right.is_right()) {
        words.push_str(if held.held() { " The prediction held." } else { " The prediction did NOT hold." });
    }
    if evidence::is_stale(step.id, of) {
        words.push_str(" (Stale: the kernel has changed since.)");
    }
    words
}

/// What a profile says to each part of the explanation.
pub(super) fn explanation(explained: &Explained) -> String {
    let (told, untold): (Vec<&Check>, Vec<&Check>) =
        explained.explanation.checks.iter().partition(|check| check.holds.is_some() || check.is_measured());
    let mut parts: Vec<String> = told
        .iter()
        .map(|check| {
            let holds = match check.holds {
                Some(true) => "holds",
                Some(false) => "does NOT hold",
                None => "not judged",
            };
            let predicted =
                check.predicted.as_ref().map_or_else(String::new, |predicted| format!(" (predicted: {predicted})"));
            format!("{}: {}{predicted}, found {}: {holds}", check.what, check.declared, check.found)
        })
        .collect();
    if !untold.is_empty() {
        let names: Vec<&str> = untold.iter().map(|check| check.what).collect();
        parts.push(format!("not measured: {}", names.join(", ")));
    }
    format!("{} ({}): {}.", explained.dtype, explained.profile.source, parts.join("; "))
}

fn as_json(step: &'static Step, versions: &[&'static Version], run: Option<&LabRun>) -> Value {
    let of_step = run.and_then(|run| evidence::step(run, step.id));
    let of_version = |version: &&'static Version| {
        let runs = of_step.into_iter().flat_map(|of| &of.versions).filter(|of| of.version == version.id);
        let measured = runs.filter_map(|of| {
            let run = run?;
            let held = prediction(version, of, &run.machine);
            Some(json!({
                "dtype": of.dtype, "right": rightness(of).is_right(), "stale": evidence::is_stale(step.id, of),
                "shape": held.map(|held| held.point.shape), "fraction": held.map(|held| held.measured),
                "prediction_held": held.map(|held| held.held()),
                "sanitized": of_step.map(|step_run| sanitized(step_run, &of.version, of.dtype).to_string()),
                "explanation": of_step.and_then(|step_run| explained(step, step_run, of, &run.machine)).map(|one| one.explanation),
            }))
        });
        let prediction = &version.prediction;
        json!({
            "id": version.id, "title": version.title, "change": version.change, "outcome": version.outcome,
            "prediction": {
                "text": prediction.text, "limiter": prediction.limiter, "fraction": prediction.fraction,
                "fraction_bf16": prediction.fraction_bf16, "sectors_per_request": prediction.sectors_per_request,
                "bank_conflicts_per_request": prediction.bank_conflicts_per_request, "top_stalls": prediction.top_stalls,
                "occupancy_limiter": prediction.occupancy_limiter,
            },
            "measured": measured.collect::<Vec<_>>(),
        })
    };
    json!({
        "step": step.id, "number": step.number, "title": step.title, "question": step.question, "task": step.task,
        "plan": step.plan.text, "bar": step.bar.text, "versions": versions.iter().map(of_version).collect::<Vec<_>>(),
    })
}
