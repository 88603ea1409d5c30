//! A step of more sequences than the matrix-vector kernel takes: matrix products as in prefill ([`Matmul`]), decode's own
//! attention and choice. The products' order of additions is the library's, so that a sequence's bits may depend on how
//! many others are in the step.

use plancher_model::FeedForward;

use super::buffers::Buffers;
use super::step::Parts;
use super::{Prepared, attention};
use crate::prefill::elementwise::{Activate, AddBias, Embed, Normalize, NormalizeInput};
use crate::prefill::plan::Branch;
use crate::{
    Compiler, CudaError, Device, DeviceBuffer, DeviceMatrix, DeviceWeights, Loader, Matmul, MatmulChoice, Output,
    Product, Result, padded,
};

/// The most sequences of a step.
pub(super) const MOST_SEQUENCES: usize = 64;

/// What a wide step needs beside the buffers of a narrow one.
#[derive(Debug)]
pub(super) struct Wide {
    matmul: Matmul,
    /// Elements `(sequences, padded hidden)`: the input of projections.
    normed: DeviceBuffer<u16>,
    /// f32 `(sequences, hidden)`: a branch that the next norm adds. The narrow step's own keeps zeros between its rows.
    delta: DeviceBuffer<f32>,
    /// Elements `(sequences, 2 * feed-forward)`.
    gate_up: DeviceBuffer<u16>,
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Work {
    /// A kernel of ours.
    Kernel(Prepared),
    /// A product of so many rows, with the addresses of its input, weights and output.
    Product { product: Product, rows: usize, x: u64, weight: u64, out: u64 },
}

impl Wide {
    pub(super) fn new(device: &Device, compiler: &Compiler, weights: &DeviceWeights, sequences: usize) -> Result<Self> {
        let config = &weights.config;
        if !config.vocab_size.is_multiple_of(4) {
            return Err(CudaError::Unsupported(format!(
                "a step of {sequences} sequences needs a vocabulary of a multiple of 4, and it has {}",
                config.vocab_size
            )));
        }
        let gate_up = config.layers.iter().map(|layer| 2 * layer.feed_forward_rows()).max().unwrap_or(0);
        Ok(Self {
            matmul: Matmul::new(device, compiler, MatmulChoice::Auto)?,
            normed: DeviceBuffer::zeroed(device, sequences * padded(config.hidden_size))?,
            delta: DeviceBuffer::zeroed(device, sequences * config.hidden_size)?,
            gate_up: DeviceBuffer::zeroed(device, sequences * gate_up)?,
        })
    }

    /// The step of `batch` sequences from tokens to logits. Of `buffers`, the residual stream is used with rows
    /// of `hidden_size` numbers.
    pub(super) fn prepare(&self, loader: &mut Loader, parts: &Parts<'_>, batch: usize) -> Result<Vec<Work>> {
        let Parts { weights, buffers, cache, shape } = *parts;
        let (config, element, epsilon) = (&weights.config, weights.element, weights.config.norm_eps);
        let rows = Rows { wide: self, weights, buffers, batch };
        let embedding = &weights.embedding;
        let embed = Embed::new(loader, element, config.hidden_size, embedding.stride, config.embedding_scale)?;
        let embed = embed.prepare(buffers.hidden[0].pointer(), &embedding.elements, &buffers.tokens, batch);
        let mut step = vec![Work::Kernel(embed)];
        let mut before = Branch::NONE;
        for (index, (layer, w)) in config.layers.iter().zip(&weights.layers).enumerate() {
            step.push(rows.normalize(loader, before, &w.attention_norm)?);
            let query_key_value = buffers.query_key_value.pointer();
            let (normed, stride) = (self.normed.pointer(), w.query_key_value.rows);
            step.push(rows.product(&w.query_key_value, normed, query_key_value, stride, Output::F32));
            if let Some(bias) = &w.query_key_value_bias {
                step.push(Work::Kernel(AddBias::new(loader, stride)?.prepare(query_key_value, bias, batch)));
            }
            let no_rope = || CudaError::Unsupported(format!("layer {index} has no rotary table"));
            let rope = layer.rope.map(|rope| weights.ropes.get(rope).ok_or_else(no_rope)).transpose()?;
            let operands = attention::Operands::of(buffers, w, epsilon);
            let attention =
                attention::prepare(loader, shape, element, batch, layer, w, rope, (cache, index), operands)?;
            step.push(Work::Kernel(attention));
            before = Branch::attention(w);
            step.push(rows.branch(&w.attention_output, buffers.attended.pointer(), &before));

            let FeedForward::Dense { size, activation } = layer.feed_forward else {
                return Err(CudaError::Unsupported(format!("layer {index} has a feed-forward part that is not dense")));
            };
            step.push(rows.normalize(loader, before, &w.feed_forward_norm)?);
            step.push(rows.product(&w.gate_up, normed, self.gate_up.pointer(), 2 * size, Output::Elements));
            let activate = Activate::new(loader, element, size, activation, w)?;
            let activate = activate.prepare(buffers.gated.pointer(), self.gate_up.pointer(), w, batch);
            step.push(Work::Kernel(activate));
            before = Branch::feed_forward(w);
            step.push(rows.branch(&w.down, buffers.gated.pointer(), &before));
        }
        step.push(rows.normalize(loader, before, &weights.output_norm)?);
        let (head, logits) = (weights.head(), buffers.logits.pointer());
        step.push(rows.product(head, self.normed.pointer(), logits, head.rows, Output::F32));
        Ok(step)
    }

