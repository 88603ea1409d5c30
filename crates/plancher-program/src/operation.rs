//! What the instructions of a program compute.

use std::ops::Range;

use serde::Serialize;

/// What an instruction computes. Matrix products name the segments of this worker's stream that they consume, in
/// order, as a range of [`crate::WorkerProgram::segments`].
///
/// The residual stream is kept by every worker privately (`hidden`, f32). An operation that ends a branch
/// (attention output, down) leaves its result in a shared `delta` buffer; whoever needs the residual next adds the
/// whole delta, normed first where the layer has post-norms, to its own copy. So nobody waits for a residual owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Operation {
    /// `hidden = embedding[token] * embedding_scale`. Decode: every worker, all of it, into its own copy.
    /// Prefill: each worker its share of the chunk's positions.
    Embed,
    /// `hidden += delta` (after its post-norm, if any; the first layer's attention norm has no delta yet), and
    /// `normed = rms_norm(hidden)`. Decode: every worker, for itself. Prefill: each worker its share of positions.
    /// `layer == n_layers` means the output norm.
    AddNormalize {
        /// The layer whose norm is applied.
        layer: usize,
        /// True for the norm before the feed-forward part, false for the one before attention (or the output norm).
        feed_forward: bool,
    },
    /// Rows of query, key and value, bias added, into `queries`, `keys` and `values`. One segment for each of the
    /// three matrices of which this worker has tiles, in that order.
    QueryKeyValue {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Prefill only: per-head norm and rotary embedding of keys (and of queries, in place), and append of keys and
    /// values to the cache, for the positions that this worker keeps.
    Append {
        /// The layer.
        layer: usize,
    },
    /// Decode: per-head norm and rotary embedding of the queries, append of this position if this worker owns it,
    /// and attention over the positions this worker owns, leaving per head `(head_dim)` unnormalised sums, the
    /// maximum and the sum of exponentials in its part of `partials`.
    /// Prefill: attention of this worker's (head group, query block) units over the whole cache, into `attention`.
    Attention {
        /// The layer.
        layer: usize,
    },
    /// Decode: combine all workers' partials into the private `attention`, then rows of the output projection, bias
    /// added, into `delta`. Prefill: rows of the output projection. At most one segment.
    AttentionOutput {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// `activation(gate row) * up row`, biases added, into `activation`. Two segments of equal tiles, gate then up,
    /// or none.
    GateUp {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Rows of the down projection, bias added, into `delta`. At most one segment.
    Down {
        /// The layer.
        layer: usize,
        /// The segments consumed.
        segments: Range<usize>,
    },
    /// Rows of the head into `logits`. At most one segment.
    Head {
        /// The segments consumed.
        segments: Range<usize>,
    },
}

impl Operation {
    /// The segments it consumes: a range of the worker's own; empty for an operation without weights.
    #[must_use]
    pub fn segments(&self) -> Range<usize> {
        match self {
            Self::QueryKeyValue { segments, .. }
            | Self::AttentionOutput { segments, .. }
            | Self::GateUp { segments, .. }
            | Self::Down { segments, .. }
            | Self::Head { segments } => segments.clone(),
            Self::Embed | Self::AddNormalize { .. } | Self::Append { .. } | Self::Attention { .. } => 0..0,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embed => f.write_str("embed"),
            Self::AddNormalize { layer, feed_forward: false } => write!(f, "layer {layer} norm"),
            Self::AddNormalize { layer, feed_forward: true } => write!(f, "layer {layer} feed-forward norm"),
            Self::QueryKeyValue { layer, .. } => write!(f, "layer {layer} query/key/value"),
            Self::Append { layer } => write!(f, "layer {layer} append"),
            Self::Attention { layer } => write!(f, "layer {layer} attention"),
            Self::AttentionOutput { layer, .. } => write!(f, "layer {layer} attention output"),
            Self::GateUp { layer, .. } => write!(f, "layer {layer} gate/up"),
            Self::Down { layer, .. } => write!(f, "layer {layer} down"),
            Self::Head { .. } => f.write_str("head"),
        }
    }
}
