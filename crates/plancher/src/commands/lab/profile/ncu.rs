//! Nsight Compute's command line: where it is, how it is started above the measuring process, and what it says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plancher_lab::engine::{ChildCommand, LaunchOptions, Launched, launch_only};
use plancher_lab::profile::{Launch, METRICS, SECTIONS, read_table, split, summarize};
use plancher_lab::record::ProfileRun;
use plancher_lab::{Dtype, Operation, Shape, Step};

use super::super::{child, tool};

/// The program that was named, else `ncu` in PATH or in CUDA's folders; `None` where it is not.
pub(in crate::commands::lab) fn find(named: Option<&Path>) -> Option<PathBuf> {
    tool::find(named, "ncu")
}

/// Versions of a step that are launched below it, or a learner's file in each of its types (with its text).
pub(in crate::commands::lab) struct Subjects<'a> {
    pub(in crate::commands::lab) step: &'a Step,
    pub(in crate::commands::lab) kernels: Vec<(String, Dtype)>,
    pub(in crate::commands::lab) text: Option<&'a str>,
}

/// One launch of each, as it saw it: all in one process or, where that does not work out, each in one of its own. Those that
/// cannot be profiled are errors of their own.
pub(in crate::commands::lab) fn launched(
    program: &Path,
    subjects: &Subjects<'_>,
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<anyhow::Result<ProfileRun>>> {
    let source = tool::version(program, "ncu");
    let mut of = |kernels: &[(String, Dtype)]| together(program, &source, subjects, kernels, silence, progress);
    match of(&subjects.kernels) {
        Ok(profiles) => Ok(profiles.into_iter().map(Ok).collect()),
        Err(error) if subjects.kernels.len() < 2 || error.downcast_ref::<Refusal>().is_some() => Err(error),
        Err(_) => Ok(subjects.kernels.chunks(1).map(|one| of(one).map(|mut profiles| profiles.remove(0))).collect()),
    }
}

/// Why it profiles nothing here.
#[derive(Debug, thiserror::Error)]
#[error("Nsight Compute: {0}")]
struct Refusal(String);

fn together(
    program: &Path,
    source: &str,
    subjects: &Subjects<'_>,
    kernels: &[(String, Dtype)],
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<ProfileRun>> {
    let (text, launched) = run(program, subjects, kernels, silence, progress)?;
    if let Some(failure) = launched.iter().find_map(|kernel| kernel.failure.as_ref()) {
        anyhow::bail!("{failure}");
    }
    let (file, kernel) = ("ncu's table", subjects.step.operation.map_or("", Operation::kernel));
    let counts: Vec<u32> = launched.iter().map(|kernel| kernel.launches).collect();
    let launches = split(file, &read_table(file, &text)?, kernel, &counts)?;
    let profile = |((version, dtype), launches): (&(String, Dtype), Vec<Launch>)| {
        let shape = shape(subjects.step, *dtype);
        Ok(summarize(file, &launches, kernel, (version, *dtype, shape), source)?)
    };
    kernels.iter().zip(launches).map(profile).collect()
}

/// What it prints of one launch of each: its table, as text.
fn run(
    program: &Path,
    subjects: &Subjects<'_>,
    kernels: &[(String, Dtype)],
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<(String, Vec<Launched>)> {
    let log = tool::Log::new("ncu");
    let ChildCommand { program: ours, arguments: hidden, environment } = child::command()?;
    let kernel = subjects.step.operation.map_or("", Operation::kernel);
    let fixed = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"];
    let fixed = fixed.into_iter().chain(["--target-processes", "all", "--kernel-name", kernel]).map(str::to_owned);
    let sections = SECTIONS.iter().flat_map(|section| ["--section".to_owned(), (*section).to_owned()]);
    let metrics =
        ["--metrics".to_owned(), METRICS.join(","), "--log-file".to_owned(), log.path().display().to_string()];
    let arguments = fixed.chain(sections).chain(metrics).chain([ours.display().to_string()]).chain(hidden).collect();
    let options = LaunchOptions {
        kernels: kernels.to_vec(),
        text: subjects.text.map(str::to_owned),
        times: 1,
        child: ChildCommand { program: program.to_owned(), arguments, environment },
        silence,
    };
    let launched = launch_only(subjects.step, &options, progress);
    let text = log.text();
    // What it refuses is the reason for whatever came after; that a kernel took the process with it is no refusal.
    let refusal = text.lines().find_map(|line| line.strip_prefix("==ERROR=="));
    let is_ours = launched.as_ref().is_ok_and(|kernels| kernels.iter().any(|kernel| kernel.failure.is_some()));
    match refusal.filter(|_| !is_ours && read_table("", &text).is_err()) {
        Some(refusal) => Err(Refusal(refusal.trim().to_owned()).into()),
        None => Ok((text, launched?)),
    }
}

/// At which size a version is profiled.
fn shape(step: &Step, dtype: Dtype) -> Option<Shape> {
    step.points_of(dtype).find(|point| !point.sweep).map(|point| point.shape)
}

/// The profile of a version in what it printed.
pub(super) fn profile(
    file: &str,
    text: &str,
    step: &Step,
    (version, dtype): (&str, Dtype),
    source: &str,
) -> anyhow::Result<ProfileRun> {
    let kernel = step.operation.map_or("", Operation::kernel);
    Ok(summarize(file, &read_table(file, text)?, kernel, (version, dtype, shape(step, dtype)), source)?)
}
