//! `plancher lab`: the measured exercises. What can be said without a GPU (the list, explanations, skeletons, recorded
//! evidence, compiling) is said without one; the rest says in one line what is missing.

mod check;
mod child;
mod evidence;
mod explain;
mod judgement;
mod list;
mod report;
mod run;
mod skeleton;
mod start;
mod status;
mod table;
mod text;

use clap::{Args, Subcommand};
use plancher_lab::{LabError, Operation, Step, catalogue};

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

/// How measuring is watched.
#[derive(Debug, Args)]
struct Measuring {
    /// A kernel that says nothing for so long hangs, and is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
}
