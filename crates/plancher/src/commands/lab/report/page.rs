//! The page's text: tables and paragraphs around the drawings.

use std::fmt::Write as _;

use plancher_lab::catalogue::STEPS;
use plancher_lab::record::{LabRun, StepRun};
use plancher_lab::verdict::{Explained, explanations};
use plancher_lab::{Step, Version};

use super::super::{evidence, explain, status, table as rows};
use super::charts;
use crate::drawing::Drawing;
use crate::drawing::chart::escape;
use crate::drawing::page::{frame, paragraph, table};

/// The whole page.
pub(super) fn page(run: &LabRun) -> String {
    let mut body = "<h1>The lab: measured exercises for GPU kernels</h1>\n".to_owned();
    body.push_str(&paragraph(&rows::heading(run), "faint"));
    body.push_str(&machine(run));
    body.push_str(&paragraph(HOW, ""));
    let steps = status::rows(Some(run));
    let _ = write!(body, "<h2>Tracking table</h2>\n{}", table(&status::HEADER, &status::cells(&steps), Some(6)));
    body.push_str(&paragraph(&status::sanitized(run), ""));
    for step in STEPS {
        match evidence::step(run, step.id) {
            Some(of) => body.push_str(&section(step, of, run)),
            None if step.operation.is_none() => body.push_str(&profiling(step, run)),
            None => {}
        }
    }
    frame("The lab", &body)
}

const HOW: &str = "Every rate is a median of single launches, each on inputs that were changed just before and with its output \
    poisoned, paired with its ceiling measured right after it in the same process. Intervals are those of the median, 95 %. \
    Hold the pointer on a mark or a bar for its numbers. What is hollow does not count: it is stale, wrong, or served by \
    the cache.";

fn machine(run: &LabRun) -> String {
    let machine = &run.machine;
    let mut facts = vec![format!("{} multiprocessors", machine.multiprocessors)];
    facts.push(format!("{} MB of second-level cache", machine.l2_bytes / 1_000_000));
    let sheet = [
        machine.datasheet_bandwidth_gb_per_s.map(|rate| format!("{rate:.0} GB/s")),
        machine.datasheet_tflops.fp32.map(|rate| format!("{rate:.0} TFLOP/s f32")),
        machine.datasheet_tflops.bf16.map(|rate| format!("{rate:.0} TFLOP/s bf16")),
    ];
    let sheet: Vec<String> = sheet.into_iter().flatten().collect();
    if !sheet.is_empty() {
        facts.push(format!("by its data sheet {}", sheet.join(", ")));
    }
    for (when, state) in [("before", &machine.state_before), ("after", &machine.state_after)] {
        let Some(state) = state else { continue };
        let clock = state.sm_clock_mhz.map(|clock| format!("{clock} MHz"));
        let power = state.power_watts.map(|power| format!("{power:.0} W"));
        let heat = state.temperature_celsius.map(|degrees| format!("{degrees} °C"));
        let parts: Vec<String> = [clock, power, heat].into_iter().flatten().collect();
        if !parts.is_empty() {
            facts.push(format!("{when} the run {}", parts.join(", ")));
        }
    }
    paragraph(&facts.join("; "), "faint")
}

fn section(step: &'static Step, of: &StepRun, run: &LabRun) -> String {
    let mut out = format!("<h2>{}. {}</h2>\n{}", step.number, escape(step.title), paragraph(step.question, ""));
    if let Some(failure) = &of.failure {
        out.push_str(&paragraph(&format!("Ended early: {}", failure.text), ""));
    }
    for verdict in rows::verdicts(step, Some(of), &run.machine) {
        let _ = writeln!(out, "<div class=\"verdict\">{}</div>", escape(&verdict));
    }
    let drawings = charts::of_step(step, of, run);
    if !drawings.is_empty() {
        let _ =
            write!(out, "<div class=\"charts\">\n{}</div>\n", drawings.iter().map(Drawing::svg).collect::<String>());
    }
    let (header, cells) = rows::header_and_rows(step, of, &run.machine);
    out.push_str(&table(&header, &cells, None));
    for version in step.versions {
        out.push_str(&explained(step, version, run));
    }
    out
}

/// A version's story, closed until somebody asks.
fn explained(step: &'static Step, version: &'static Version, run: &LabRun) -> String {
    let mut out = format!("<details><summary>{} ({})</summary>\n", escape(version.title), escape(version.id));
    for (name, words) in explain::paragraphs(step, version, Some(run)) {
        out.push_str(&paragraph(&format!("{name}: {words}"), ""));
    }
    let _ = writeln!(out, "<pre>{}</pre></details>", escape(version.source));
    out
}

fn profiling(step: &'static Step, run: &LabRun) -> String {
    let mut out = format!("<h2>{}. {}</h2>\n{}", step.number, escape(step.title), paragraph(step.question, ""));
    let stale = |one: &Explained| if evidence::is_stale_explanation(run, one) { ", stale" } else { "" };
    let cells: Vec<Vec<String>> = explanations(run)
        .iter()
        .map(|one| {
            let (hold, told) = one.explanation.count();
            vec![
                format!("{}/{} {}{}", one.step, one.version, one.dtype, stale(one)),
                format!("{hold} of {told}"),
                explain::explanation(one),
            ]
        })
        .collect();
    out.push_str(&table(&["kernel", "parts that hold", "each part"], &cells, Some(2)));
    out
}
