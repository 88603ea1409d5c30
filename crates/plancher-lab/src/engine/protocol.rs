//! What the lab and its measuring process say to each other: one request, then messages, one JSON object a line.

use serde::{Deserialize, Serialize};

use crate::Dtype;
use crate::record::{CaseRun, CeilingRun, Failure, Machine, PointRun, Resources};

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
    /// Nothing is measured: each kernel is launched so many times at its main size, for a profiler to watch.
    #[serde(default)]
    pub(super) launches_only: Option<u32>,
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
    /// A kernel compiled.
    Compiled { kernel: usize, options: Vec<String>, resources: Resources },
    /// Why a kernel is not run.
    NotRun { kernel: usize, failure: Failure },
    /// A case.
    Case { kernel: usize, run: CaseRun },
    /// Times.
    Point { kernel: usize, run: Box<PointRun> },
    /// A kernel is done.
    Done { kernel: usize },
    /// Nothing can be measured, and why.
    Broken { text: String },
    /// All is done.
    End(Box<Machine>),
}

impl Message {
    /// As a line.
    pub(super) fn line(&self) -> String {
        // A record has nothing that JSON does not have: numbers that are not finite are left out or written as text.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// From a line; `None` for what is no message, such as the banner of a test program.
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_and_other_lines_are_none() {
        let message = Message::Begins { kernel: 3, what: "tails, 127\nx".to_owned() };
        let line = message.line();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(Message::read(&line), Some(message));
        assert_eq!(Message::read("running 1 test"), None);
        assert_eq!(Message::read(""), None);
    }
}
