//! One file a command: its arguments with their help, and what it does.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod floor;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod kernels;
pub(crate) mod lab;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod perplexity;
pub(crate) mod program;
pub(crate) mod pull;

use crate::cli::{Cli, Command};

/// Runs the command that was given.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Chat(arguments) => chat::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Floor(arguments) => floor::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Logits(arguments) => logits::run(&arguments),
        Command::Perplexity(arguments) => perplexity::run(&arguments),
        Command::Program(arguments) => program::run(&arguments),
        Command::Pull(arguments) => pull::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}
