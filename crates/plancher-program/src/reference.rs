//! The reference executor: plain f32, one loop per operation, no workers and no packing. Everything else is compared
//! with it, so it is written to be read.

use plancher_model::{FeedForward, LayerConfig, LayerTensor, ModelConfig, TensorKey, Weights};

use crate::math::{activate, add, attend, dot, rms_norm, rms_norm_in_place, rotate, scale};
use crate::vectors::Vectors;
use crate::{ProgramError, lower};

/// Rows of a matrix that are dequantised together, so that each input is fetched once for all of them.
const ROWS_AT_ONCE: usize = 4;

/// The keys and values of one layer, each `(positions, n_kv_heads * head_dim)`.
#[derive(Clone, Debug, Default)]
struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Runs a model on one sequence and remembers its keys and values.
#[derive(Debug)]
pub struct Reference<'a> {
    config: &'a ModelConfig,
    weights: &'a Weights,
    vectors: Vectors,
    caches: Vec<Cache>,
    position: usize,
}

impl<'a> Reference<'a> {
    /// An empty sequence.
    ///
    /// # Errors
    /// As for [`lower`].
    pub fn new(config: &'a ModelConfig, weights: &'a Weights) -> Result<Self, ProgramError> {
        lower(config, weights)?;
        let vectors = Vectors::new(config, weights)?;
        Ok(Self { config, weights, vectors, caches: vec![Cache::default(); config.layers.len()], position: 0 })
    }

    /// Positions in the cache.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Forgets every position from `position` on.
    pub fn truncate(&mut self, position: usize) {
        self.position = self.position.min(position);
        for (cache, layer) in self.caches.iter_mut().zip(&self.config.layers) {
            cache.keys.truncate(self.position * layer.kv_rows());
            cache.values.truncate(self.position * layer.kv_rows());
        }
    }

    /// Appends `tokens` and returns the logits of each, `(tokens, vocab_size)`.
    ///
    /// # Panics
    /// When a token is not below the vocabulary's size.
    pub fn prefill(&mut self, tokens: &[u32]) -> Vec<f32> {
        let hidden = self.layers(tokens);
        self.head(&hidden)
    }

    /// Appends `tokens` and returns the logits of the last one, `(vocab_size)`; none for no tokens.
    ///
    /// # Panics
    /// When a token is not below the vocabulary's size.
    pub fn prefill_last(&mut self, tokens: &[u32]) -> Vec<f32> {
        let hidden = self.layers(tokens);
        let last = hidden.len().saturating_sub(self.config.hidden_size);
        self.head(&hidden[last..])
    }

    /// Appends one token and returns its logits, `(vocab_size)`.
    ///
    /// # Panics
    /// When the token is not below the vocabulary's size.
    pub fn decode(&mut self, token: u32) -> Vec<f32> {
        self.prefill(&[token])
    }

    /// The residual stream after the last layer, `(tokens, hidden_size)`.
    fn layers(&mut self, tokens: &[u32]) -> Vec<f32> {
        let mut hidden = self.embed(tokens);
        for layer in 0..self.config.layers.len() {
            let normed = self.normalize(&hidden, self.vectors.norm(layer, false));
            let mut delta = self.attention(layer, &normed);
            self.post_normalize(&mut delta, self.vectors.post_norm(layer, true));
            add(&mut hidden, &delta);

            let normed = self.normalize(&hidden, self.vectors.norm(layer, true));
            let mut delta = self.feed_forward(layer, &normed);
            self.post_normalize(&mut delta, self.vectors.post_norm(layer + 1, false));
            add(&mut hidden, &delta);
        }
        self.position += tokens.len();
        hidden
    }

    /// `(tokens, hidden_size)`.
    fn embed(&self, tokens: &[u32]) -> Vec<f32> {
        let view = self.stored(TensorKey::Embedding);
        let mut hidden = vec![0.0; tokens.len() * self.config.hidden_size];
        for (row, &token) in hidden.chunks_exact_mut(self.config.hidden_size).zip(tokens) {
            view.dequantize_row(token as usize, row);
            scale(row, self.config.embedding_scale);
        }
        hidden
    }

    /// Logits of residual rows.
    fn head(&self, hidden: &[f32]) -> Vec<f32> {
        let normed = self.normalize(hidden, &self.vectors.output_norm);
        self.multiply(TensorKey::Head, &normed)
    }