    /// Does the products of a step once, so that their kernels are loaded before the step is recorded. What they write is
    /// overwritten by the next step.
    ///
    /// # Safety
    /// As for [`Work::launch`].
    pub(super) unsafe fn warm_up(&mut self, step: &[Work]) -> Result<()> {
        let mut done = Vec::new();
        for work in step {
            if let Work::Product { product, .. } = work
                && !done.contains(product)
            {
                // SAFETY: as the caller promises.
                unsafe { work.launch(self)? };
                done.push(*product);
            }
        }
        Ok(())
    }
}

impl Work {
    /// Puts it on the stream.
    ///
    /// # Safety
    /// The buffers whose addresses are in it must live until the device has been waited for.
    pub(super) unsafe fn launch(&self, wide: &mut Wide) -> Result<()> {
        // SAFETY: the shapes are those that the step was prepared for; the caller keeps the memory.
        unsafe {
            match self {
                Self::Kernel(prepared) => prepared.launch(),
                Self::Product { product, rows, x, weight, out } => {
                    wide.matmul.multiply(product, *rows, *x, *weight, *out)
                }
            }
        }
    }
}

/// What the parts of a step have in common.
struct Rows<'a> {
    wide: &'a Wide,
    weights: &'a DeviceWeights,
    buffers: &'a Buffers,
    batch: usize,
}

impl Rows<'_> {
    /// The norm before a product, which first adds the branch before if that is left to it.
    fn normalize(&self, loader: &mut Loader, before: Branch<'_>, weight: &DeviceBuffer<f32>) -> Result<Work> {
        let shape = before.next_norm(self.weights.config.hidden_size);
        let input = NormalizeInput {
            residual: self.buffers.hidden[0].pointer(),
            delta: if before.is_left() { self.wide.delta.pointer() } else { 0 },
            bias: before.bias(),
            post_norm: before.post_norm(),
            weight,
            epsilon: self.weights.config.norm_eps,
        };
        let kernel = Normalize::new(loader, self.weights.element, shape)?;
        Ok(Work::Kernel(kernel.prepare(self.wide.normed.pointer(), &input, self.batch)))
    }

    fn product(&self, matrix: &DeviceMatrix, x: u64, out: u64, out_stride: usize, output: Output) -> Work {
        let product =
            Product { element: self.weights.element, rows: matrix.rows, columns: matrix.stride, out_stride, output };
        Work::Product { product, rows: self.batch, x, weight: matrix.elements.pointer(), out }
    }

    /// The last product of a branch: into the residual stream, or to where the next norm finds it.
    fn branch(&self, matrix: &DeviceMatrix, x: u64, branch: &Branch<'_>) -> Work {
        let out = if branch.is_left() { &self.wide.delta } else { &self.buffers.hidden[0] };
        self.product(matrix, x, out.pointer(), self.weights.config.hidden_size, branch.output())
    }
}
