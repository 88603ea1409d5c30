//! `lab run`: our versions of one step or of all, checked and timed, with the table, the verdicts and the record.

use std::path::PathBuf;

use clap::Args;
use plancher_lab::catalogue;
use plancher_lab::engine::{RunOptions, run_steps};
use plancher_lab::record::LabRun;
use plancher_lab::verdict::{counts, rightness};

use super::{child, report, require_known, steps, table};
use crate::built::BUILT;
use crate::failure::usage;
use crate::file::{Kind, is_same, require_writable, write_whole};
use crate::output;
use crate::progress::Progress;

/// Run a step, or `all`: check every version in five cases, time it beside its ceiling, say what came of it
///
/// Needs an NVIDIA GPU and NVRTC. Fails when a version is wrong or its times cannot be; a bar that was missed is a result.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: super::Chosen,
    /// Fewer samples, and no series of sizes
    #[arg(long)]
    quick: bool,
    /// Write the record (raw samples, machine, hashes) as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the charts as one SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the record instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: super::Measuring,
    /// The commit to record; with changes unless the program was built from it, unchanged [default: the one that it was built
    /// from]
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let steps = steps(&arguments.chosen.steps)?;
    require_known(&steps, &arguments.chosen.only)?;
    // What cannot be written is said before anything is measured.
    let files = [(&arguments.out, Kind::Record), (&arguments.svg, Kind::Svg)];
    for (path, kind) in files.iter().filter_map(|(path, kind)| Some((path.as_deref()?, *kind))) {
        require_writable(path, kind).map_err(anyhow::Error::msg)?;
    }
    if arguments.out.as_deref().zip(arguments.svg.as_deref()).is_some_and(|(out, svg)| is_same(out, svg)) {
        return Err(usage("`--out` and `--svg` are the same file"));
    }
    child::require_gpu()?;
    let (commit, dirty) = BUILT.recorded(arguments.commit.as_deref());
    let options = RunOptions {
        steps,
        versions: arguments.chosen.only.clone(),
        quick: arguments.quick,
        child: child::command()?,
        silence: arguments.measuring.silence(),
        argv: std::env::args().skip(1).collect(),
        commit,
        dirty,
    };
    let mut progress = Progress::words();
    let run = run_steps(&options, &mut |line| progress.say(line))?;
    drop(progress);
    let record = serde_json::to_string(&run)? + "\n";
    let out = arguments.out.as_deref().map_or(Ok(()), |path| write_whole(path, &record));
    let svg = arguments.svg.as_deref().map_or(Ok(()), |path| write_whole(path, &report::figure(&run)));
    // Whether they could be written or not: it was measured.
    if arguments.json {
        output::json(&run)?;
    } else {
        show(&run)?;
    }
    output::note(&format!("{}; {:.0} s", table::heading(&run), run.seconds));
    out.and(svg).map_err(anyhow::Error::msg)?;
    judge(&run)
}

fn show(run: &LabRun) -> anyhow::Result<()> {
    for of in &run.steps {
        let step = catalogue::step(&of.step)?;
        output::shown(&(table::step(step, of, &run.machine) + "\n"))?;
    }
    Ok(())
}

/// An error where something of ours is wrong, or measured what cannot be.
fn judge(run: &LabRun) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for of in &run.steps {
        for version in &of.versions {
            let bad = !rightness(version).is_right()
                || version.points.iter().any(|point| counts(&run.machine, version.dtype, point).is_err());
            if bad {
                wrong.push(format!("{}/{} {}", of.step, version.version, version.dtype));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { anyhow::bail!("wrong, not run or invalid: {}", wrong.join(", ")) }
}
