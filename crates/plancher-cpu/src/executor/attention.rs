//! The instructions around attention: rotary embedding, append to the cache, attention itself, and in decode the
//! combination of what the workers have gathered.

use half::f16;
use half::slice::HalfFloatSliceExt;
use plancher_model::LayerConfig;
use plancher_program::Phase;

use super::worker::{Scratch, Worker};
use crate::kv_cache::KV_CHUNK;
use crate::vector;

/// Query positions of a unit of prefill attention.
const QUERY_BLOCK: usize = 16;

impl Worker<'_> {
    fn layer(&self, layer: usize) -> &LayerConfig {
        &self.context.config.layers[layer]
    }

    /// Norms and rotates the heads of one position in place. `index` counts from the step's first position.
    fn rotate(&self, layer: usize, index: usize, heads: &mut [f32], norm: Option<&[f32]>) {
        let config = self.layer(layer);
        self.context.kernels.vectorized(|| {
            for head in heads.chunks_exact_mut(config.head_dim) {
                if let Some(norm) = norm {
                    vector::rms_norm_in_place(head, norm, self.context.config.norm_eps);
                }
                if let Some(rope) = config.rope {
                    self.context.ropes[rope].rotate(self.context.config.ropes[rope].layout, index, head);
                }
            }
        });
    }

    /// Writes keys (normed and rotated already) and values of one position, `(n_kv_heads, head_dim)`, to the cache.
    /// `halves` is working memory.
    fn store(&self, layer: usize, position: usize, keys: &[f32], values: &[f32], halves: &mut Vec<f16>) {
        let n = self.layer(layer).head_dim;
        halves.resize(keys.len() + values.len(), f16::ZERO);
        let (rounded_keys, rounded_values) = halves.split_at_mut(keys.len());
        rounded_keys.convert_from_f32_slice(keys);
        rounded_values.convert_from_f32_slice(values);
        let heads = rounded_keys.chunks_exact(n).zip(rounded_values.chunks_exact(n));
        let (chunk_index, slot) = (position / KV_CHUNK, position % KV_CHUNK);
        for (head, (keys, values)) in heads.enumerate() {
            let chunk = self.context.cache.chunk(layer, head, chunk_index);
            for (i, (&key, &value)) in keys.iter().zip(values).enumerate() {
                // SAFETY: both are inside the chunk, which only this worker touches in this instruction.
                unsafe {
                    *chunk.keys.add(i * KV_CHUNK + slot) = key;
                    *chunk.values.add(slot * n + i) = value;
                }
            }
        }
    }

    pub(super) fn append_chunk(&self, layer: usize, scratch: &mut Scratch) {
        let (context, buffers) = (self.context, &self.own.buffers);
        let config = self.layer(layer);
        let vectors = &context.vectors.layers[layer];
        for t in 0..context.tokens.len() {
            let position = context.position + t;
            if context.cache.owner(position) != self.index {
                continue;
            }
            // SAFETY: the program gives the rows of the positions that this worker keeps to this instruction.
            let (queries, keys, values) = unsafe {
                (
                    self.rows_mut(buffers.queries, t, 1, config.query_rows()),
                    self.rows_mut(buffers.keys, t, 1, config.kv_rows()),
                    self.rows(buffers.values, t, 1, config.kv_rows()),
                )
            };
            self.rotate(layer, t, queries, vectors.query_norm.as_deref());
            self.rotate(layer, t, keys, vectors.key_norm.as_deref());
            self.store(layer, position, keys, values, &mut scratch.halves);
        }
    }

    pub(super) fn decode_attention(&self, layer: usize, scratch: &mut Scratch) {
        let (context, buffers) = (self.context, &self.own.buffers);
        let config = self.layer(layer);
        let vectors = &context.vectors.layers[layer];
        let (n, position) = (config.head_dim, context.position);
        // SAFETY: the program orders this after all rows of queries, keys and values.
        let (queries, keys, values) = unsafe {
            (
                self.rows(buffers.queries, 0, 1, config.query_rows()),
                self.rows(buffers.keys, 0, 1, config.kv_rows()),
                self.rows(buffers.values, 0, 1, config.kv_rows()),
            )
        };
        if context.cache.owner(position) == self.index {
            scratch.floats.clear();
            scratch.floats.extend_from_slice(keys);
            self.rotate(layer, 0, &mut scratch.floats, vectors.key_norm.as_deref());
            self.store(layer, position, &scratch.floats, values, &mut scratch.halves);
        }
        scratch.floats.clear();
        scratch.floats.extend_from_slice(queries);
        self.rotate(layer, 0, &mut scratch.floats, vectors.query_norm.as_deref());
        for q in &mut scratch.floats {
            *q *= config.attention_scale;
        }

        let first = config.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let group = config.n_heads / config.n_kv_heads;
        let workers = context.plan.workers.len();
        let first_chunk = first / KV_CHUNK;
        let own_first = first_chunk + (self.index + workers - first_chunk % workers) % workers;
        for head in 0..config.n_kv_heads {
            let heads = head * group..(head + 1) * group;
            let state = &mut scratch.attention;
            state.start(group, n).copy_from_slice(&scratch.floats[heads.start * n..heads.end * n]);
            for chunk in (own_first..=position / KV_CHUNK).step_by(workers) {
                let base = chunk * KV_CHUNK;
                let visible = first.saturating_sub(base)..(position + 1 - base).min(KV_CHUNK);
                // SAFETY: the chunk is this worker's own.
                unsafe { state.attend(context.kernels, context.cache.chunk(layer, head, chunk), |_| visible.clone()) };
            }
            for (row, head) in heads.enumerate() {
                // SAFETY: this worker's part of the partials is its own.
                let out = unsafe {
                    let part = buffers.partials.add(self.index * buffers.partials_part);
                    self.rows_mut(part, head, 1, n + 2)
                };
                out[..n].copy_from_slice(&state.sums[row * n..(row + 1) * n]);
                out[n] = state.maxima[row];
                out[n + 1] = state.totals[row];
            }
        }
    }

    /// All workers' partials into this worker's own `attention`, in the order of the workers.
    pub(super) fn combine_partials(&self, layer: usize) {
        let buffers = &self.own.buffers;
        let config = self.layer(layer);
        let (n, workers) = (config.head_dim, self.context.plan.workers.len());
        debug_assert!(self.context.phase == Phase::Decode);
        for head in 0..config.n_heads {
            // SAFETY: the program orders this after all partials; `attention` is this worker's own.
            let (out, part) = unsafe {
                let part =
                    |worker: usize| self.rows(buffers.partials.add(worker * buffers.partials_part), head, 1, n + 2);
                (self.rows_mut(buffers.attention, head, 1, n), part)
            };
            let largest = (0..workers).map(|worker| part(worker)[n]).fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            out.fill(0.0);
            for part in (0..workers).map(part) {
                let weight = (part[n] - largest).exp();
                total += weight * part[n + 1];
                for (o, sum) in out.iter_mut().zip(&part[..n]) {
                    *o += weight * sum;
                }
            }
            for o in out {
                *o /= total;
            }
        }
    }

    pub(super) fn prefill_attention(&self, layer: usize, scratch: &mut Scratch) {
        let (context, workers) = (self.context, self.context.plan.workers.len());
        let blocks = context.tokens.len().div_ceil(QUERY_BLOCK);
        for head in 0..self.layer(layer).n_kv_heads {
            for block in (0..blocks).filter(|block| (block + head) % workers == self.index) {
                self.attend_block(layer, head, block, scratch);
            }
        }
    }

    /// One unit: the query heads of KV head `head`, for the positions of query block `block`.
    fn attend_block(&self, layer: usize, head: usize, block: usize, scratch: &mut Scratch) {
        let (context, buffers) = (self.context, &self.own.buffers);
        let config = self.layer(layer);
        let (n, group) = (config.head_dim, config.n_heads / config.n_kv_heads);
        let start = block * QUERY_BLOCK;
        let count = QUERY_BLOCK.min(context.tokens.len() - start);
        let state = &mut scratch.attention;
        let queries = state.start(count * group, n);
        for t in 0..count {
            // SAFETY: the program orders this after the append of all positions.
            let row = unsafe { self.rows(buffers.queries, start + t, 1, config.query_rows()) };
            let own = &row[head * group * n..(head + 1) * group * n];
            for (out, q) in queries[t * group * n..(t + 1) * group * n].iter_mut().zip(own) {
                *out = q * config.attention_scale;
            }
        }
        let first_visible = |position: usize| config.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let (first, last) = (context.position + start, context.position + start + count - 1);
        for chunk in first_visible(first) / KV_CHUNK..=last / KV_CHUNK {
            let base = chunk * KV_CHUNK;
            let visible = |row: usize| {
                let position = first + row / group;
                let end = (position + 1).saturating_sub(base).min(KV_CHUNK);
                first_visible(position).saturating_sub(base).min(end)..end
            };
            // SAFETY: nobody writes the cache of this layer in this instruction; appends came before.
            unsafe { state.attend(context.kernels, context.cache.chunk(layer, head, chunk), visible) };
        }
        for t in 0..count {
            for g in 0..group {
                let row = t * group + g;
                // SAFETY: this (head, position) is in this worker's unit.
                let out = unsafe {
                    let start = buffers.attention.add((start + t) * config.query_rows());
                    self.rows_mut(start, head * group + g, 1, n)
                };
                let factor = 1.0 / state.totals[row];
                for (o, sum) in out.iter_mut().zip(&state.sums[row * n..(row + 1) * n]) {
                    *o = sum * factor;
                }
            }
        }
    }
}
