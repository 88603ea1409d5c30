//! `lab report`: one page with all steps, their charts and the tracking table. Nothing is loaded from elsewhere; no script.

mod charts;
mod page;
mod roofline;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use plancher_lab::Step;
use plancher_lab::catalogue::STEPS;
use plancher_lab::record::LabRun;

use super::evidence::{self, EvidenceOption};
use crate::{drawing, output};

/// Write one self-contained HTML page: the tracking table, every step with its charts, predictions and measurements
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    evidence: EvidenceOption,
    /// Where to; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "lab.html")]
    out: PathBuf,
    /// Write the charts as one SVG file too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The charts of all steps of a run as one SVG file.
pub(super) fn figure(run: &LabRun) -> String {
    let of_step = |step: &&'static Step| {
        evidence::step(run, step.id).map(|of| charts::of_step(step, of, run)).unwrap_or_default()
    };
    drawing::figure(&STEPS.iter().flat_map(of_step).collect::<Vec<_>>())
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let recorded = arguments.evidence.require()?;
    if let Some(path) = &arguments.svg {
        write(path, &figure(&recorded.run))?;
    }
    let page = page::page(&recorded.run);
    if arguments.out.as_os_str() == "-" {
        return Ok(output::text(&page)?);
    }
    write(&arguments.out, &page)?;
    output::note(&format!("wrote `{}`", arguments.out.display()));
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
