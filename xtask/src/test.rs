//! `cargo xtask test`: every test of the project with all that they need, on a fresh machine: fetches the public test
//! data once (checked by hash), then runs the workspace's tests, the concurrency models among them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Fetches test data and runs all tests.
pub(crate) fn run(root: &Path) -> Result<()> {
    step("test data", Command::new(root.join("tests/fetch")).current_dir(root))?;
    step("tests", cargo(root).args(["test", "--workspace", "--no-fail-fast"]))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn step(name: &str, command: &mut Command) -> Result<()> {
    eprintln!("xtask: {name}");
    let status = command.status().with_context(|| format!("{name}: cannot run {command:?}"))?;
    ensure!(status.success(), "{name}: failed ({status})");
    Ok(())
}
