//! What can be wrong with a program or a run, said so that one finds the place.

use crate::gpu::{CONSUMERS, Exchange, Operation, Slot};

use super::machine::Wait;
use super::schedule::PRODUCER;

/// Waits that a message spells out.
const MOST_WAITS: usize = 3;

/// Why a program was refused or a run did not end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Instruction words that say nothing sensible.
    #[error("worker {worker}: instruction {instruction} is not valid: {problem}")]
    Instruction {
        /// Whose list.
        worker: usize,
        /// Which of it.
        instruction: usize,
        /// What is wrong.
        problem: String,
    },
    /// A stream, list or matrix is not of the plan's size.
    #[error("`{matrix}` has {found} elements, expected {expected}")]
    Matrix {
        /// Which.
        matrix: String,
        /// As the plan says.
        expected: usize,
        /// As it is.
        found: usize,
    },
    /// Something that the kernel does not do.
    #[error("`{field}` is `{value}`: {problem}")]
    Unsupported {
        /// Which size or argument.
        field: &'static str,
        /// Its value.
        value: usize,
        /// Why not.
        problem: &'static str,
    },
    /// The model's norms and biases are not whole.
    #[error("{0}")]
    Model(String),
    /// Nobody can go on: who waits for what.
    #[error("the run is stuck: {}", list(.0))]
    Stuck(Vec<Waiting>),
    /// A word was written that had not been cleared, so that somebody may have taken the old value for the new one.
    #[error("{by} wrote {word} over a value that nobody has cleared")]
    Overwritten {
        /// Who, and where in its list.
        by: String,
        /// Which word.
        word: String,
    },
    /// A word was cleared that nobody had written.
    #[error("{by} cleared {word}, which was clear")]
    ClearedTwice {
        /// Who, and where in its list.
        by: String,
        /// Which word.
        word: String,
    },
}

/// A warp that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Whose.
    pub worker: usize,
    /// Which: consumers 0 to 7, finalizer 8, producer 9.
    pub warp: usize,
    /// The step of the run, from 0.
    pub step: usize,
    /// The instruction of its list.
    pub instruction: usize,
    /// What that instruction does.
    pub operation: Operation,
    /// What for.
    pub wait: String,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worker, warp, step, instruction, operation, wait } = self;
        let who = who(*worker, *warp);
        write!(f, "{who} in step {step}, instruction {instruction} ({operation}), waits for {wait}")
    }
}

pub(super) fn who(worker: usize, warp: usize) -> String {
    match warp {
        _ if warp < CONSUMERS => format!("consumer {warp} of worker {worker}"),
        PRODUCER => format!("the producer of worker {worker}"),
        _ => format!("the finalizer of worker {worker}"),
    }
}

fn list(waits: &[Waiting]) -> String {
    let mut texts: Vec<_> = waits.iter().take(MOST_WAITS).map(ToString::to_string).collect();
    if waits.len() > MOST_WAITS {
        texts.push(format!("and {} more", waits.len() - MOST_WAITS));
    }
    texts.join("; ")
}

/// What a wait is for, in words.
pub(super) fn wait_text(wait: Wait, exchange: &Exchange, layers: usize) -> String {
    match wait {
        Wait::Step(step) => format!("step {step} to begin"),
        Wait::Word(word) => word_text(word, exchange, layers),
        Wait::Landed(stage) => format!("stage {stage} of its stream"),
        Wait::Free(stage) => format!("a place in the ring for stage {stage}"),
        Wait::Buffer(chunk) => format!("a buffer for partial sums {chunk}"),
        Wait::Sums(chunk) => format!("all partial sums {chunk}"),
        Wait::Squares(edge) => format!("all sums of squares of branch {edge}"),
        Wait::Appended { layer, kv_head, positions } => {
            format!("{positions} positions of key/value head {kv_head} of layer {layer}")
        }
        Wait::Arrivals(count) => format!("{count} arrivals"),
        Wait::Stores => "a store".to_owned(),
    }
}

/// A word of the exchange by its slot.
pub(super) fn word_text(word: usize, exchange: &Exchange, layers: usize) -> String {
    const SLOTS: [Slot; 7] = [
        Slot::Attention,
        Slot::QueryKeyValue,
        Slot::Attended,
        Slot::FeedForward,
        Slot::Gated,
        Slot::PartialOutputs,
        Slot::PartialSums,
    ];
    let (copy, byte) = (word * 4 / exchange.copy_bytes, word * 4 % exchange.copy_bytes);
    let slots = (0..=layers).flat_map(|layer| SLOTS.iter().map(move |&slot| (layer, slot)));
    for (layer, slot) in slots.filter(|&(layer, slot)| layer < layers || slot == Slot::Attention) {
        let range = exchange.slot(layer, slot);
        if range.contains(&byte) {
            return format!("word {} of `{slot:?}` of layer {layer}, copy {copy}", (byte - range.start) / 4);
        }
    }
    if byte >= exchange.stop {
        return format!("the stop word, copy {copy}");
    }
    format!("the candidate of worker {}, copy {copy}", (byte.saturating_sub(exchange.candidates)) / 8)
}
