//! `plancher lab`: the measured exercises. What can be said without a GPU (the list, explanations, skeletons, recorded
//! evidence, compiling) is said without one; the rest says in one line what is missing.

mod bounded;
mod check;
mod child;
mod evidence;
mod explain;
mod judgement;
mod list;
mod profile;
mod report;
mod run;
#[cfg(test)]
mod samples;
mod sanitize;
mod skeleton;
mod start;
mod status;
mod table;
mod text;
mod tool;

use clap::{Args, Subcommand};
use plancher_lab::{Dtype, LabError, Operation, Step, Version, catalogue};

use crate::failure::usage;

/// Measured exercises for GPU kernels: run ours, write yours, get an honest verdict
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Arguments),
    Start(start::Arguments),
    Run(run::Arguments),
    Check(check::Arguments),
    Explain(explain::Arguments),
    Report(report::Arguments),
    Status(status::Arguments),
    Profile(profile::Arguments),
    Sanitize(sanitize::Arguments),
    /// The measuring process
    #[command(name = child::NAME, hide = true)]
    Child,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::List(arguments) => list::run(arguments),
        Command::Start(arguments) => start::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Profile(arguments) => profile::run(arguments),
        Command::Sanitize(arguments) => sanitize::run(arguments),
        Command::Child => child::run(),
    }
}

/// A step that is here, by its name or number.
fn step(name: &str) -> Result<&'static Step, LabError> {
    catalogue::step(name)
}

/// What the step's kernels compute.
fn operation(step: &Step) -> anyhow::Result<Operation> {
    let Step { number, id, .. } = step;
    step.operation.ok_or_else(|| {
        usage(format!("step {number} (`{id}`) has no kernels of its own: `lab explain {id}` says what it asks"))
    })
}

/// Refuses names of versions that none of the steps has.
fn require_known(steps: &[&'static Step], only: &[String]) -> anyhow::Result<()> {
    let unknown = only.iter().find(|id| steps.iter().all(|step| step.version(id).is_err()));
    let Some(id) = unknown else { return Ok(()) };
    let known = steps.iter().flat_map(|step| step.versions).map(|version| version.id).collect::<Vec<_>>().join(", ");
    Err(usage(format!("`--only`: there is no version `{id}`: there are {known}")))
}

/// The steps called so, in the plan's order.
fn steps(names: &[String]) -> anyhow::Result<Vec<&'static Step>> {
    if names.iter().any(|name| name == "all") {
        return Ok(catalogue::STEPS.iter().copied().filter(|step| step.operation.is_some()).collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let step = step(name).map_err(|error| usage(error.to_string()))?;
        operation(step)?;
        chosen.push(step);
    }
    chosen.sort_by_key(|step| step.number);
    chosen.dedup_by_key(|step| step.number);
    Ok(chosen)
}

/// A version in one type of numbers.
#[derive(Debug, Clone, Copy)]
struct Subject {
    step: &'static Step,
    version: &'static Version,
    dtype: Dtype,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {}", self.step.id, self.version.id, self.dtype)
    }
}

/// Which versions of which steps.
#[derive(Debug, Args)]
struct Chosen {
    /// Steps, by name or number, or `all`
    #[arg(value_name = "STEP", required = true)]
    steps: Vec<String>,
    /// Only these versions
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    only: Vec<String>,
}

impl Chosen {
    /// The steps, and their versions in each of their types, in order.
    fn subjects(&self) -> anyhow::Result<(Vec<&'static Step>, Vec<Subject>)> {
        let steps = steps(&self.steps)?;
        require_known(&steps, &self.only)?;
        let of_step = |step: &&'static Step| {
            let step: &'static Step = step;
            let is_wanted = |id: &str| self.only.is_empty() || self.only.iter().any(|only| only == id);
            let wanted = step.versions.iter().filter(move |version| is_wanted(version.id));
            wanted.flat_map(move |version| version.dtypes.iter().map(move |&dtype| Subject { step, version, dtype }))
        };
        let subjects = steps.iter().flat_map(of_step).collect();
        Ok((steps, subjects))
    }
}

/// How measuring is watched.
#[derive(Debug, Args)]
struct Measuring {
    /// A kernel that says nothing for so long hangs, and is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
}

impl Measuring {
    /// The same as a time.
    const fn silence(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.silence)
    }
}
