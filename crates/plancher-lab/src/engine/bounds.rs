//! What compiling somebody's file may take: a template that never ends, or wants all memory, ends only the process that
//! compiles it.

use std::time::{Duration, Instant};

/// Bounds on a process, from some moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How long it may take.
    pub longest: Duration,
    /// How much memory it may have, in bytes.
    pub most: u64,
}

impl Bounds {
    /// Nobody's kernel is compiled for so long, or needs so much.
    pub const COMPILING: Self = Self { longest: Duration::from_secs(30), most: 4 << 30 };
    /// How often one looks.
    pub const INTERVAL: Duration = Duration::from_millis(10);

    /// What a process, at work since `start`, has taken too much of; it had `before` bytes of memory then.
    #[must_use]
    pub fn exceeded(&self, process: u32, start: Instant, before: u64) -> Option<String> {
        if start.elapsed() > self.longest {
            Some(format!("compiling was ended: it was not done within {} s", self.longest.as_secs()))
        } else if resident(process).saturating_sub(before) > self.most {
            Some(format!("compiling was ended: it took more than {} MiB of memory", self.most >> 20))
        } else {
            None
        }
    }
}

/// The memory that a process has, in bytes; 0 where the system does not say it.
pub(super) fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // Where pages are larger, the limit is tighter.
    pages.saturating_mul(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_or_too_much_is_told() {
        let (process, now) = (std::process::id(), Instant::now());
        assert_eq!(Bounds::COMPILING.exceeded(process, now, 0), None);
        let none = Bounds { longest: Duration::ZERO, most: u64::MAX };
        let text = none.exceeded(process, now, 0).expect("some time has passed");
        assert_eq!(text, "compiling was ended: it was not done within 0 s");
        if cfg!(target_os = "linux") {
            let little = Bounds { most: 1 << 20, ..Bounds::COMPILING };
            let text = little.exceeded(process, now, 0).expect("this program is larger");
            assert_eq!(text, "compiling was ended: it took more than 1 MiB of memory");
            assert_eq!(little.exceeded(process, now, resident(process)), None);
        }
    }
}
