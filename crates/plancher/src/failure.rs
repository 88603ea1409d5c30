//! From errors to one line on standard error and an exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::printable::printable;

/// A mistake in how the command was called: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Ctrl-C before there was anything to show: exit status 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// An `anyhow` error that ends the program with status 2.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Prints an error of a command and gives its exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // Whoever read our output has seen enough: `plancher inspect … | head`.
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    say(&message(error));
    if error.is::<Interrupted>() {
        return ExitCode::from(crate::interrupt::STATUS);
    }
    if error.chain().any(<dyn std::error::Error>::is::<Usage>) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// The error and its causes, less those that the message before already quotes.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match message {
        message if message.is_empty() => cause,
        message if message.contains(&cause) => message,
        message => format!("{message}: {cause}"),
    })
}

/// Prints help, the version, or what was wrong with the arguments.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nothing is left to do when standard output is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    say(&one_line(&error.render().to_string()));
    ExitCode::from(2)
}

/// The first paragraph of clap's message and its hints, as one line.
fn one_line(message: &str) -> String {
    let mut paragraphs = message.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    let hints = paragraphs.filter_map(|text| text.strip_prefix("tip: ").map(|tip| format!(" ({tip})")));
    first + &hints.collect::<String>()
}

fn say(message: &str) {
    let line =
        message.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    // Standard error may be closed; then there is nobody to tell.
    let _ = writeln!(io::stderr(), "plancher: {}", printable(&line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let cause = || io::Error::other("disk on fire");
        let error = anyhow::Error::new(cause()).context("cannot read `a`");
        assert_eq!(message(&error), "cannot read `a`: disk on fire");
        let error = anyhow::Error::new(cause()).context("cannot read `a`: disk on fire");
        assert_eq!(message(&error), "cannot read `a`: disk on fire");
    }

    #[test]
    fn usage_messages_become_one_line() {
        let message =
            "error: invalid value 'x' for '--seed <SEED>': not a number\n\nFor more information, try '--help'.\n";
        assert_eq!(one_line(message), "invalid value 'x' for '--seed <SEED>': not a number");
        let message = "error: unexpected argument '--temp' found\n\n  tip: a similar argument exists: '--temperature'\n\nUsage: x";
        assert_eq!(
            one_line(message),
            "unexpected argument '--temp' found (a similar argument exists: '--temperature')"
        );
    }
}
