//! The measuring process: a kernel that faults or never ends takes only that one with it, and the lab goes on.

use plancher_lab::engine::{ChildCommand, child_main};

use crate::placement::Found;

/// The name of the hidden command.
pub(super) const NAME: &str = "__child";

/// How it is started: this program, with its hidden command.
pub(super) fn command() -> anyhow::Result<ChildCommand> {
    let program = std::env::current_exe()
        .map_err(|error| anyhow::anyhow!("this program cannot start itself, not knowing where it lies: {error}"))?;
    Ok(ChildCommand { program, arguments: vec!["lab".to_owned(), NAME.to_owned()], environment: Vec::new() })
}

/// What it does; it ends with the status that its starter understands.
pub(super) fn run() -> ! {
    std::process::exit(child_main().into())
}

/// Says that there is no GPU before anything is started that would need one.
pub(super) fn require_gpu() -> anyhow::Result<()> {
    match crate::gpu::look(0) {
        Found::Usable => Ok(()),
        Found::Unusable(problem) => anyhow::bail!("{problem}"),
        Found::Nothing => anyhow::bail!(
            "no NVIDIA GPU was found, and this measures on one: without it there are `lab list`, `explain`, `start`, `report`, \
             `status` and `check --compile-only`"
        ),
    }
}
