//! The program itself: plain data, so that it can be printed, checked, mutated in tests, and interpreted.

use std::ops::Range;

use plancher_model::{DType, TensorKey};
use serde::Serialize;

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
    /// `(p / kv_chunk) % workers`, so that a worker's keys and values are read by itself alone.
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

/// Activation memory shared by the workers, or private to one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// For people: `qkv`, `activation`, `partials`.
    pub name: String,
    /// f32 elements per position of the step.
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

/// A range of a buffer that an instruction touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Which buffer.
    pub buffer: BufferId,
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

fn display<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// What an instruction computes. Matrix products name the segments of this worker's stream that they consume, in
/// order, as a range of [`WorkerProgram::segments`].
///
/// The residual stream is kept by every worker privately (`hidden`, f32). An operation that ends a branch
/// (attention output, down) leaves its result in a shared `delta` buffer; whoever needs the residual next adds the
/// whole delta, normed first where the layer has post-norms, to its own copy. So nobody waits for a residual owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Operation {
    /// `hidden = embedding[token] * embedding_scale`. Decode: every worker, all of it, into its own copy.
    /// Prefill: each worker its share of the chunk's positions.
    Embed,
    /// Decode only, a part of the following product in spirit: `hidden += delta` (after its post-norm, if any), and
    /// `x = rms_norm(hidden)`. In prefill an instruction of its own over this worker's share of positions; the
    /// normed rows go to the shared `normed` buffer. `layer == n_layers` means the output norm.
    AddNormalize {
        /// The layer whose norm is applied.
        layer: usize,
        /// True for the norm before the feed-forward part, false for the one before attention (or the output norm).
        feed_forward: bool,
    },
    /// Rows of query, key and value, bias added, into `qkv` (queries, then keys, then values).
    QueryKeyValue {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Prefill only: per-head norm and rotary embedding of keys (and of queries, in place), and append of keys and
    /// values to the cache, for this worker's share of positions.
    Append {
        /// The layer.
        layer: usize,
    },
    /// Decode: per-head norm and rotary embedding of the queries, append of this position if this worker owns it,
    /// and attention over the positions this worker owns, leaving per head `(head_dim)` unnormalised sums, the
    /// maximum and the sum of exponentials in `partials`.
    /// Prefill: attention of this worker's (head group, query block) units over the whole cache, into `attention`.
    Attention {
        /// The layer.
        layer: usize,
    },
    /// Decode: combine all workers' partials, then rows of the output projection into `delta`.
    /// Prefill: rows of the output projection.
    AttentionOutput {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// `activation(gate row) * up row` into `activation`; segments come in pairs, gate then up, of equal tiles.
    GateUp {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Rows of the down projection into `delta`.
    Down {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Rows of the head into `logits`.
    Head {
        /// The segments consumed.
        segments: Range<usize>,
    },
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
