//! Lowering: from a model's configuration to the operations of one step in order, with the matrices that each of
//! them reads. No workers yet, and no phase: decode and prefill perform the same operations.

use plancher_model::{DType, FeedForward, LayerConfig, LayerTensor, ModelConfig, TensorKey, Weights};

use crate::ProgramError;

/// A stored matrix, `(rows, columns)` = `(outputs, inputs)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Its role.
    pub tensor: TensorKey,
    /// Its encoding.
    pub dtype: DType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

/// One operation of the step. [`crate::Operation`] says what each computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the layer and its matrices, by their own names")]
pub enum LoweredOperation {
    /// The token's embedding row.
    Embed,
    /// The residual addition and the norm before a branch; `layer == n_layers` is the output norm.
    AddNormalize { layer: usize, feed_forward: bool },
    /// Query, key and value projections.
    QueryKeyValue { layer: usize, matrices: [Matrix; 3] },
    /// Rotary embedding, append to the cache, attention.
    Attention { layer: usize },
    /// The output projection.
    AttentionOutput { layer: usize, matrix: Matrix },
    /// Gate and up projections and the activation.
    GateUp { layer: usize, gate: Matrix, up: Matrix },
    /// The down projection.
    Down { layer: usize, matrix: Matrix },
    /// The head.
    Head { matrix: Matrix },
}

/// Elements per position that the activation buffers need: the largest over the layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Query rows.
    pub queries: usize,
    /// Key rows, and value rows.
    pub keys: usize,
    /// One worker's attention partials: `n_heads * (head_dim + 2)`.
    pub partials: usize,
    /// Feed-forward rows.
    pub activation: usize,
    /// Vocabulary.
    pub logits: usize,
    /// For each layer, the cached keys and values of one position.
    pub caches: Vec<usize>,
}

/// The dataflow of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// In order; each needs what those before it leave.
    pub operations: Vec<LoweredOperation>,
    /// What the buffers between them must hold.
    pub sizes: BufferSizes,
}

/// Lists the operations of one step of the model and checks that the stored tensors are those that they need.
///
/// # Errors
/// When a tensor is missing or has another shape than the configuration says, a size is zero or overflows, or a
/// feed-forward part is of a kind that cannot be lowered.
pub fn lower(config: &ModelConfig, weights: &Weights) -> Result<Lowered, ProgramError> {
    let stored = Stored { weights };
    let hidden = nonzero("hidden_size", config.hidden_size)?;
    let vocab = nonzero("vocab_size", config.vocab_size)?;
    stored.matrix(TensorKey::Embedding, vocab, hidden)?;
    stored.vector(TensorKey::OutputNorm, hidden)?;

    let mut sizes = BufferSizes { hidden, logits: vocab, ..BufferSizes::default() };
    let mut operations = vec![LoweredOperation::Embed];
    for (layer, layer_config) in config.layers.iter().enumerate() {
        let shape = LayerShape::new(layer, layer_config, config)?;
        stored.layer_vectors(layer, layer_config, hidden, shape)?;
        sizes.queries = sizes.queries.max(shape.queries);
        sizes.keys = sizes.keys.max(shape.keys);
        sizes.partials = sizes.partials.max(shape.partials);
        sizes.activation = sizes.activation.max(shape.feed_forward);
        sizes.caches.push(shape.cache);
        let matrix = |tensor, rows, columns| stored.matrix(TensorKey::Layer(layer, tensor), rows, columns);
        operations.extend([
            LoweredOperation::AddNormalize { layer, feed_forward: false },
            LoweredOperation::QueryKeyValue {
                layer,
                matrices: [
                    matrix(LayerTensor::Query, shape.queries, hidden)?,
                    matrix(LayerTensor::Key, shape.keys, hidden)?,
                    matrix(LayerTensor::Value, shape.keys, hidden)?,
                ],
            },
            LoweredOperation::Attention { layer },
            LoweredOperation::AttentionOutput {
                layer,
                matrix: matrix(LayerTensor::AttentionOutput, hidden, shape.queries)?,
            },
            LoweredOperation::AddNormalize { layer, feed_forward: true },
            LoweredOperation::GateUp {
                layer,
                gate: matrix(LayerTensor::Gate, shape.feed_forward, hidden)?,
                up: matrix(LayerTensor::Up, shape.feed_forward, hidden)?,
            },
            LoweredOperation::Down { layer, matrix: matrix(LayerTensor::Down, hidden, shape.feed_forward)? },
        ]);
    }
    operations.extend([
        LoweredOperation::AddNormalize { layer: config.layers.len(), feed_forward: false },
        LoweredOperation::Head { matrix: stored.matrix(TensorKey::Head, vocab, hidden)? },
    ]);
    Ok(Lowered { operations, sizes })
}

