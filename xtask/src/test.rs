//! `cargo xtask test`: every test of the project with all that they need, on a fresh machine: fetches the public test
//! data once (checked by hash), then runs the workspace's tests, the concurrency models among them. `cargo xtask kernels`:
//! every GPU kernel for every architecture that it is for, without a GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Fetches test data and runs all tests.
pub(crate) fn run(root: &Path) -> Result<()> {
    fetch(root)?;
    step("tests", with_nvrtc(cargo(root).args(["test", "--workspace", "--no-fail-fast"]), root)?)
}

/// Compiles every GPU kernel; fails on spills beyond a file's budget and on missing instructions.
pub(crate) fn kernels(root: &Path) -> Result<()> {
    fetch(root)?;
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--package", "plancher", "--", "kernels", "compile"]);
    step("kernels", with_nvrtc(&mut command, root)?)
}

fn fetch(root: &Path) -> Result<()> {
    step("test data", Command::new(root.join("tests/fetch")).current_dir(root))
}

/// Lets a command find the compiler that was fetched, unless the caller has named another, and insist on having one.
fn with_nvrtc<'a>(command: &'a mut Command, root: &Path) -> Result<&'a mut Command> {
    if std::env::var_os("PLANCHER_NVRTC_DIR").is_none() {
        let nvidia = root.join("target/test-data/cuda/nvidia");
        let packages = std::fs::read_dir(&nvidia).with_context(|| format!("`{}`", nvidia.display()))?;
        let folders: Vec<PathBuf> = packages.filter_map(|package| Some(package.ok()?.path().join("lib"))).collect();
        let folder = folders.iter().find(|folder| folder.is_dir());
        let folder = folder.with_context(|| format!("`{}` has no `lib`", nvidia.display()))?;
        command.env("PLANCHER_NVRTC_DIR", folder.canonicalize()?);
    }
    Ok(command.env("PLANCHER_REQUIRE_NVRTC", "1"))
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
