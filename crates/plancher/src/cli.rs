//! The commands and what they share. Help, man page and completions are made from these definitions.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    bench, chat, completions, doctor, floor, generate, inspect, kernels, lab, logits, man, perplexity, program, pull,
};

/// How many bytes must move to produce a token, and how close to that floor do we run?
///
/// Plancher decodes language models on CPUs and NVIDIA GPUs, says what every run cost in bytes, and compares it with the
/// fastest this machine could have read them.
#[derive(Debug, Parser)]
#[command(name = "plancher", version, propagate_version = true, max_term_width = 100, after_long_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
A MODEL is a path to a GGUF file or to a Hugging Face directory, the name of a preset (`plancher pull` lists them), \
or `org/name[@revision]` in the Hugging Face cache (HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_TOKEN are honoured).

Results go to standard output; progress, statistics and messages to standard error. Exit status: 0 done (also when \
Ctrl-C ended a generation: what was produced is kept), 1 failed, 2 wrong usage. NO_COLOR turns colour off.";

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Say more on standard error; twice for details
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Messages")]
    pub(crate) verbose: u8,
    /// Only errors on standard error: no statistics, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Generate(generate::Arguments),
    Chat(chat::Arguments),
    Bench(bench::Arguments),
    Doctor(doctor::Arguments),
    Floor(Box<floor::Arguments>),
    Inspect(inspect::Arguments),
    Kernels(kernels::Arguments),
    Lab(lab::Arguments),
    Logits(logits::Arguments),
    Perplexity(perplexity::Arguments),
    Program(program::Arguments),
    Pull(pull::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Spells llama-bench's `-pg` as the long option that the parser knows.
pub(crate) fn normalize(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    arguments.map(|argument| if argument == "-pg" { "--pg".into() } else { argument })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
