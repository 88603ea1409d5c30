//! What the checker finds wrong with a plan.

use crate::gpu::{Operation, Plan};

/// An instruction, by worker and number, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which worker.
    pub worker: u32,
    /// Which of its instructions.
    pub instruction: u32,
    /// What it does.
    pub operation: Operation,
    /// In which layer.
    pub layer: u16,
}

impl Place {
    pub(super) fn new(plan: &Plan, worker: usize, instruction: usize) -> Self {
        let found = plan.workers[worker].instructions[instruction];
        Self { worker: worker as u32, instruction: instruction as u32, operation: found.operation, layer: found.layer }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worker, instruction, operation, layer } = self;
        write!(f, "worker {worker}, instruction {instruction} ({operation}, layer {layer})")
    }
}

/// Why a plan is not safe to launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A list without its end, or longer than the kernel has room for.
    #[error("worker {worker}: {problem}")]
    List {
        /// Which worker.
        worker: usize,
        /// What is wrong.
        problem: String,
    },
    /// An instruction that the kernel cannot run there.
    #[error("{place}: {problem}")]
    Instruction {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// Rows of a matrix, outputs of attention, or splits of units are not computed exactly once.
    #[error("{operation}, layer {layer}: {item} {index} is computed {times} times, not once")]
    Coverage {
        /// What computes them.
        operation: Operation,
        /// In which layer.
        layer: usize,
        /// What is counted.
        item: &'static str,
        /// Which.
        index: usize,
        /// How often.
        times: usize,
    },
    /// A stream is not what the instructions consume.
    #[error("{place}: `{field}` is `{value}`, but the kernel consumes `{expected}`")]
    Stream {
        /// Where.
        place: Place,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What it would have to be.
        expected: usize,
    },
    /// Sizes beyond what there is.
    #[error("`{what}` is `{value}`, beyond `{bound}`")]
    Bound {
        /// What.
        what: &'static str,
        /// Its value.
        value: usize,
        /// Its bound.
        bound: usize,
    },
    /// A page of keys and values is not read once, or by somebody who may not.
    #[error("position {position}: page {page} of split {split}: {problem}")]
    Page {
        /// The position that is being appended.
        position: usize,
        /// The page.
        page: usize,
        /// The split that it belongs to.
        split: usize,
        /// What is wrong.
        problem: String,
    },
    /// Slots of the exchange overlap, are not aligned, or lie beyond its end.
    #[error("`{slot}`: bytes {start} to {end} of a copy {problem}")]
    Layout {
        /// Which slot.
        slot: String,
        /// Its first byte.
        start: usize,
        /// The byte after its last.
        end: usize,
        /// What is wrong.
        problem: String,
    },
    /// A word that two instructions write or clear in one step.
    #[error("step {step}: word {word} of `{slot}` is {what} by {first} and by {second}")]
    Twice {
        /// In which step.
        step: usize,
        /// Which word.
        word: usize,
        /// Of which slot.
        slot: String,
        /// Written or cleared.
        what: &'static str,
        /// Who.
        first: Place,
        /// Who, too.
        second: Place,
    },
    /// A word that is read and that nobody writes.
    #[error("step {step}: {place} waits for word {word} of `{slot}`, which nobody writes")]
    NoWriter {
        /// In which step.
        step: usize,
        /// Who reads.
        place: Place,
        /// Which word.
        word: usize,
        /// Of which slot.
        slot: String,
    },
    /// A word that still says in a later step what it said in this one.
    #[error("step {step}: word {word} of `{slot}`, written by {place}, is not cleared")]
    NotCleared {
        /// In which step it was written.
        step: usize,
        /// By whom.
        place: Place,
        /// Which word.
        word: usize,
        /// Of which slot.
        slot: String,
    },
    /// Two uses of a copy that nothing orders.
    #[error("`{slot}`, word {word}: nothing orders {first} before {second}")]
    Unordered {
        /// Which slot.
        slot: String,
        /// Which word.
        word: usize,
        /// What must come first.
        first: Use,
        /// What must come after it.
        second: Use,
    },
    /// Words that are waited for, and in turn wait.
    #[error("step {step}: {place} waits for words that wait for it in turn")]
    Cycle {
        /// In which step.
        step: usize,
        /// Who waits.
        place: Place,
    },
}

/// What an instruction does with a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Writing, reading or clearing.
    pub what: &'static str,
    /// In which step.
    pub step: u32,
    /// Who.
    pub place: Place,
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} in step {} by {}", self.what, self.step, self.place)
    }
}