    fn normalize(&self, rows: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; rows.len()];
        for (row, out) in rows.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
            rms_norm(row, weight, self.config.norm_eps, out);
        }
        out
    }

    fn post_normalize(&self, rows: &mut [f32], weight: Option<&[f32]>) {
        if let Some(weight) = weight {
            for row in rows.chunks_exact_mut(weight.len()) {
                rms_norm_in_place(row, weight, self.config.norm_eps);
            }
        }
    }

    /// `x (tokens, columns)` times a stored matrix, bias added: `(tokens, rows)`. Each row is dequantised once.
    fn multiply(&self, key: TensorKey, x: &[f32]) -> Vec<f32> {
        let view = self.stored(key);
        let (rows, columns) = (view.rows(), view.columns());
        let bias = self.vectors.bias(key);
        let mut weights = vec![0.0; ROWS_AT_ONCE * columns];
        let mut out = vec![0.0; x.len() / columns * rows];
        for first in (0..rows).step_by(ROWS_AT_ONCE) {
            let block = first..rows.min(first + ROWS_AT_ONCE);
            for (row, weights) in block.clone().zip(weights.chunks_exact_mut(columns)) {
                view.dequantize_row(row, weights);
            }
            for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(rows)) {
                for (row, weights) in block.clone().zip(weights.chunks_exact(columns)) {
                    out[row] = dot(weights, x) + bias.map_or(0.0, |bias| bias[row]);
                }
            }
        }
        out
    }

    fn attention(&mut self, layer: usize, normed: &[f32]) -> Vec<f32> {
        let config = &self.config.layers[layer];
        let mut queries = self.multiply(TensorKey::Layer(layer, LayerTensor::Query), normed);
        let mut keys = self.multiply(TensorKey::Layer(layer, LayerTensor::Key), normed);
        let values = self.multiply(TensorKey::Layer(layer, LayerTensor::Value), normed);
        let vectors = &self.vectors.layers[layer];
        self.prepare_heads(config, &mut queries, config.query_rows(), vectors.query_norm.as_deref());
        self.prepare_heads(config, &mut keys, config.kv_rows(), vectors.key_norm.as_deref());
        let cache = &mut self.caches[layer];
        cache.keys.extend(keys);
        cache.values.extend(values);

        let mut out = vec![0.0; queries.len()];
        let mut scores = Vec::new();
        let rows = queries.chunks_exact(config.query_rows()).zip(out.chunks_exact_mut(config.query_rows()));
        for (position, (query, out)) in (self.position..).zip(rows) {
            attend_heads(config, &self.caches[layer], position, query, out, &mut scores);
        }
        self.multiply(TensorKey::Layer(layer, LayerTensor::AttentionOutput), &out)
    }

    /// Norm (if the layer has it) and rotary embedding (if the layer has it) of every head of every row.
    fn prepare_heads(&self, config: &LayerConfig, rows: &mut [f32], row_len: usize, norm: Option<&[f32]>) {
        for (position, row) in (self.position..).zip(rows.chunks_exact_mut(row_len)) {
            for head in row.chunks_exact_mut(config.head_dim) {
                if let Some(norm) = norm {
                    rms_norm_in_place(head, norm, self.config.norm_eps);
                }
                if let Some(rope) = config.rope {
                    rotate(head, &self.config.ropes[rope], position);
                }
            }
        }
    }

    fn feed_forward(&self, layer: usize, normed: &[f32]) -> Vec<f32> {
        let FeedForward::Dense { activation, .. } = self.config.layers[layer].feed_forward else {
            unreachable!("`lower` refuses other kinds")
        };
        let mut gate = self.multiply(TensorKey::Layer(layer, LayerTensor::Gate), normed);
        let up = self.multiply(TensorKey::Layer(layer, LayerTensor::Up), normed);
        for (gate, up) in gate.iter_mut().zip(&up) {
            *gate = activate(activation, *gate) * up;
        }
        self.multiply(TensorKey::Layer(layer, LayerTensor::Down), &gate)
    }

    fn stored(&self, key: TensorKey) -> plancher_model::TensorView<'_> {
        match self.weights.get(key) {
            Some(view) => view,
            None => unreachable!("`lower` has seen `{key}`"),
        }
    }
}

/// Attention of the heads of one position over the positions that it sees.
fn attend_heads(
    config: &LayerConfig,
    cache: &Cache,
    position: usize,
    queries: &[f32],
    out: &mut [f32],
    scores: &mut Vec<f32>,
) {
    let first = config.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let group = config.n_heads / config.n_kv_heads;
    let heads = queries.chunks_exact(config.head_dim).zip(out.chunks_exact_mut(config.head_dim));
    for (head, (query, out)) in heads.enumerate() {
        let start = head / group * config.head_dim;
        let pairs = (first..=position).map(|p| {
            let at = p * config.kv_rows() + start;
            (&cache.keys[at..at + config.head_dim], &cache.values[at..at + config.head_dim])
        });
        let state = attend(query, pairs, config.attention_scale, scores, out);
        scale(out, 1.0 / state.sum);
    }
}
