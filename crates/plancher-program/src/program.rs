//! The program itself: plain data, so that it can be printed, checked, mutated in tests, and interpreted.

use std::ops::Range;

use plancher_model::{DType, TensorKey};
use serde::Serialize;

use crate::operation::Operation;

/// Which kind of step a program performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Phase {
    /// One position: norms are fused into the matrix products that follow, attention is split over workers by
    /// position.
    Decode,
    /// A chunk of consecutive positions of one sequence: norms, rotary embedding and attention are operations of
    /// their own, split over workers by position (norms, append) or by head and query block (attention).
    Prefill,
}

/// What a program is scheduled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Target {
    /// Number of instruction lists.
    pub workers: usize,
    /// Rows of a weight tile: a worker owns whole tiles.
    pub tile_rows: usize,
    /// Positions of a KV chunk: in decode, position `p` is appended and attended to by worker
    /// `(p / kv_chunk) % workers`, so that a worker's keys and values are read by itself alone. Prefill appends by
    /// the same rule.
    pub kv_chunk: usize,
    /// The kind of step.
    pub phase: Phase,
}

/// Index into [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BufferId(pub usize);

/// Index into [`Program::counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct CounterId(pub usize);

/// What a buffer holds. All are f32 but the caches, whose type is the backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum BufferRole {
    /// The residual stream, `(hidden_size)`. Decode: one per worker, private. Prefill: shared.
    Hidden,
    /// The normed residual, input of products, `(hidden_size)`. Decode: one per worker, private. Prefill: shared.
    Normed,
    /// `(n_heads, head_dim)` of the layer, from the front.
    Queries,
    /// `(n_kv_heads, head_dim)` of the layer, from the front.
    Keys,
    /// `(n_kv_heads, head_dim)` of the layer, from the front.
    Values,
    /// Decode only: worker `w` owns the `w`-th of `workers` equal parts, which holds for each head of the layer
    /// `(head_dim)` unnormalised sums, the maximum score and the sum of exponentials: `(n_heads, head_dim + 2)`
    /// from the front of the part.
    Partials,
    /// The attention result, `(n_heads, head_dim)`. Decode: one per worker, private. Prefill: shared.
    Attention,
    /// `activation(gate) * up`, `(feed_forward_rows)`.
    Activation,
    /// What a branch adds to the residual, `(hidden_size)`.
    Delta,
    /// `(vocab_size)`.
    Logits,
    /// The cached keys and values of this layer, `(2, n_kv_heads, head_dim)` a position of the sequence. It
    /// outlives the step and is not activation memory.
    Cache(usize),
}

impl std::fmt::Display for BufferRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Hidden => "hidden",
            Self::Normed => "normed",
            Self::Queries => "queries",
            Self::Keys => "keys",
            Self::Values => "values",
            Self::Partials => "partials",
            Self::Attention => "attention",
            Self::Activation => "activation",
            Self::Delta => "delta",
            Self::Logits => "logits",
            Self::Cache(layer) => return write!(f, "cache of layer {layer}"),
        };
        f.write_str(name)
    }
}

/// Activation memory shared by the workers, or private to one; or the cache of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// What it holds.
    pub role: BufferRole,
    /// Elements per position: the largest that any layer needs.
    pub elements: usize,
    /// The only worker that may touch it; `None` for shared memory.
    pub owner: Option<usize>,
}

/// A dependency counter. Signals add one; it starts a step at zero (backends use generations instead of clearing).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// For people: `layer 3 gate/up`.
    pub name: String,
}

/// Do not start before `counter` has been signalled `value` times in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Which counter.
    pub counter: CounterId,
    /// How many signals.
    pub value: u32,
}

/// Whether an access writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AccessMode {
    /// Reads.
    Read,
    /// Writes, or reads and writes.
    Write,
}

/// Which positions an access touches. In decode there is one position, and only caches are split.
///
/// Two parts are disjoint when they are different parts of the same split; parts of different splits may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Part {
    /// All of them.
    Whole,
    /// Worker `.0`'s share of the step's positions. How the backend shares them out is its own business, as long
    /// as it is the same for every operation of one program.
    Positions(usize),
    /// The positions `p` of the sequence that worker `.0` keeps: `(p / kv_chunk) % workers == .0`.
    Chunks(usize),
    /// Worker `.0`'s units of prefill attention: disjoint (heads, positions) rectangles, shared out as the backend
    /// sees fit.
    Units(usize),
}

impl Part {
    /// Whether two parts may have a position in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Positions(a), Self::Positions(b))
            | (Self::Chunks(a), Self::Chunks(b))
            | (Self::Units(a), Self::Units(b)) => a == b,
            _ => true,
        }
    }

    /// Whether all of `other` lies in this part.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self == Self::Whole || self == other
    }
}

/// A range of a buffer that an instruction touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Which buffer.
    pub buffer: BufferId,
    /// Which positions.
    pub part: Part,
    /// Elements per position, `0..Buffer::elements`.
    pub range: Range<usize>,
    /// Read or write.
    pub mode: AccessMode,
}

/// A run of whole row tiles of one matrix in a worker's stream. Rows beyond the matrix's end in its last tile are
/// zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// The matrix.
    #[serde(serialize_with = "display")]
    pub tensor: TensorKey,
    /// Its encoding.
    #[serde(serialize_with = "display")]
    pub dtype: DType,
    /// Its inputs.
    pub columns: usize,
    /// Its rows (of the whole matrix, not of the segment).
    pub rows: usize,
    /// Which tiles: rows `tiles.start * tile_rows .. min(tiles.end * tile_rows, rows)`.
    pub tiles: Range<usize>,
    /// Where the first tile starts in the stream, in bytes.
    pub offset: usize,
    /// Bytes of all the tiles.
    pub bytes: usize,
}

impl Segment {
    /// The rows of the matrix that its tiles hold.
    #[must_use]
    pub fn output_rows(&self, tile_rows: usize) -> Range<usize> {
        let end = self.tiles.end.saturating_mul(tile_rows).min(self.rows);
        self.tiles.start.saturating_mul(tile_rows).min(end)..end
    }
}

fn display<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// One thing a worker does: wait, compute, signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// What to compute.
    pub operation: Operation,
    /// All must hold before it starts.
    pub waits: Vec<Wait>,
    /// What it touches.
    pub accesses: Vec<Access>,
    /// Counters that gain one when it is done.
    pub signals: Vec<CounterId>,
}

/// The instruction list and the stream layout of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerProgram {
    /// Executed in order.
    pub instructions: Vec<Instruction>,
    /// The weight stream: contiguous segments, in the order of consumption.
    pub segments: Vec<Segment>,
    /// Bytes of the stream.
    pub stream_bytes: usize,
}

/// A step laid out for the workers of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// What it was scheduled for.
    pub target: Target,
    /// Activation buffers.
    pub buffers: Vec<Buffer>,
    /// Dependency counters.
    pub counters: Vec<Counter>,
    /// One list a worker.
    pub workers: Vec<WorkerProgram>,
}

impl Program {
    /// The buffer in `role` that `worker` uses: its private one, or the shared one; `None` when the phase has no
    /// such buffer.
    #[must_use]
    pub fn buffer(&self, role: BufferRole, worker: usize) -> Option<BufferId> {
        self.buffers
            .iter()
            .position(|buffer| buffer.role == role && buffer.owner.is_none_or(|owner| owner == worker))
            .map(BufferId)
    }
}
