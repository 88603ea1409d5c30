//! What `inspect` says about a model: its tensors one by one, and the sums that decoding speed follows from.

use crate::{DType, Model, Scale, Tensor, TensorKey};

/// One stored tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorFacts<'a> {
    /// What it does.
    pub key: TensorKey,
    /// Its name in the file. Parts of a fused tensor have the same name.
    pub name: &'a str,
    /// Its encoding.
    pub dtype: DType,
    /// Outputs; 1 for a vector.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Bytes of its elements and of the factors beside them.
    pub bytes: u64,
}

/// Sums over a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Elements of all stored tensors; a tied head counts once.
    pub parameters: u64,
    /// Elements that one decode step reads: all but the embedding table, of which it reads one row, unless the
    /// head is tied to it.
    pub parameters_per_token: u64,
    /// Bytes of all stored tensors.
    pub weight_bytes: u64,
    /// Bytes that one decode step reads, counted like [`ModelFacts::parameters_per_token`].
    pub weight_bytes_per_token: u64,
    /// Elements that each layer adds to the KV cache for a token: keys and values of all its heads.
    pub kv_elements_per_token: Vec<usize>,
}

impl Model {
    /// The stored tensors in the order of [`TensorKey`]: embedding, output norm, head (unless tied), layers.
    #[must_use]
    pub fn tensors(&self) -> Vec<TensorFacts<'_>> {
        let mut tensors: Vec<_> = self
            .weights
            .iter()
            .filter(|&(key, _)| !(key == TensorKey::Head && self.config.tied_embeddings))
            .map(|(key, tensor)| TensorFacts {
                key,
                name: &tensor.name,
                dtype: tensor.dtype,
                rows: tensor.rows,
                columns: tensor.columns,
                bytes: bytes(tensor),
            })
            .collect();
        tensors.sort_by_key(|tensor| tensor.key);
        tensors
    }

    /// The sums over [`Model::tensors`].
    #[must_use]
    pub fn facts(&self) -> ModelFacts {
        let tensors = self.tensors();
        let read = |tensor: &&TensorFacts<'_>| tensor.key != TensorKey::Embedding || self.config.tied_embeddings;
        let elements = |tensor: &TensorFacts<'_>| tensor.rows as u64 * tensor.columns as u64;
        ModelFacts {
            parameters: tensors.iter().map(elements).sum(),
            parameters_per_token: tensors.iter().filter(read).map(elements).sum(),
            weight_bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
            weight_bytes_per_token: tensors.iter().filter(read).map(|tensor| tensor.bytes).sum(),
            kv_elements_per_token: self.config.layers.iter().map(|layer| 2 * layer.kv_rows()).collect(),
        }
    }
}

/// Bytes of a tensor's elements and of the factors beside them, which are kept as f32.
fn bytes(tensor: &Tensor) -> u64 {
    let factors = match &tensor.scale {
        Scale::One => 0,
        Scale::Tensor(_) => 1,
        Scale::Row(values) | Scale::Block { values, .. } => values.len(),
    };
    // The tensor lies inside a mapped file, so its size is known not to overflow.
    let elements = tensor.dtype.row_bytes(tensor.columns).unwrap_or(0) as u64 * tensor.rows as u64;
    elements + 4 * factors as u64
}
