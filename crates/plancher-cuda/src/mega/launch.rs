//! The megakernel made ready for a model on a device, and its launches.

use std::sync::Arc;
use std::task::Poll;

use plancher_program::gpu::{self, CONSUMERS, Plan, Target};

use super::control::Control;
use super::kernel::{MEGA, constants};
use super::memory::{self, Biases, Memory};
use super::parameters::{MOST_END_TOKENS, Mode, Parameters};
use super::trace::{StepTrace, buffer_words};
use super::verdict::Verdict;
use crate::{
    Arguments, CudaError, Device, DeviceBuffer, DeviceWeights, Element, Kernel, KvCache, Launch, Loader, Result,
};

/// Threads of a block: consumers, finalizer, producer.
const THREADS: u32 = (CONSUMERS as u32 + 2) * 32;
/// Memory that must stay free beside the second copy of the weights: for whatever libraries allocate while they run.
const MARGIN: u64 = 512 << 20;
/// The oldest architecture that the kernel is written for.
const OLDEST: u32 = 80;

/// How the megakernel is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MegaOptions {
    /// Tokens of a launch. The host's part of a launch takes some ten microseconds.
    pub tokens_per_launch: usize,
    /// Polls of a word before a wait gives up. A poll takes about a microsecond where the device is busy, and is only
    /// counted while the process has the device: sharing it with another process does not wear it out.
    pub patience: u32,
}

impl Default for MegaOptions {
    /// 256 tokens; some ten seconds of waiting.
    fn default() -> Self {
        Self { tokens_per_launch: 256, patience: 16 << 20 }
    }
}

/// What a launch works on besides weights and cache, as addresses on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// f32 `(vocab_size)`.
    pub(crate) logits: u64,
    /// The first sequence's settings and state.
    pub(crate) sampling: u64,
    /// u32: the token to append next.
    pub(crate) tokens: u64,
    /// u32: where it goes.
    pub(crate) positions: u64,
}

/// The kernel compiled with `TRACE` set, and the buffer in which its launches leave their marks. What is measured is the
/// other one, which knows nothing of this.
#[derive(Debug)]
struct Tracer {
    kernel: Kernel,
    buffer: DeviceBuffer<u64>,
}

/// The kernel, and all that only it needs.
#[derive(Debug)]
pub(crate) struct Mega {
    device: Device,
    kernel: Kernel,
    tracer: Option<Tracer>,
    launch: Launch,
    plan: Arc<Plan>,
    verdict: Verdict,
    memory: Memory,
    control: Control,
    parameters: Parameters,
    options: MegaOptions,
    /// Read by address.
    weights: Arc<DeviceWeights>,
}

impl Mega {
    /// Plans, packs and compiles for sequence 0 of `cache`, which must outlive this.
    ///
    /// # Errors
    /// If the model, the device or its memory does not allow it: the message is the reason.
    pub(crate) fn new(
        loader: &mut Loader,
        weights: &Arc<DeviceWeights>,
        cache: &KvCache,
        operands: Operands,
        options: MegaOptions,
    ) -> Result<Self> {
        let device = loader.device().clone();
        let plan = Arc::new(plan(&device, weights, cache.positions())?);
        let verdict = Verdict::begin(&plan);
        let wanted = memory::bytes(&plan).saturating_add(MARGIN);
        let free = device.memory()?.free;
        if wanted > free {
            return Err(CudaError::OutOfMemory { wanted, free, missing: wanted - free });
        }
        let kernel = compiled(loader, &plan, weights, false)?;
        let (workers, shared) = (plan.workers.len() as u32, plan.ring.shared_bytes() as u32);
        let memory = Memory::new(loader, weights, cache, &plan)?;
        let control = Control::new(&device)?;
        let parameters = Parameters {
            stream: memory.stream.pointer(),
            instructions: memory.instructions.pointer(),
            embedding: weights.embedding.elements.pointer(),
            norms: memory.norms.pointer(),
            biases: memory.biases.as_ref().map_or(0, DeviceBuffer::pointer),
            head_norms: memory.head_norms.as_ref().map_or(0, DeviceBuffer::pointer),
            layers: memory.layers.pointer(),
            block_table: cache.tables().pointer(),
            exchange: memory.exchange.pointer(),
            counters: memory.counters.pointer(),
            logits: operands.logits,
            sampling: operands.sampling,
            tokens: operands.tokens,
            positions: operands.positions,
            control: control.pointer(),
            embedding_stride: weights.embedding.stride as u32,
            epsilon: weights.config.norm_eps,
            embedding_scale: weights.config.embedding_scale,
            patience: options.patience,
            ..bytemuck::Zeroable::zeroed()
        };
        let launch = Launch::linear(workers, THREADS).shared(shared).cooperative();
        let weights = Arc::clone(weights);
        Ok(Self { device, kernel, tracer: None, launch, plan, verdict, memory, control, parameters, options, weights })
    }

    /// How it is run.
    pub(crate) fn options(&self) -> MegaOptions {
        self.options
    }

    /// Changes how it is run, from the next launch on.
    pub(crate) fn set_options(&mut self, options: MegaOptions) {
        self.options = options;
    }

    /// The plan that runs.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A stage of a worker's stream.
    pub(crate) fn stage(&self, worker: usize, stage: usize) -> Result<Vec<u16>> {
        let words = gpu::STAGE_BYTES / size_of::<u64>();
        let at = self.plan.stage_offset(worker, stage) / size_of::<u64>();
        let words = self.memory.stream.download_range(at, words)?;
        Ok(words.iter().flat_map(|word| [0, 16, 32, 48].map(|shift| (word >> shift) as u16)).collect())
    }

