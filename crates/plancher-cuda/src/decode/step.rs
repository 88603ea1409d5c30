//! The kernels of one step in order, ready to be launched or recorded.

use plancher_model::FeedForward;

use super::buffers::Buffers;
use super::matvec::{Input, Matvec, Operands, Output, Progress};
use super::{Shape, attention, embed, matvec};
use crate::{Arguments, CudaError, DeviceBuffer, DeviceWeights, Kernel, KvCache, Launch, Loader, Result};

/// A kernel with its launch and arguments.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) kernel: Kernel,
    pub(crate) launch: Launch,
    pub(crate) arguments: Arguments,
}

impl Prepared {
    /// Puts it on the stream.
    ///
    /// # Safety
    /// The buffers whose addresses are in the arguments must live until the device has been waited for.
    pub(crate) unsafe fn launch(&self) -> Result<()> {
        // SAFETY: the arguments are those that the kernel was specialised for; the caller keeps the memory.
        unsafe { self.kernel.launch(&self.launch, &self.arguments) }
    }
}

/// The blocks of the head, each of which leaves a candidate.
pub(super) fn head_blocks(weights: &DeviceWeights, shape: Shape) -> usize {
    Matvec::new(weights.head(), weights.element, 1, Input::Norm, Output::Logits).tiling(shape).blocks
}

/// Where the residual stream is while the step is put together: in one of two buffers, perhaps with the output of the
/// last branch still to be normed and added.
struct Residual<'a> {
    buffers: &'a Buffers,
    current: usize,
    pending_norm: Option<&'a DeviceBuffer<f32>>,
}

impl Residual<'_> {
    fn pointer(&self) -> u64 {
        self.buffers.hidden[self.current].pointer()
    }

    /// What a product that norms the residual stream reads. If a branch is pending, it is added on the way, and the sum
    /// is in the other buffer from then on.
    fn read(&mut self, norm: &DeviceBuffer<f32>, epsilon: f32) -> (Input, Operands) {
        let mut operands = Operands { x: self.pointer(), norm: norm.pointer(), epsilon, ..Operands::default() };
        let Some(post_norm) = self.pending_norm.take() else { return (Input::Norm, operands) };
        self.current ^= 1;
        operands.delta = self.buffers.delta.pointer();
        operands.post_norm = post_norm.pointer();
        operands.sum = self.pointer();
        (Input::PostNorm, operands)
    }
}

/// Everything that a step is put together from.
pub(super) struct Parts<'a> {
    pub(super) weights: &'a DeviceWeights,
    pub(super) buffers: &'a Buffers,
    pub(super) cache: &'a KvCache,
    pub(super) shape: Shape,
}

/// The kernels from the tokens to the logits of `batch` sequences.
pub(super) fn prepare(loader: &mut Loader, parts: &Parts<'_>, batch: usize) -> Result<Vec<Prepared>> {
    let Parts { weights, buffers, cache, shape } = *parts;
    let (config, element, epsilon) = (&weights.config, weights.element, weights.config.norm_eps);
    let hidden_stride = crate::padded(config.hidden_size);
    let mut residual = Residual { buffers, current: 0, pending_norm: None };
    // What the next product waits for before it starts to copy.
    let mut before = Progress::default();
    let mut step = vec![embed::prepare(loader, weights, buffers, batch)?];

    for (index, (layer, w)) in config.layers.iter().zip(&weights.layers).enumerate() {
        let (input, operands) = residual.read(&w.attention_norm, epsilon);
        let query_key_value = buffers.query_key_value.pointer();
        let product = Matvec::new(&w.query_key_value, element, batch, input, Output::Store);
        let operands =
            Operands { out: query_key_value, out_stride: w.query_key_value.rows, previous: before, ..operands };
        let bias = w.query_key_value_bias.as_ref();
        step.push(matvec::prepare(loader, shape, product, &w.query_key_value, bias, operands)?);

        let rope = layer.rope.map(|rope| weights.ropes.get(rope).ok_or_else(|| no_rope(rope))).transpose()?;
        let operands = attention::Operands::of(buffers, w, epsilon);
        step.push(attention::prepare(loader, shape, element, batch, layer, w, rope, (cache, index), operands)?);

        // Behind a branch: added to the residual stream at once, or kept until the next norm.
        let branch = |residual: &Residual<'_>, post_norm: Option<&DeviceBuffer<f32>>| match post_norm {
            None => (Output::Add, residual.pointer()),
            Some(_) => (Output::Store, buffers.delta.pointer()),
        };
        let post_norm = w.post_attention_norm.as_ref();
        let (output, out) = branch(&residual, post_norm);
        let product = Matvec::new(&w.attention_output, element, batch, Input::Elements, output);
        let operands =
            Operands { out, out_stride: hidden_stride, x: buffers.attended.pointer(), ..Operands::default() };
        let bias = w.attention_output_bias.as_ref();
        step.push(matvec::prepare(loader, shape, product, &w.attention_output, bias, operands)?);
        residual.pending_norm = post_norm;

        let FeedForward::Dense { activation, .. } = layer.feed_forward else {
            return Err(CudaError::Unsupported(format!("layer {index} has a feed-forward part that is not dense")));
        };
        let (input, operands) = residual.read(&w.feed_forward_norm, epsilon);
        let product = Matvec::new(&w.gate_up, element, batch, input, Output::Gated(activation));
        let progress = buffers.progress.pointer_at(2 * index);
        before = Progress::of(progress, product.tiling(shape));
        let operands = Operands { out: buffers.gated.pointer(), out_stride: w.down.stride, progress, ..operands };
        step.push(matvec::prepare(loader, shape, product, &w.gate_up, w.gate_up_bias.as_ref(), operands)?);

        let post_norm = w.post_feed_forward_norm.as_ref();
        let (output, out) = branch(&residual, post_norm);
        let product = Matvec::new(&w.down, element, batch, Input::Elements, output);
        let progress = buffers.progress.pointer_at(2 * index + 1);
        let x = buffers.gated.pointer();
        let operands =
            Operands { out, out_stride: hidden_stride, x, progress, previous: before, ..Operands::default() };
        before = Progress::of(progress, product.tiling(shape));
        step.push(matvec::prepare(loader, shape, product, &w.down, w.down_bias.as_ref(), operands)?);
        residual.pending_norm = post_norm;
    }

    let (input, operands) = residual.read(&weights.output_norm, epsilon);
    let head = weights.head();
    let operands = Operands {
        out: buffers.logits.pointer(),
        out_stride: head.rows,
        candidates: buffers.candidates.pointer(),
        previous: before,
        ..operands
    };
    let product = Matvec::new(head, element, batch, input, Output::Logits);
    step.push(matvec::prepare(loader, shape, product, head, None, operands)?);
    Ok(step)
}

fn no_rope(rope: usize) -> CudaError {
    CudaError::Unsupported(format!("there is no rotary table {rope}"))
}
