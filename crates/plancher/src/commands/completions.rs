//! `completions`: shell completions from the command definitions.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Print completions for a shell
///
/// For bash: `plancher completions bash > ~/.local/share/bash-completion/completions/plancher`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "plancher", &mut script);
    Ok(output::text(&String::from_utf8(script)?)?)
}
