//! Prefill: many positions of one sequence at a time, appended to the paged cache. Chunk by chunk, layer by layer: matrix
//! products ([`Matmul`]), our own attention, and what lies between.

mod attention;
mod buffers;
pub(crate) mod elementwise;
pub(crate) mod plan;

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use plancher_model::ModelConfig;

pub(crate) use self::attention::FAMILY as ATTENTION_FAMILY;
use self::buffers::Buffers;
pub(crate) use self::elementwise::FAMILY as ELEMENTWISE_FAMILY;
use self::elementwise::NormalizeInput;
use self::plan::{Branch, Plan};
use crate::{
    Compiler, CudaError, Device, DeviceBuffer, DeviceWeights, KvCache, Loader, Matmul, MatmulChoice, Result, padded,
};

/// Positions of a chunk unless the caller says otherwise: enough that every product runs at the tensor cores' rate.
pub const DEFAULT_CHUNK: usize = 2048;

/// Where a chunk is appended.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The address of the sequence's block numbers.
    block_table: CUdeviceptr,
    /// Position of the chunk's first token.
    position: usize,
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefillLogits {
    /// Of the last position; they also stay on the device ([`Prefill::last_logits`]).
    Last,
    /// Of every position.
    All,
}

/// What came of a prefill.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefilled {
    /// Tokens that were appended: all, unless the caller stopped it.
    pub tokens: usize,
    /// On the host: `(vocab_size)`, or `(tokens, vocab_size)`.
    pub logits: Vec<f32>,
}

/// The kernels and buffers of prefill for one model.
#[derive(Debug)]
pub struct Prefill {
    device: Device,
    weights: Arc<DeviceWeights>,
    plan: Plan,
    buffers: Buffers,
    matmul: Matmul,
    chunk: usize,
}

impl Prefill {
    /// Compiles and loads the kernels and allocates the buffers for chunks of up to `chunk` positions.
    ///
    /// # Errors
    /// If a kernel does not compile, memory is short, or the device fails.
    pub fn new(
        device: &Device,
        compiler: &Compiler,
        weights: Arc<DeviceWeights>,
        chunk: usize,
        choice: MatmulChoice,
    ) -> Result<Self> {
        let chunk = chunk.max(1);
        let limit = largest_chunk(weights.config());
        if chunk > limit {
            return Err(CudaError::Range { what: "positions of a chunk", value: chunk as u64, limit: limit as u64 });
        }
        let mut loader = Loader::new(device, compiler);
        let plan = Plan::new(&mut loader, &weights)?;
        let buffers = Buffers::new(device, &weights, chunk, plan.has_delta)?;
        let matmul = Matmul::new(device, compiler, choice)?;
        Ok(Self { device: device.clone(), weights, plan, buffers, matmul, chunk })
    }

    /// Positions of a chunk.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Bytes of the buffers on the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// What multiplies.
    #[must_use]
    pub fn matmul(&mut self) -> &mut Matmul {
        &mut self.matmul
    }

    /// The logits of the last position of the last [`Prefill::run`] with [`PrefillLogits::Last`]: the first
    /// `vocab_size` numbers.
    #[must_use]
    pub fn last_logits(&self) -> &DeviceBuffer<f32> {
        &self.buffers.logits
    }

