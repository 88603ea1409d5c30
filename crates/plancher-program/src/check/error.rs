//! What the checker finds wrong.

use plancher_model::TensorKey;

use crate::Program;

/// An instruction, by worker and number, and what it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which worker.
    pub worker: usize,
    /// Which of its instructions.
    pub instruction: usize,
    /// The operation, for people.
    pub operation: String,
}

impl Place {
    pub(super) fn new(program: &Program, worker: usize, instruction: usize) -> Self {
        let operation = program.workers[worker].instructions[instruction].operation.to_string();
        Self { worker, instruction, operation }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "worker {}, instruction {} ({})", self.worker, self.instruction, self.operation)
    }
}

/// Why a program is not safe to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The program has another number of instruction lists than its target has workers, or too many.
    #[error("the program has {lists} instruction lists for {workers} workers")]
    Workers {
        /// Lists.
        lists: usize,
        /// [`crate::Target::workers`].
        workers: usize,
    },
    /// A worker does not perform the operations of the model in order.
    #[error("worker {worker}, instruction {instruction}: `{found}` where the model has `{expected}`")]
    Operation {
        /// Which worker.
        worker: usize,
        /// Which instruction.
        instruction: usize,
        /// What the phase calls for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A buffer or counter that does not exist, or a range beyond a buffer's end.
    #[error("{place}: {what} `{value}` is out of bounds ({bound})")]
    Bounds {
        /// Where.
        place: Place,
        /// Counter, buffer, or end of the range in a named buffer.
        what: String,
        /// The value.
        value: usize,
        /// What it must be below (an end: not above).
        bound: usize,
    },
    /// A worker touches another's private buffer.
    #[error("{place}: buffer `{buffer}` is private to worker {owner}")]
    PrivateBuffer {
        /// Where.
        place: Place,
        /// Which buffer.
        buffer: String,
        /// Whose it is.
        owner: usize,
    },
    /// An instruction touches memory that it does not declare, or the program has no such buffer.
    #[error("{place}: touches buffer `{buffer}` without declaring it")]
    Undeclared {
        /// Where.
        place: Place,
        /// Which buffer.
        buffer: String,
    },
    /// A worker's stream is not what its instructions consume.
    #[error("worker {worker}, segment {segment}: {problem}")]
    Stream {
        /// Which worker.
        worker: usize,
        /// Which of its segments; their number for what comes after the last.
        segment: usize,
        /// What is wrong.
        problem: String,
    },
    /// The tiles of a matrix are not covered exactly once.
    #[error("tile {tile} of `{tensor}` is consumed {times} times, not once")]
    Coverage {
        /// Which matrix.
        tensor: TensorKey,
        /// Which tile.
        tile: usize,
        /// How often.
        times: usize,
    },
    /// Fewer signals exist than a wait asks for.
    #[error("{place}: waits for {value} signals of counter `{counter}`, which gets {signals} only")]
    MissingSignal {
        /// Where.
        place: Place,
        /// Which counter.
        counter: String,
        /// How many signals are waited for.
        value: u32,
        /// How many there are in the whole program.
        signals: u32,
    },
    /// The signals that a wait asks for come after it.
    #[error("{place}: waits for {value} signals of counter `{counter}`, some of which wait for it in turn")]
    Cycle {
        /// Where.
        place: Place,
        /// Which counter.
        counter: String,
        /// How many signals are waited for.
        value: u32,
    },
    /// Two accesses to the same memory, one of them a write, that nothing orders as the model does.
    #[error("buffer `{buffer}`: nothing orders {first} before {second}")]
    Race {
        /// Which buffer.
        buffer: String,
        /// The one that must come first (either, when they are the same operation).
        first: Place,
        /// The other.
        second: Place,
    },
}
