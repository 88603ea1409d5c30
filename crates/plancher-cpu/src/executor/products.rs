//! The instructions that consume weights, and those that prepare their inputs: embedding and norms.

use std::ops::Range;

use plancher_model::{Activation, FeedForward, LayerTensor, TensorKey};
use plancher_program::Phase;

use super::plan::{Piece, Step};
use super::worker::{Logits, Scratch, Worker};
use crate::kernels::{Gate, Input, SharedChunks, TILE_ROWS};
use crate::vector;

impl Worker<'_> {
    /// This worker's share of the step's positions; in decode all of them, in private buffers.
    fn share(&self) -> Range<usize> {
        let tokens = self.context.tokens.len();
        match self.context.phase {
            Phase::Decode => 0..tokens,
            Phase::Prefill => {
                let workers = self.context.plan.workers.len();
                tokens * self.index / workers..tokens * (self.index + 1) / workers
            }
        }
    }

    /// `count` rows of `columns` elements from row `first` on, of a buffer.
    ///
    /// # Safety
    /// The rows lie in the buffer, and the program gives them to this instruction for reading.
    #[expect(clippy::unused_self, reason = "ties the slice to the step")]
    pub(super) unsafe fn rows(&self, start: *const f32, first: usize, count: usize, columns: usize) -> &[f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(start.add(first * columns), count * columns) }
    }

    /// As [`Worker::rows`], for writing.
    ///
    /// # Safety
    /// The rows lie in the buffer, and the program gives them to this instruction alone.
    #[expect(clippy::unused_self, clippy::mut_from_ref, reason = "ties the slice to the step; the program guards it")]
    pub(super) unsafe fn rows_mut(&self, start: *mut f32, first: usize, count: usize, columns: usize) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start.add(first * columns), count * columns) }
    }

    pub(super) fn embed(&self) {
        let context = self.context;
        let hidden = context.config.hidden_size;
        let Some(embedding) = context.weights.get(TensorKey::Embedding) else { return };
        for t in self.share() {
            // SAFETY: row `t` of hidden is this worker's own in this instruction.
            let out = unsafe { self.rows_mut(self.own.buffers.hidden, t, 1, hidden) };
            embedding.dequantize_row(context.tokens[t] as usize, out);
            #[expect(clippy::float_cmp, reason = "one means that there is nothing to multiply by")]
            if context.config.embedding_scale != 1.0 {
                for v in &mut *out {
                    *v *= context.config.embedding_scale;
                }
            }
        }
    }

    /// The chunks of all tokens in the memory of a buffer of `columns` elements.
    fn chunks(&self, start: *mut f32, columns: usize) -> SharedChunks {
        // SAFETY: the plan made buffers large enough for either form, aligned, and zeroed.
        unsafe { SharedChunks::new(start.cast(), self.context.tokens.len(), columns) }
    }

    pub(super) fn add_normalize(&self, step: &Step, layer: usize, feed_forward: bool, scratch: &mut Scratch) {
        let (context, buffers) = (self.context, &self.own.buffers);
        let (n, eps) = (context.config.hidden_size, context.config.norm_eps);
        let norm = context.vectors.norm(layer, feed_forward);
        let post_norm = context.vectors.post_norm(layer, feed_forward);
        let chunks = self.chunks(buffers.normed, n);
        scratch.floats.resize(n, 0.0);
        for t in self.share() {
            // SAFETY: the program gives row `t` of hidden and normed to this instruction, and orders it after all
            // writes to delta.
            let (hidden, delta) =
                unsafe { (self.rows_mut(buffers.hidden, t, 1, n), self.rows(buffers.delta, t, 1, n)) };
            let normed = if step.leaves_chunks {
                &mut scratch.floats[..]
            } else {
                // SAFETY: as above.
                unsafe { self.rows_mut(buffers.normed, t, 1, n) }
            };
            context.kernels.vectorized(|| {
                if layer > 0 || feed_forward {
                    match post_norm {
                        Some(post_norm) => vector::add_normed(hidden, delta, post_norm, eps),
                        None => vector::add(hidden, delta),
                    }
                }
                vector::rms_norm(hidden, norm, eps, normed);
            });
            if step.leaves_chunks {
                // SAFETY: as above: token `t` is this instruction's.
                unsafe { context.kernels.prepare_shared(normed, chunks, t, 0) };
            }
        }
    }

    /// `out[t * stride ..][..rows of the piece] = piece · input[t] + bias`.
    ///
    /// # Safety
    /// `out` is valid at these elements for every prepared token, and the program gives them to this instruction
    /// alone.
    unsafe fn product(&self, piece: &Piece, input: &Input, out: *mut f32, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.product_of_rows(piece, 0..piece.rows.len(), input, out, stride) };
    }

    /// As [`Worker::product`] for some of the piece's rows, whole tiles from the first of `rows` on.
    ///
    /// # Safety
    /// As there, for these rows.
    unsafe fn product_of_rows(&self, piece: &Piece, rows: Range<usize>, input: &Input, out: *mut f32, stride: usize) {
        let tile_bytes = piece.bytes.len() / piece.rows.len().div_ceil(TILE_ROWS);
        let tiles = rows.start / TILE_ROWS * tile_bytes..rows.end.div_ceil(TILE_ROWS) * tile_bytes;
        let tiles = &self.stream.bytes()[piece.bytes.clone()][tiles];
        let kernels = self.context.kernels;
        // SAFETY: the caller's promise.
        unsafe { kernels.multiply(piece.dtype, tiles, rows.len(), input, out, stride) };
        if let Some(bias) = piece.bias.get(rows.clone()) {
            kernels.vectorized(|| {
                for t in 0..input.tokens() {
                    // SAFETY: the caller's promise.
                    vector::add(unsafe { std::slice::from_raw_parts_mut(out.add(t * stride), rows.len()) }, bias);
                }
            });
        }
    }

    /// Prepares rows of `start` as the input of the step's pieces.
    ///
    /// # Safety
    /// As for [`Worker::rows`].
    unsafe fn prepare(&self, step: &Step, start: *mut f32, rows: Range<usize>, input: &mut Input) {
        let columns = step.pieces[0].columns;
        if step.takes_chunks {
            // SAFETY: the instruction before has prepared them, and the program orders the two.
            return unsafe { input.share(self.chunks(start, columns)) };
        }
        // SAFETY: the caller's promise.
        let x = unsafe { self.rows(start, rows.start, rows.len(), columns) };
        self.context.kernels.prepare(x, rows.len(), columns, &step.dtypes, input);
    }

    pub(super) fn query_key_value(&self, step: &Step, scratch: &mut Scratch) {
        if step.pieces.is_empty() {
            return;
        }
        let buffers = &self.own.buffers;
        // SAFETY: the program orders this after the norms, and gives the rows of the pieces to this instruction.
        unsafe {
            self.prepare(step, buffers.normed, 0..self.context.tokens.len(), &mut scratch.input);
            for piece in &step.pieces {
                let out = match piece.tensor {
                    TensorKey::Layer(_, LayerTensor::Query) => buffers.queries,
                    TensorKey::Layer(_, LayerTensor::Key) => buffers.keys,
                    _ => buffers.values,
                };
                self.product(piece, &scratch.input, out.add(piece.rows.start), piece.matrix_rows);
            }
        }
    }

    pub(super) fn attention_output(&self, step: &Step, layer: usize, scratch: &mut Scratch) {
        if step.pieces.is_empty() {
            return;
        }
        if self.context.phase == Phase::Decode {
            self.combine_partials(layer);
        }
        self.project(step, self.own.buffers.attention, scratch);
    }

    pub(super) fn down(&self, step: &Step, scratch: &mut Scratch) {
        if !step.pieces.is_empty() {
            self.project(step, self.own.buffers.activation, scratch);
        }
    }

    fn project(&self, step: &Step, input: *mut f32, scratch: &mut Scratch) {
        // SAFETY: the program orders this after all writes to `input`, and gives the rows of the pieces to this
        // instruction.
        unsafe {
            self.prepare(step, input, 0..self.context.tokens.len(), &mut scratch.input);
            for piece in &step.pieces {
                let out = self.own.buffers.delta.add(piece.rows.start);
                self.product(piece, &scratch.input, out, piece.matrix_rows);
            }
        }
    }

    pub(super) fn gate_up(&self, step: &Step, layer: usize, scratch: &mut Scratch) {
        let [gate, up] = step.pieces.as_slice() else { return };
        let tokens = self.context.tokens.len();
        let FeedForward::Dense { activation, .. } = self.context.config.layers[layer].feed_forward else { return };
        let function = match activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        let rows = gate.rows.len();
        if step.leaves_chunks {
            return self.gate_up_in_chunks(step, function, scratch);
        }
        scratch.floats.resize(tokens * rows, 0.0);
        // SAFETY: the program orders this after the norms, and gives the rows of the pieces to this instruction.
        // Up rows go to the worker's own memory.
        unsafe {
            self.prepare(step, self.own.buffers.normed, 0..tokens, &mut scratch.input);
            let gates = self.own.buffers.activation.add(gate.rows.start);
            self.product(gate, &scratch.input, gates, gate.matrix_rows);
            self.product(up, &scratch.input, scratch.floats.as_mut_ptr(), rows);
            for t in 0..tokens {
                let out = std::slice::from_raw_parts_mut(gates.add(t * gate.matrix_rows), rows);
                self.context.kernels.gate_up(function, out, &scratch.floats[t * rows..(t + 1) * rows]);
            }
        }
    }

    /// As [`Worker::gate_up`], some rows at a time, whose result stays in the second-level cache until it is prepared
    /// as the input of what follows.
    fn gate_up_in_chunks(&self, step: &Step, function: Gate, scratch: &mut Scratch) {
        const ROWS: usize = 8 * TILE_ROWS;
        let [gate, up] = step.pieces.as_slice() else { return };
        let (kernels, tokens) = (self.context.kernels, self.context.tokens.len());
        let chunks = self.chunks(self.own.buffers.activation, gate.matrix_rows);
        scratch.floats.resize(2 * tokens * ROWS, 0.0);
        let (gates, ups) = scratch.floats.split_at_mut(tokens * ROWS);
        // SAFETY: the program orders this after the norms, and gives the rows of the pieces to this instruction. What
        // is written meanwhile is the worker's own memory, `rows` elements a token.
        unsafe {
            self.prepare(step, self.own.buffers.normed, 0..tokens, &mut scratch.input);
            for start in (0..gate.rows.len()).step_by(ROWS) {
                let rows = ROWS.min(gate.rows.len() - start);
                for (piece, out) in [(gate, &mut *gates), (up, &mut *ups)] {
                    self.product_of_rows(piece, start..start + rows, &scratch.input, out.as_mut_ptr(), rows);
                }
                for (t, (gate_row, up_row)) in
                    gates.chunks_exact_mut(rows).zip(ups.chunks_exact(rows)).take(tokens).enumerate()
                {
                    kernels.gate_up(function, gate_row, up_row);
                    kernels.prepare_shared(gate_row, chunks, t, gate.rows.start + start);
                }
            }
        }
    }

    pub(super) fn head(&self, step: &Step, scratch: &mut Scratch) {
        let tokens = self.context.tokens.len();
        let (rows, out) = match self.context.logits {
            Logits::Last(out) => (tokens - 1..tokens, out),
            Logits::All(out) => (0..tokens, out),
        };
        if step.pieces.is_empty() {
            return;
        }
        // SAFETY: the program orders this after the output norm; the caller made room for the logits asked for, and
        // the pieces' rows of them are this worker's.
        unsafe {
            self.prepare(step, self.own.buffers.normed, rows, &mut scratch.input);
            for piece in &step.pieces {
                self.product(piece, &scratch.input, out.add(piece.rows.start), piece.matrix_rows);
            }
        }
    }
}
