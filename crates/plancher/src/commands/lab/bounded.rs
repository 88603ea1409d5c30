//! Compiling somebody's file in a process of its own: a template that never ends, or wants all memory, ends only that one.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use plancher_lab::engine::Bounds;

/// Runs this program again with its own arguments and one more before `beside`, and waits for it; what it prints goes where
/// ours does.
pub(super) fn again(beside: &str, more: &str) -> anyhow::Result<ExitStatus> {
    let program = std::env::current_exe().context("this program cannot start itself, not knowing where it lies")?;
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Not at the end: what stands behind `--` is no option.
    let place = arguments.iter().position(|argument| argument == beside).unwrap_or(0);
    arguments.insert(place, more.into());
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    let mut child = child.context("the compiling process cannot be started")?;
    watch(&mut child, Bounds::COMPILING)
}

/// Waits for a process, and ends it when it takes too long or too much.
fn watch(child: &mut Child, bounds: Bounds) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let Some(trouble) = bounds.exceeded(child.id(), start, 0) else {
            std::thread::sleep(Bounds::INTERVAL);
            continue;
        };
        // It may have ended by itself just now.
        let _ = child.kill();
        child.wait()?;
        anyhow::bail!("{trouble}");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_does_not_end_is_ended_and_what_does_keeps_its_status() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let error = watch(&mut child, Bounds { longest: Duration::ZERO, ..Bounds::COMPILING }).unwrap_err();
        assert_eq!(error.to_string(), "compiling was ended: it was not done within 0 s");
        let mut child = Command::new("false").spawn().unwrap();
        assert_eq!(watch(&mut child, Bounds::COMPILING).unwrap().code(), Some(1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_takes_too_much_memory_is_ended() {
        let mut child = Command::new("tail").arg("/dev/zero").stdout(Stdio::null()).spawn().unwrap();
        let error = watch(&mut child, Bounds { most: 64 << 20, ..Bounds::COMPILING }).unwrap_err();
        assert_eq!(error.to_string(), "compiling was ended: it took more than 64 MiB of memory");
    }
}