    /// Writes `tokens` to `sequence` of the cache, the first at `position`. After each chunk `progress` is told how many
    /// are done and returns false to stop there. The cache gets the blocks that are needed.
    ///
    /// # Errors
    /// If there are no tokens, one is not below the vocabulary's size, the rotary tables do not cover a position, the
    /// cache is another model's or has too few blocks left, the logits are not finite (f16 does not hold the model's
    /// activations), or the device fails.
    pub fn run(
        &mut self,
        cache: &mut KvCache,
        sequence: usize,
        position: usize,
        tokens: &[u32],
        logits: PrefillLogits,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Prefilled> {
        check(&self.weights, cache, sequence, position, tokens)?;
        cache.reserve(sequence, position + tokens.len())?;
        let block_table = cache.tables().pointer_at(sequence * cache.table_stride());
        let mut done = 0;
        let mut all = Vec::new();
        for chunk in tokens.chunks(self.chunk) {
            let place = Place { block_table, position: position + done };
            self.buffers.tokens.upload(0, chunk)?;
            // SAFETY: the tokens are in the vocabulary and the cache has room, both checked above.
            unsafe { self.layers(cache, place, chunk.len())? };
            done += chunk.len();
            if logits == PrefillLogits::All {
                for first in (0..chunk.len()).step_by(self.buffers.logit_rows) {
                    let rows = self.buffers.logit_rows.min(chunk.len() - first);
                    // SAFETY: the rows are in the residual, each used once.
                    all.extend(unsafe { self.head(first, rows)? });
                }
            }
            let is_last = done == tokens.len();
            if !is_last {
                self.device.synchronize()?;
            }
            let stop = !progress(done);
            if (is_last || stop) && logits == PrefillLogits::Last {
                // SAFETY: the last row is in the residual.
                all = unsafe { self.head(chunk.len() - 1, 1)? };
            }
            if stop {
                break;
            }
        }
        Ok(Prefilled { tokens: done, logits: all })
    }

    /// All layers for the first `rows` tokens of the buffer. The last branch may be left in `delta`.
    ///
    /// # Safety
    /// The tokens are in the vocabulary, and the cache is the model's and has room.
    unsafe fn layers(&mut self, cache: &KvCache, place: Place, rows: usize) -> Result<()> {
        let (buffers, weights) = (&self.buffers, &*self.weights);
        // SAFETY: every buffer has room for a chunk of rows of every layer.
        unsafe {
            let embedding = &weights.embedding.elements;
            self.plan.embed.prepare(buffers.residual.pointer(), embedding, &buffers.tokens, rows).launch()?;
            let step = Step { weights, buffers, rows };
            let mut before = Branch::NONE;
            let layers = self.plan.layers.iter().zip(&weights.layers).zip(&weights.config.layers);
            for (index, ((plan, own), config)) in layers.enumerate() {
                let cache = cache.layer(index).pointer();
                step.normalize(&plan.attention_norm, &before, &own.attention_norm)?;
                let rope = config.rope.and_then(|rope| weights.ropes.get(rope));
                let projections = buffers.projections.pointer();
                self.matmul.multiply(
                    &plan.query_key_value,
                    rows,
                    buffers.normed.pointer(),
                    own.query_key_value.elements.pointer(),
                    projections,
                )?;
                plan.append.launch(projections, cache, place, rope, own, rows)?;
                plan.attention.launch(buffers.attended.pointer(), projections, cache, place, rows)?;
                let branch = Branch::attention(own);
                self.matmul.multiply(
                    &plan.attention_output,
                    rows,
                    buffers.attended.pointer(),
                    own.attention_output.elements.pointer(),
                    step.target(&branch),
                )?;
                step.normalize(&plan.feed_forward_norm, &branch, &own.feed_forward_norm)?;
                self.matmul.multiply(
                    &plan.gate_up,
                    rows,
                    buffers.normed.pointer(),
                    own.gate_up.elements.pointer(),
                    buffers.gate_up.pointer(),
                )?;
                let activated = buffers.activated.pointer();
                plan.activate.prepare(activated, buffers.gate_up.pointer(), own, rows).launch()?;
                before = Branch::feed_forward(own);
                self.matmul.multiply(
                    &plan.down,
                    rows,
                    buffers.activated.pointer(),
                    own.down.elements.pointer(),
                    step.target(&before),
                )?;
            }
        }
        Ok(())
    }

    /// The logits of rows `first..first + rows` of the chunk, `(rows, vocab_size)`.
    ///
    /// # Safety
    /// The rows went through [`Prefill::layers`], and through this at most once.
    unsafe fn head(&mut self, first: usize, rows: usize) -> Result<Vec<f32>> {
        let (buffers, weights) = (&self.buffers, &*self.weights);
        let (hidden, vocab, stride) = (weights.config.hidden_size, weights.config.vocab_size, buffers.logit_stride);
        let before = weights.layers.last().map_or(Branch::NONE, Branch::feed_forward);
        let input = NormalizeInput {
            residual: buffers.residual.pointer_at(first * hidden),
            delta: if before.is_left() { buffers.delta.pointer_at(first * hidden) } else { 0 },
            bias: before.bias(),
            post_norm: before.post_norm(),
            weight: &weights.output_norm,
            epsilon: weights.config.norm_eps,
        };
        // SAFETY: `rows` is at most what the logits have room for, and the input has been computed.
        unsafe {
            self.plan.output_norm.prepare(buffers.normed.pointer(), &input, rows).launch()?;
            self.matmul.multiply(
                &self.plan.head,
                rows,
                buffers.normed.pointer(),
                weights.head().elements.pointer(),
                buffers.logits.pointer(),
            )?;
        }
        let mut logits = buffers.logits.download_range(0, (rows - 1) * stride + vocab)?;
        if stride != vocab {
            logits = logits.chunks(stride).flat_map(|row| &row[..vocab]).copied().collect();
        }
        if !logits.iter().all(|logit| logit.is_finite()) {
            return Err(CudaError::Unsupported(format!(
                "the logits are not finite: some activation is too large for the element type `{}`",
                weights.element
            )));
        }
        Ok(logits)
    }
}

/// A chunk's way through the layers.
struct Step<'a> {
    weights: &'a DeviceWeights,
    buffers: &'a Buffers,
    rows: usize,
}

