//! `man`: manual pages from the command definitions.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::output;

/// Print the manual page, or write one for every command
///
/// `plancher man | man -l -` shows it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write plancher.1, plancher-generate.1 … into this directory
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let command = Cli::command();
    if let Some(directory) = &arguments.out {
        let failed = || format!("cannot write `{}`", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        return clap_mangen::generate_to(command, directory).with_context(failed);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(output::text(&String::from_utf8(page)?)?)
}
