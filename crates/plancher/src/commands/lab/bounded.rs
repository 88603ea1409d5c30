//! Compiling somebody's file in a process of its own: a template that never ends, or wants all memory, ends only that one.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Nobody's kernel is compiled for so long.
const LONGEST: Duration = Duration::from_secs(30);
/// Nobody's kernel needs so much, in bytes.
const MOST_MEMORY: u64 = 4 << 30;

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
    watch(&mut child, LONGEST, MOST_MEMORY)
}

/// Waits for a process, and ends it when it takes too long or too much.
fn watch(child: &mut Child, longest: Duration, most: u64) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let trouble = if start.elapsed() > longest {
            format!("it was not done within {} s", longest.as_secs())
        } else if resident(child.id()).is_some_and(|bytes| bytes > most) {
            format!("it took more than {} MiB of memory", most >> 20)
        } else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        // It may have ended by itself just now.
        let _ = child.kill();
        child.wait()?;
        anyhow::bail!("compiling was ended: {trouble}");
    }
}

/// The memory that a process has, where the system says it.
fn resident(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // Where pages are larger, the limit is tighter.
    pages.checked_mul(4096)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_ended_and_what_does_keeps_its_status() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let error = watch(&mut child, Duration::ZERO, u64::MAX).unwrap_err().to_string();
        assert_eq!(error, "compiling was ended: it was not done within 0 s");
        let mut child = Command::new("false").spawn().unwrap();
        assert_eq!(watch(&mut child, LONGEST, u64::MAX).unwrap().code(), Some(1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_takes_too_much_memory_is_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let error = watch(&mut child, LONGEST, 0).unwrap_err().to_string();
        assert_eq!(error, "compiling was ended: it took more than 0 MiB of memory");
    }
}
