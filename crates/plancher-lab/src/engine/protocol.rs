//! What the lab and its measuring process say to each other: one request, then messages, one JSON object a line. A kernel may
//! print to the same output, so that each message begins with a key that no kernel knows.

use serde::{Deserialize, Serialize};

use crate::Dtype;
use crate::record::{CaseRun, CeilingRun, Failure, Machine, PointRun, Resources};

/// The variable of the environment in which the measuring process finds the key of its messages.
pub(super) const KEY: &str = "PLANCHER_LAB_KEY";
/// What it is about to do while it compiles a kernel.
pub(super) const COMPILING: &str = "compiling";

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The step's id.
    pub(super) step: String,
    /// The kernels, in order.
    pub(super) kernels: Vec<KernelRequest>,
    /// Fewer samples, and no series of sizes.
    pub(super) quick: bool,
    /// Whether the step's ceilings of memory are measured by themselves too.
    pub(super) ceilings: bool,
    /// Nothing is measured: the kernels are only launched, for a tool to watch.
    #[serde(default)]
    pub(super) launches_only: Option<Launches>,
}

/// What is launched for a tool to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Launches {
    /// Each kernel so many times at its main size.
    Main(u32),
    /// Each kernel at small sizes, in allocations of exactly its arrays' sizes; results are read back and looked at, or left
    /// where they are.
    Small { read_back: bool },
}

/// One kernel for one type of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KernelRequest {
    /// The version's id, or the name of a learner's file.
    pub(super) version: String,
    /// The numbers.
    pub(super) dtype: Dtype,
    /// The text of a learner's file; without it, the catalogue's version is meant.
    pub(super) text: Option<String>,
}

/// What the measuring process says. `kernel` is the index in the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The machine, before anything else.
    Machine(Box<Machine>),
    /// A ceiling.
    Ceiling(CeilingRun),
    /// It is about to do something: what, in words.
    Begins { kernel: usize, what: String },
    /// A launch is done, and the next one comes.
    Alive,
    /// A kernel compiled.
    Compiled { kernel: usize, options: Vec<String>, resources: Resources },
    /// Why a kernel is not run.
    NotRun { kernel: usize, failure: Failure },
    /// A case.
    Case { kernel: usize, run: CaseRun },
    /// Times.
    Point { kernel: usize, run: Box<PointRun> },
    /// A kernel was launched so often for a tool to watch.
    Launched { kernel: usize, launches: u32 },
    /// A kernel is done.
    Done { kernel: usize },
    /// Nothing can be measured, and why.
    Broken { text: String },
    /// All is done.
    End(Box<Machine>),
}

impl Message {
    /// As a line of its own, whatever has been printed before.
    pub(super) fn signed(&self, key: &str) -> String {
        // A record has nothing that JSON does not have: numbers that are not finite are left out or written as text.
        format!("\n{key} {}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// From a line; `None` for what is no message: something that a kernel prints, or the banner of a test program.
    pub(super) fn read(line: &[u8], key: &str) -> Option<Self> {
        let text = line.strip_prefix(key.as_bytes())?.strip_prefix(b" ")?;
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_and_what_a_kernel_prints_is_none() {
        let message = Message::Begins { kernel: 3, what: "tails, 127\nx".to_owned() };
        let text = format!("something without an end{}", message.signed("4f"));
        let lines: Vec<&[u8]> = text.split('\n').map(str::as_bytes).collect();
        assert_eq!(lines.len(), 3);
        let read: Vec<_> = lines.iter().filter_map(|line| Message::read(line, "4f")).collect();
        assert_eq!(read, [message]);
        for line in ["running 1 test", "", r#"{"done":{"kernel":0}}"#, r#"4e {"done":{"kernel":0}}"#, "4f ", "\u{fe}4f"]
        {
            assert_eq!(Message::read(line.as_bytes(), "4f"), None, "{line}");
        }
    }
}
