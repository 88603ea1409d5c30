//! Nsight Compute's command line: where it is, how it is started above the measuring process, and what it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plancher_lab::engine::{ChildCommand, LaunchOptions, launch_only};
use plancher_lab::profile::{METRICS, SECTIONS, read_table, summarize};
use plancher_lab::record::ProfileRun;
use plancher_lab::{Dtype, Operation, Step};

use super::super::child;
use crate::file::read_text;

/// The program that was named, else `ncu` in PATH or in CUDA's folders; `None` where it is not.
pub(in crate::commands::lab) fn find(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        // A path must be there; a name is looked for.
        let is_name = named.components().count() == 1;
        return if is_name { in_path(named) } else { named.is_file().then(|| named.to_owned()) };
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = homes.chain(["/usr/local/cuda".into(), "/opt/cuda".into()]);
    in_path(Path::new("ncu")).or_else(|| folders.map(|home| home.join("bin/ncu")).find(|program| program.is_file()))
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// `ncu 2025.3.1.0`.
fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = said.lines().rev().find_map(|line| line.trim().strip_prefix("Version ")?.split(' ').next());
    version.map_or_else(|| "ncu".to_owned(), |version| format!("ncu {version}"))
}

/// One launch of a version, or of a learner's file (with its text), as it saw it.
pub(in crate::commands::lab) fn launched(
    program: &Path,
    step: &Step,
    kernel: (&str, Dtype, Option<&str>),
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<ProfileRun> {
    let text = run(program, step, kernel, silence, progress)?;
    profile("ncu's table", &text, step, (kernel.0, kernel.1), &version(program))
}

/// What it prints of one launch of a version, or of a learner's file (with its text): its table, as text.
fn run(
    program: &Path,
    step: &Step,
    (version, dtype, text): (&str, Dtype, Option<&str>),
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<String> {
    let log = Log::new();
    let ChildCommand { program: ours, arguments: hidden, environment } = child::command()?;
    let kernel = step.operation.map_or("", Operation::kernel);
    let fixed = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"];
    let fixed = fixed.into_iter().chain(["--target-processes", "all", "--kernel-name", kernel]).map(str::to_owned);
    let sections = SECTIONS.iter().flat_map(|section| ["--section".to_owned(), (*section).to_owned()]);
    let metrics = ["--metrics".to_owned(), METRICS.join(","), "--log-file".to_owned(), log.0.display().to_string()];
    let arguments = fixed.chain(sections).chain(metrics).chain([ours.display().to_string()]).chain(hidden).collect();
    let options = LaunchOptions {
        kernels: vec![(version.to_owned(), dtype)],
        text: text.map(str::to_owned),
        times: 1,
        child: ChildCommand { program: program.to_owned(), arguments, environment },
        silence,
    };
    let launched = launch_only(step, &options, progress);
    let text = read_text(&log.0).unwrap_or_default();
    // What it refuses is the reason for whatever came after.
    if let Some(refusal) = text.lines().find_map(|line| line.strip_prefix("==ERROR==")) {
        anyhow::bail!("Nsight Compute: {}", refusal.trim());
    }
    launched?;
    Ok(text)
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
    let shape = step.points_of(dtype).find(|point| !point.sweep).map(|point| point.shape);
    Ok(summarize(file, &read_table(file, text)?, kernel, (version, dtype, shape), source)?)
}

/// A file that is gone when it has been read.
struct Log(PathBuf);

impl Log {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("plancher-ncu-{}.csv", std::process::id())))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // It is not there if nothing was profiled.
        let _ = std::fs::remove_file(&self.0);
    }
}
