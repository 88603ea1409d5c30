//! The command line: parses, runs a command, and turns whatever went wrong into one line and an exit status.

#![expect(rustdoc::broken_intra_doc_links, reason = "doc comments are help texts here, and `[@revision]` is no link")]

mod answer;
mod arguments;
mod built;
mod cli;
mod commands;
mod drawing;
mod failure;
mod file;
mod gpu;
mod interrupt;
mod logging;
mod output;
mod placement;
mod printable;
mod progress;
mod prompt;
mod session;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse_from(cli::normalize(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    logging::install(cli.global.verbose, cli.global.quiet);
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