fn nonzero(field: &str, value: usize) -> Result<usize, ProgramError> {
    if value == 0 {
        return Err(ProgramError::Config { field: field.to_owned(), value, problem: "must not be zero" });
    }
    Ok(value)
}

/// The sizes of one layer, checked.
#[derive(Clone, Copy)]
struct LayerShape {
    queries: usize,
    keys: usize,
    partials: usize,
    cache: usize,
    feed_forward: usize,
}

impl LayerShape {
    fn new(layer: usize, layer_config: &LayerConfig, config: &ModelConfig) -> Result<Self, ProgramError> {
        let named = |field: &str| format!("layer {layer} {field}");
        let invalid = |field: &str, value, problem| ProgramError::Config { field: named(field), value, problem };
        let LayerConfig { n_heads, n_kv_heads, head_dim, .. } = *layer_config;
        nonzero(&named("n_heads"), n_heads)?;
        nonzero(&named("n_kv_heads"), n_kv_heads)?;
        nonzero(&named("head_dim"), head_dim)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(invalid("n_kv_heads", n_kv_heads, "must divide n_heads"));
        }
        if layer_config.window == Some(0) {
            return Err(invalid("window", 0, "must not be zero"));
        }
        if let Some(rope) = layer_config.rope {
            let Some(rope) = config.ropes.get(rope) else {
                return Err(invalid("rope", rope, "there is no such rotary table"));
            };
            if rope.rotary_dim() > head_dim {
                return Err(invalid("rotary_dim", rope.rotary_dim(), "is larger than head_dim"));
            }
        }
        let feed_forward = match layer_config.feed_forward {
            FeedForward::Dense { size, .. } => nonzero(&named("feed-forward size"), size)?,
            _ => return Err(ProgramError::UnsupportedFeedForward { layer }),
        };
        // Partials are the largest product; when they fit, the others do.
        let partials = head_dim.checked_add(2).and_then(|n| n.checked_mul(n_heads)).and_then(|n| n.checked_mul(2));
        let Some(partials) = partials else {
            return Err(invalid("head_dim", head_dim, "times n_heads overflows"));
        };
        Ok(Self {
            queries: n_heads * head_dim,
            keys: n_kv_heads * head_dim,
            partials: partials / 2,
            cache: 2 * n_kv_heads * head_dim,
            feed_forward,
        })
    }
}

/// The stored tensors, looked up by what the configuration expects.
struct Stored<'a> {
    weights: &'a Weights,
}

impl Stored<'_> {
    fn matrix(&self, tensor: TensorKey, rows: usize, columns: usize) -> Result<Matrix, ProgramError> {
        let view = self.weights.get(tensor).ok_or(ProgramError::MissingTensor { key: tensor })?;
        let found = (view.rows(), view.columns());
        if found != (rows, columns) {
            return Err(ProgramError::Shape { key: tensor, expected: (rows, columns), found });
        }
        Ok(Matrix { tensor, dtype: view.dtype(), rows, columns })
    }

    fn vector(&self, tensor: TensorKey, elements: usize) -> Result<(), ProgramError> {
        self.matrix(tensor, 1, elements).map(|_| ())
    }

    /// Norms that must be there, and biases that may be.
    fn layer_vectors(
        &self,
        layer: usize,
        config: &LayerConfig,
        hidden: usize,
        shape: LayerShape,
    ) -> Result<(), ProgramError> {
        let vectors = [
            (LayerTensor::AttentionNorm, hidden, true),
            (LayerTensor::FeedForwardNorm, hidden, true),
            (LayerTensor::PostAttentionNorm, hidden, config.post_norms),
            (LayerTensor::PostFeedForwardNorm, hidden, config.post_norms),
            (LayerTensor::QueryNorm, config.head_dim, config.qk_norm),
            (LayerTensor::KeyNorm, config.head_dim, config.qk_norm),
            (LayerTensor::QueryBias, shape.queries, false),
            (LayerTensor::KeyBias, shape.keys, false),
            (LayerTensor::ValueBias, shape.keys, false),
            (LayerTensor::AttentionOutputBias, hidden, false),
            (LayerTensor::GateBias, shape.feed_forward, false),
            (LayerTensor::UpBias, shape.feed_forward, false),
            (LayerTensor::DownBias, hidden, false),
        ];
        for (tensor, elements, required) in vectors {
            let key = TensorKey::Layer(layer, tensor);
            if required || self.weights.get(key).is_some() {
                self.vector(key, elements)?;
            }
        }
        Ok(())
    }
}
