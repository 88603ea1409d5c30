//! `lab report`: one page with all steps, their charts and the tracking table. Nothing is loaded from elsewhere; no script.

mod charts;
mod page;
mod roofline;

use std::path::PathBuf;

use clap::Args;
use plancher_lab::Step;
use plancher_lab::catalogue::STEPS;
use plancher_lab::record::LabRun;

use super::evidence::{self, EvidenceOption};
use crate::failure::usage;
use crate::file::{Kind, is_same, require_writable, write_whole};
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
    let out = (arguments.out.as_os_str() != "-").then_some(arguments.out.as_path());
    let svg = arguments.svg.as_deref();
    let evidence = arguments.evidence.path();
    for (option, path) in
        [("--out", out), ("--svg", svg)].into_iter().filter_map(|(option, path)| Some((option, path?)))
    {
        if evidence.is_some_and(|evidence| is_same(evidence, path)) {
            return Err(usage(format!("`{option}` is the file that `--evidence` names: it would be lost")));
        }
    }
    if out.zip(svg).is_some_and(|(out, svg)| is_same(out, svg)) {
        return Err(usage("`--out` and `--svg` are the same file"));
    }
    let recorded = arguments.evidence.require()?;
    for (path, kind) in [(out, Kind::Html), (svg, Kind::Svg)] {
        path.map_or(Ok(()), |path| require_writable(path, kind)).map_err(anyhow::Error::msg)?;
    }
    if let Some(path) = svg {
        write_whole(path, &figure(&recorded.run)).map_err(anyhow::Error::msg)?;
    }
    let page = page::page(&recorded.run);
    let Some(out) = out else { return Ok(output::shown(&page)?) };
    write_whole(out, &page).map_err(anyhow::Error::msg)?;
    output::note(&format!("wrote `{}`", out.display()));
    Ok(())
}