    /// Replaces an instruction.
    pub(crate) fn set_instruction(&mut self, worker: usize, index: usize, words: [u32; 4]) -> Result<()> {
        self.memory.instructions.upload((worker * self.plan.ring.instructions + index) * 4, &words)
    }

    /// Forgets the tokens and the request to stop of an earlier loop. The device must be idle.
    pub(crate) fn begin(&mut self) {
        self.control.clear();
    }

    /// Puts a launch of `steps` tokens on the stream. It ends earlier after one of `end_tokens`, of which the first 32
    /// are minded, and when it is told to.
    ///
    /// # Errors
    /// If the plan was not found safe, or the device has failed.
    ///
    /// # Safety
    /// The cache has room for `steps` more positions, and what the operands name lives until the device was waited for.
    pub(crate) unsafe fn launch(&mut self, mode: Mode, steps: usize, end_tokens: &[u32]) -> Result<()> {
        self.verdict.wait()?;
        self.memory.clear()?;
        let parameters = self.parameters_of(mode, steps, end_tokens);
        // SAFETY: the parameters are those of this plan's memory; the rest is the caller's promise.
        unsafe { self.kernel.launch(&self.launch, &Arguments::new().value(parameters)) }
    }

    /// The same, of the most likely tokens, by a kernel that leaves a trace of the last step: see [`Self::trace`]. That
    /// kernel is compiled when it is first needed.
    ///
    /// # Errors
    /// If it does not compile or does not fit, or the device has failed.
    ///
    /// # Safety
    /// As for [`Self::launch`].
    pub(crate) unsafe fn launch_traced(&mut self, loader: &mut Loader, steps: usize) -> Result<()> {
        self.verdict.wait()?;
        let parameters = self.parameters_of(Mode::Greedy, steps, &[]);
        let tracer = match &mut self.tracer {
            Some(tracer) => tracer,
            none => none.insert(Tracer {
                kernel: compiled(loader, &self.plan, &self.weights, true)?,
                buffer: DeviceBuffer::zeroed(&self.device, buffer_words(&self.plan))?,
            }),
        };
        tracer.buffer.fill_bytes(0)?;
        self.memory.clear()?;
        let parameters = Parameters { trace: tracer.buffer.pointer(), ..parameters };
        // SAFETY: as above, and the trace has the size of the plan.
        unsafe { tracer.kernel.launch(&self.launch, &Arguments::new().value(parameters)) }
    }

    /// What the last traced launch, whose last step appended `position`, left; waits for it.
    ///
    /// # Errors
    /// If there was none, its marks contradict each other, or the device has failed.
    pub(crate) fn trace(&self, position: usize) -> Result<StepTrace> {
        let none = || CudaError::Unsupported("nothing was traced".to_owned());
        StepTrace::parse(&self.tracer.as_ref().ok_or_else(none)?.buffer.download()?, &self.plan, position)
    }

    fn parameters_of(&self, mode: Mode, steps: usize, end_tokens: &[u32]) -> Parameters {
        let mut parameters = Parameters {
            steps: steps as u32,
            mode: mode.number(),
            patience: self.options.patience,
            end_count: end_tokens.len().min(MOST_END_TOKENS) as u32,
            ..self.parameters
        };
        parameters.end_tokens.iter_mut().zip(end_tokens).for_each(|(to, &token)| *to = token);
        parameters
    }

    /// Token number `number` of the loop, if it is there.
    pub(crate) fn token(&self, number: u32) -> Poll<Option<u32>> {
        self.control.token(number)
    }

    /// Ends what runs after the token that it is at, and waits for that.
    ///
    /// # Errors
    /// If the device has failed.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.control.stop();
        let outcome = self.device.synchronize();
        self.control.clear_request();
        outcome
    }

    /// What a wait that gave up reported.
    pub(crate) fn failure(&self) -> Option<CudaError> {
        self.control.record().map(|record| record.error(&self.plan))
    }
}

impl Drop for Mega {
    fn drop(&mut self) {
        // A launch may have many tokens before it. An error has nowhere to go.
        let _ = self.stop();
    }
}

/// The kernel for a plan, of which all blocks can run at once.
fn compiled(loader: &mut Loader, plan: &Plan, weights: &DeviceWeights, trace: bool) -> Result<Kernel> {
    let constants = constants(plan, weights.element, Biases::of(weights), trace);
    let kernel = loader.kernel(MEGA.source, &constants, "mega")?;
    let (workers, shared) = (plan.workers.len() as u32, plan.ring.shared_bytes() as u32);
    kernel.set_dynamic_shared_memory(shared)?;
    let multiprocessors = loader.device().properties().multiprocessors;
    let at_once = kernel.blocks_per_multiprocessor(THREADS, shared)? * multiprocessors;
    if at_once < workers {
        return Err(CudaError::Unsupported(format!(
            "{workers} blocks of the megakernel must run at once, and {at_once} fit on this GPU"
        )));
    }
    Ok(kernel)
}

/// The plan, if there can be one.
fn plan(device: &Device, weights: &DeviceWeights, positions: usize) -> Result<Plan> {
    let properties = device.properties();
    let refuse = |reason: String| Err(CudaError::Unsupported(reason));
    if device.architecture().number() < OLDEST {
        return refuse(format!("the megakernel needs sm_{OLDEST} or later, and this GPU is {}", device.architecture()));
    }
    if !properties.cooperative_launch {
        return refuse("this GPU cannot run all blocks of the megakernel at once".to_owned());
    }
    let target = Target {
        multiprocessors: properties.multiprocessors as usize,
        shared_memory: (properties.shared_memory_per_block as usize),
        element: match weights.element {
            Element::Bf16 => gpu::Element::Bf16,
            Element::F16 => gpu::Element::F16,
        },
        positions,
    };
    Plan::new(&weights.config, target).map_err(|error| CudaError::Unsupported(error.to_string()))
}
