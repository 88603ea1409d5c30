//! compute-sanitizer: its tools, how they are asked, and what their logs say. A log comes from a process that may have died in
//! the middle of it, so that only what it says to the end counts: without a summary nothing was found out.

use serde::{Deserialize, Serialize};

/// One of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Accesses outside of what is allocated, or misaligned ones.
    Memcheck,
    /// Reads of global memory that nobody has written.
    Initcheck,
    /// Barriers that not all threads reach, and other wrong uses of them.
    Synccheck,
    /// Accesses of shared memory that nothing puts in order. It sees no other memory.
    Racecheck,
}

impl Tool {
    /// All that are used.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Initcheck, Self::Synccheck, Self::Racecheck];

    /// What follows `--tool`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Initcheck => "initcheck",
            Self::Synccheck => "synccheck",
            Self::Racecheck => "racecheck",
        }
    }

    /// Whether results may be read back below it: initcheck does not see what the copy engine writes for a kernel, and would
    /// take the reading of it for one of memory that nobody has written.
    #[must_use]
    pub const fn sees_bulk_copies(self) -> bool {
        !matches!(self, Self::Initcheck)
    }

    /// The options by which it is asked, but for where the log goes and what it watches.
    #[must_use]
    pub fn options(self) -> Vec<String> {
        // The driver is asked for the parameters of kernels until it says that there are no more: no error.
        let common = ["--tool", self.name(), "--print-limit", "10", "--report-api-errors", "no"];
        // What is written behind one array must not lie in the next one.
        let more: &[&str] = if self == Self::Memcheck { &["--padding", "512"] } else { &[] };
        common.iter().chain(more).map(|&option| option.to_owned()).collect()
    }
}

impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Errors, or hazards, by its summary.
    pub errors: u64,
    /// The first line of its first report.
    pub first: Option<String>,
}

/// How every line of it begins.
const MARK: &str = "=========";

/// The most characters of a report's line that are kept.
const LONGEST: usize = 300;

/// What it says of the process instead of the kernels.
const OF_THE_PROCESS: [&str; 4] =
    ["process didn't terminate successfully", "Target application", "No kernel", "Internal Sanitizer Error"];

/// Reads a log.
///
/// # Errors
/// If it has no summary, says that it broke down, or contradicts itself; in words that follow a tool's name.
pub fn read_log(text: &str) -> Result<Log, String> {
    let said = || text.lines().filter_map(|line| line.trim_end().strip_prefix(MARK));
    let mut errors: Option<u64> = None;
    for line in said() {
        if let Some(count) = summary(line) {
            // Each process that it watches has one.
            errors = Some(errors.unwrap_or(0).saturating_add(count));
        }
    }
    // Reports are set off by one space, what belongs to them by more.
    let heads = said().filter_map(|line| {
        let line = line.strip_prefix(' ').filter(|line| !line.starts_with([' ', '\t']))?.trim();
        let is_report = !line.is_empty() && line != "COMPUTE-SANITIZER" && !line.contains("SUMMARY:");
        is_report.then_some(line)
    });
    let (of_process, reports): (Vec<&str>, Vec<&str>) =
        heads.partition(|line| OF_THE_PROCESS.iter().any(|part| line.contains(part)));
    let first = reports.first().map(|line| line.chars().take(LONGEST).collect::<String>());
    match (errors, of_process.first()) {
        (None, None) => Err("it gave no summary".to_owned()),
        (Some(0) | None, Some(line)) => Err(format!("it says `{}`", line.chars().take(LONGEST).collect::<String>())),
        (Some(0), None) => match first {
            Some(line) => Err(format!("its summary counts no errors, and it says `{line}`")),
            None => Ok(Log { errors: 0, first: None }),
        },
        (Some(errors), _) => Ok(Log { errors, first }),
    }
}

/// The count of `ERROR SUMMARY: 3 errors` and of `RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)`.
fn summary(line: &str) -> Option<u64> {
    let line = line.trim();
    let (count, what) =
        ["ERROR SUMMARY: ", "RACECHECK SUMMARY: "].iter().find_map(|head| line.strip_prefix(head))?.split_once(' ')?;
    (what.starts_with("error") || what.starts_with("hazard")).then(|| count.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! log {
        ($name:literal) => {
            read_log(include_str!(concat!("../tests/data/sanitizer/", $name, ".txt")))
        };
    }

    #[test]
    fn clean_logs_are_clean() {
        let clean = Ok(Log { errors: 0, first: None });
        assert_eq!(log!("memcheck_clean"), clean);
        assert_eq!(log!("racecheck_clean"), clean);
    }

    #[test]
    fn errors_are_counted_and_the_first_is_told() {
        let wrong = log!("memcheck_errors").expect("it has a summary");
        assert_eq!(wrong.errors, 2);
        assert_eq!(wrong.first.as_deref(), Some("Invalid __global__ write of size 4 bytes"));
        let race = log!("racecheck_errors").expect("it has a summary");
        assert_eq!(race.errors, 1);
        assert!(
            race.first.is_some_and(|line| line.starts_with("Error: Race reported between Write access at reduce+0x"))
        );
    }

    #[test]
    fn what_did_not_get_to_its_end_is_not_clean() {
        assert_eq!(log!("crashed"), Err("it says `Error: process didn't terminate successfully`".to_owned()));
        assert_eq!(log!("cut_off"), Err("it gave no summary".to_owned()));
        assert_eq!(read_log(""), Err("it gave no summary".to_owned()));
        assert_eq!(read_log("the child's own words: ERROR SUMMARY: 0 errors\n"), Err("it gave no summary".to_owned()));
        let contradiction =
            "========= COMPUTE-SANITIZER\n========= Invalid __shared__ read\n========= ERROR SUMMARY: 0 errors\n";
        assert!(read_log(contradiction).is_err_and(|text| text.contains("counts no errors, and it says `Invalid")));
    }

    #[test]
    fn several_processes_are_added_up() {
        let twice = "========= ERROR SUMMARY: 0 errors\n========= Barrier error\n========= ERROR SUMMARY: 1 error\n";
        assert_eq!(read_log(twice).map(|log| log.errors), Ok(1));
        assert_eq!(summary(" ERROR SUMMARY: many errors"), None);
        assert_eq!(summary(" RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"), Some(1));
    }

    #[test]
    fn each_tool_is_asked_by_its_name() {
        for tool in Tool::ALL {
            let options = tool.options();
            assert_eq!(options[..2], ["--tool".to_owned(), tool.to_string()]);
            assert_eq!(serde_json::to_string(&tool).expect("JSON"), format!("\"{tool}\""));
        }
        assert_eq!(Tool::Memcheck.options().last().map(String::as_str), Some("512"));
    }
}