impl Step<'_> {
    /// Where a branch's last product writes.
    fn target(&self, branch: &Branch<'_>) -> CUdeviceptr {
        if branch.is_left() { self.buffers.delta.pointer() } else { self.buffers.residual.pointer() }
    }

    /// # Safety
    /// The kernel is the plan's for this place.
    unsafe fn normalize(
        &self,
        kernel: &elementwise::Normalize,
        before: &Branch<'_>,
        weight: &DeviceBuffer<f32>,
    ) -> Result<()> {
        let input = NormalizeInput {
            residual: self.buffers.residual.pointer(),
            delta: if before.is_left() { self.buffers.delta.pointer() } else { 0 },
            bias: before.bias(),
            post_norm: before.post_norm(),
            weight,
            epsilon: self.weights.config.norm_eps,
        };
        // SAFETY: the buffers have room for the rows of a chunk.
        unsafe { kernel.prepare(self.buffers.normed.pointer(), &input, self.rows).launch() }
    }
}

/// Positions of the largest chunk: grids have 65535 rows of blocks, and kernels count pieces of rows in 32 bits.
fn largest_chunk(config: &ModelConfig) -> usize {
    let widest = config.layers.iter().map(|layer| padded(layer.feed_forward_rows())).max().unwrap_or(1);
    (i32::MAX as usize / widest).min(1 << 16)
}

/// Everything that a caller can get wrong.
fn check(weights: &DeviceWeights, cache: &KvCache, sequence: usize, position: usize, tokens: &[u32]) -> Result<()> {
    let range = |what, value: usize, limit: usize| {
        if value <= limit {
            return Ok(());
        }
        Err(CudaError::Range { what, value: value as u64, limit: limit as u64 })
    };
    let Some(&largest) = tokens.iter().max() else {
        return Err(CudaError::Unsupported("a prefill of no tokens".to_owned()));
    };
    range("token", largest as usize, weights.config.vocab_size - 1)?;
    let end = position.saturating_add(tokens.len());
    range("positions of a sequence", end, weights.positions().min(i32::MAX as usize))?;
    range("sequence", sequence, cache.sequences() - 1)?;
    if !cache.is_for(&weights.config) {
        return Err(CudaError::Unsupported("the cache of keys and values is that of another model".to_owned()));
    }
    Ok(())
}
