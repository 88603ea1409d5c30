//! What each operation computes for one worker.

use plancher_model::{FeedForward, LayerConfig, TensorKey};

use super::state::Step;
use crate::footprint::product_of;
use crate::math::{SoftmaxState, activate, add, add_scaled, attend, dot, rms_norm, rms_norm_in_place, rotate, scale};
use crate::{BufferRole, Operation, Phase, Segment};

impl Step<'_> {
    pub(super) fn compute(&mut self, worker: usize, operation: &Operation) {
        let segments = &self.program.workers[worker].segments[operation.segments()];
        match *operation {
            Operation::Embed => self.embed(worker),
            Operation::AddNormalize { layer, feed_forward } => self.add_normalize(worker, layer, feed_forward),
            Operation::Append { layer } => self.append_kept(worker, layer),
            Operation::Attention { layer } => match self.program.target.phase {
                Phase::Decode => self.attention_partials(worker, layer),
                Phase::Prefill => self.attention_units(worker, layer),
            },
            Operation::AttentionOutput { layer, .. } => {
                if self.program.target.phase == Phase::Decode && !segments.is_empty() {
                    self.combine(worker, layer);
                }
                self.product(worker, BufferRole::Attention, segments);
            }
            Operation::GateUp { layer, .. } => self.gate_up(worker, layer, segments),
            Operation::QueryKeyValue { .. } | Operation::Head { .. } => {
                self.product(worker, BufferRole::Normed, segments);
            }
            Operation::Down { .. } => self.product(worker, BufferRole::Activation, segments),
        }
    }

    fn embed(&mut self, worker: usize) {
        let Some(view) = self.weights.get(TensorKey::Embedding) else {
            unreachable!("lowering has seen the embedding")
        };
        let factor = self.config.embedding_scale;
        for token in self.share(worker) {
            let row = self.tokens[token] as usize;
            let hidden = self.row_mut(BufferRole::Hidden, worker, token);
            view.dequantize_row(row, hidden);
            scale(hidden, factor);
        }
    }

    fn add_normalize(&mut self, worker: usize, layer: usize, feed_forward: bool) {
        let epsilon = self.config.norm_eps;
        let vectors = self.vectors;
        for token in self.share(worker) {
            if layer > 0 || feed_forward {
                let mut delta = self.row(BufferRole::Delta, worker, token).to_vec();
                if let Some(norm) = vectors.post_norm(layer, feed_forward) {
                    rms_norm_in_place(&mut delta, norm, epsilon);
                }
                add(self.row_mut(BufferRole::Hidden, worker, token), &delta);
            }
            let hidden = self.row(BufferRole::Hidden, worker, token).to_vec();
            let normed = self.row_mut(BufferRole::Normed, worker, token);
            rms_norm(&hidden, vectors.norm(layer, feed_forward), epsilon, normed);
        }
    }

    /// Rows of a packed segment times the rows of `input`, bias added: `(tokens, rows of the segment)`.
    fn multiply(&self, worker: usize, segment: &Segment, input: BufferRole) -> Vec<f32> {
        let tile_rows = self.layout.tile_rows();
        let rows = segment.output_rows(tile_rows);
        let stream = &self.streams[worker][segment.offset..segment.offset + segment.bytes];
        let tile_bytes = segment.bytes / segment.tiles.len();
        let bias = self.vectors.bias(segment.tensor);
        let inputs: Vec<_> =
            (0..self.tokens.len()).map(|token| &self.row(input, worker, token)[..segment.columns]).collect();
        let mut weights = vec![0.0; segment.columns];
        let mut out = vec![0.0; inputs.len() * rows.len()];
        for (n, row) in rows.clone().enumerate() {
            let tile = &stream[n / tile_rows * tile_bytes..][..tile_bytes];
            self.layout.unpack_row(segment.dtype, tile, n % tile_rows, &mut weights);
            let bias = bias.map_or(0.0, |bias| bias[row]);
            for (token, x) in inputs.iter().enumerate() {
                out[token * rows.len() + n] = dot(&weights, x) + bias;
            }
        }
        out
    }

    fn store(&mut self, worker: usize, segment: &Segment, output: BufferRole, values: &[f32]) {
        let rows = segment.output_rows(self.layout.tile_rows());
        for (token, values) in values.chunks_exact(rows.len()).enumerate() {
            self.row_mut(output, worker, token)[rows.clone()].copy_from_slice(values);
        }
    }

    fn product(&mut self, worker: usize, input: BufferRole, segments: &[Segment]) {
        for segment in segments {
            let Some(output) = product_of(segment.tensor) else {
                unreachable!("the checker has seen that `{}` is a matrix of a product", segment.tensor)
            };
            let values = self.multiply(worker, segment, input);
            self.store(worker, segment, output, &values);
        }
    }

    fn gate_up(&mut self, worker: usize, layer: usize, segments: &[Segment]) {
        let FeedForward::Dense { activation, .. } = self.config.layers[layer].feed_forward else {
            unreachable!("lowering refuses other kinds")
        };
        if let [gate, up] = segments {
            let mut values = self.multiply(worker, gate, BufferRole::Normed);
            for (gate, up) in values.iter_mut().zip(self.multiply(worker, up, BufferRole::Normed)) {
                *gate = activate(activation, *gate) * up;
            }
            self.store(worker, gate, BufferRole::Activation, &values);
        }
    }

    /// Norm and rotary embedding of the heads of one row, where the layer has them.
    fn prepare_heads(&self, layer: &LayerConfig, row: &mut [f32], norm: Option<&[f32]>, position: usize) {
        for head in row.chunks_exact_mut(layer.head_dim) {
            if let Some(norm) = norm {
                rms_norm_in_place(head, norm, self.config.norm_eps);
            }
            if let Some(rope) = layer.rope {
                rotate(head, &self.config.ropes[rope], position);
            }
        }
    }

    /// The queries of a token, ready for attention.
    fn prepared_queries(&self, worker: usize, layer: usize, token: usize) -> Vec<f32> {
        let config = &self.config.layers[layer];
        let mut queries = self.row(BufferRole::Queries, worker, token)[..config.query_rows()].to_vec();
        let norm = self.vectors.layers[layer].query_norm.as_deref();
        self.prepare_heads(config, &mut queries, norm, self.position + token);
        queries
    }

    /// Appends the key and value of a token.
    fn append(&mut self, worker: usize, layer: usize, token: usize) {
        let config = &self.config.layers[layer];
        let position = self.position + token;
        let mut keys = self.row(BufferRole::Keys, worker, token)[..config.kv_rows()].to_vec();
        self.prepare_heads(config, &mut keys, self.vectors.layers[layer].key_norm.as_deref(), position);
        let values = self.row(BufferRole::Values, worker, token)[..config.kv_rows()].to_vec();
        let at = position * config.kv_rows()..(position + 1) * config.kv_rows();
        self.caches[layer].keys[at.clone()].copy_from_slice(&keys);
        self.caches[layer].values[at].copy_from_slice(&values);
    }

    fn append_kept(&mut self, worker: usize, layer: usize) {
        for token in 0..self.tokens.len() {
            if self.keeps(worker, self.position + token) {
                self.append(worker, layer, token);
                let queries = self.prepared_queries(worker, layer, token);
                self.row_mut(BufferRole::Queries, worker, token)[..queries.len()].copy_from_slice(&queries);
            }
        }
    }

    /// Attention of one prepared head over those cached positions that the token sees and `keep` admits.
    fn attend_head(
        &self,
        layer: usize,
        head: usize,
        position: usize,
        query: &[f32],
        keep: impl Fn(usize) -> bool + Clone,
        out: &mut [f32],
    ) -> SoftmaxState {
        let config = &self.config.layers[layer];
        let cache = &self.caches[layer];
        let start = head / (config.n_heads / config.n_kv_heads) * config.head_dim;
        let first = config.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let pairs = (first..=position).filter(|&p| keep(p)).map(|p| {
            let at = p * config.kv_rows() + start;
            (&cache.keys[at..at + config.head_dim], &cache.values[at..at + config.head_dim])
        });
        attend(query, pairs, config.attention_scale, &mut Vec::new(), out)
    }

    /// Decode: attention of all heads over the positions that this worker keeps.
    fn attention_partials(&mut self, worker: usize, layer: usize) {
        let config = &self.config.layers[layer];
        let position = self.position;
        if self.keeps(worker, position) {
            self.append(worker, layer, 0);
        }
        let queries = self.prepared_queries(worker, layer, 0);
        let mut partials = Vec::with_capacity(config.n_heads * (config.head_dim + 2));
        let mut sums = vec![0.0; config.head_dim];
        for (head, query) in queries.chunks_exact(config.head_dim).enumerate() {
            let keep = |p| self.keeps(worker, p);
            let state = self.attend_head(layer, head, position, query, keep, &mut sums);
            partials.extend_from_slice(&sums);
            partials.extend([state.maximum, state.sum]);
        }
        let workers = self.program.workers.len();
        let all = self.row_mut(BufferRole::Partials, worker, 0);
        let part = all.len() / workers;
        all[worker * part..][..partials.len()].copy_from_slice(&partials);
    }

    /// Decode: the attention result from all workers' partials, in the order of the workers.
    fn combine(&mut self, worker: usize, layer: usize) {
        let LayerConfig { n_heads, head_dim, .. } = self.config.layers[layer];
        let all = self.row(BufferRole::Partials, worker, 0);
        let parts = all.chunks_exact(all.len() / self.program.workers.len());
        let mut attention = vec![0.0; n_heads * head_dim];
        for (head, out) in attention.chunks_exact_mut(head_dim).enumerate() {
            let partials = parts.clone().map(|part| {
                let (sums, state) = part[head * (head_dim + 2)..][..head_dim + 2].split_at(head_dim);
                (sums, SoftmaxState { maximum: state[0], sum: state[1] })
            });
            let maximum = partials.clone().map(|(_, state)| state.maximum).fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (sums, state) in partials {
                let factor = (state.maximum - maximum).exp();
                sum += factor * state.sum;
                add_scaled(out, factor, sums);
            }
            scale(out, 1.0 / sum);
        }
        self.row_mut(BufferRole::Attention, worker, 0)[..attention.len()].copy_from_slice(&attention);
    }

    /// Prefill: attention of this worker's (key/value head, token) units.
    fn attention_units(&mut self, worker: usize, layer: usize) {
        let config = &self.config.layers[layer];
        let group = config.n_heads / config.n_kv_heads;
        let workers = self.program.workers.len();
        let mut out = vec![0.0; config.head_dim];
        for unit in (worker..config.n_kv_heads * self.tokens.len()).step_by(workers) {
            let (kv_head, token) = (unit / self.tokens.len(), unit % self.tokens.len());
            for head in kv_head * group..(kv_head + 1) * group {
                let at = head * config.head_dim..(head + 1) * config.head_dim;
                let query = &self.row(BufferRole::Queries, worker, token)[at.clone()];
                let state = self.attend_head(layer, head, self.position + token, query, |_| true, &mut out);
                scale(&mut out, 1.0 / state.sum);
                self.row_mut(BufferRole::Attention, worker, token)[at].copy_from_slice(&out);
            }
        }
    }
}
