//! Messages on standard error, by level: warnings by default.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Installs the logger. `PLANCHER_LOG` overrides the level with a filter such as `plancher_cpu=debug`.
pub(crate) fn install(verbose: u8, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    let level = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = EnvFilter::try_from_env("PLANCHER_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .without_time()
        .init();
}

/// Whether statistics and progress were asked not to be shown.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}
