//! An NVIDIA GPU as a [`Backend`]: weights on the device, prefill and decode over one paged cache, sampling there too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plancher_cuda::ceilings::Ceilings;
use plancher_cuda::{
    Compiler, CudaError, DEFAULT_CHUNK, DecodeOptions, Decoder, Device, DeviceWeights, Element, Executor, LoadOptions,
    MatmulChoice, Prefill, PrefillLogits, Sampling,
};
use plancher_floor::Format;
use plancher_model::Model;

use crate::sampling::SamplingParams;
use crate::{Backend, BackendError, BatchDecode, LogitsOf, StepTimes, Storage, Telemetry, TokenLoop};

/// A measured ceiling stands for this long: measuring takes a fraction of a second, and a benchmark asks often.
const CEILING_AGE: Duration = Duration::from_secs(2);

/// What to hold on which GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// The GPU's number in the driver's order.
    pub ordinal: usize,
    /// Positions of each sequence.
    pub context: usize,
    /// Sequences decoded together.
    pub batch: usize,
    /// What runs decode steps of one sequence.
    pub executor: Executor,
}

/// Runs a model on a GPU.
pub struct CudaBackend {
    device: Device,
    compiler: Compiler,
    weights: Arc<DeviceWeights>,
    pub(crate) decoder: Decoder,
    prefill: Prefill,
    logits: Vec<f32>,
    /// Sequences that [`BatchDecode::fill`] filled.
    filled: usize,
    ceiling: Option<(Instant, f64)>,
}

impl CudaBackend {
    /// Puts `model` on a GPU; a dummy model's matrices are made there. `progress` is told the bytes done and all of them.
    ///
    /// # Errors
    /// When there is no such GPU, no compiler, too little memory (the message says how many bytes are missing), or
    /// something in the model that the kernels do not do.
    pub fn new(model: &Model, options: CudaOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<Self, CudaError> {
        let device = Device::open(options.ordinal)?;
        let compiler = Compiler::find()?;
        compiler.check_driver()?;
        let load = LoadOptions { positions: Some(options.context), ..LoadOptions::default() };
        let weights = Arc::new(DeviceWeights::load(&device, &compiler, model, load, progress)?);
        let chunk = options.context.clamp(1, DEFAULT_CHUNK);
        let prefill = Prefill::new(&device, &compiler, Arc::clone(&weights), chunk, matmul_choice()?)?;
        let decode = DecodeOptions {
            sequences: options.batch,
            positions: options.context,
            executor: options.executor,
            ..DecodeOptions::default()
        };
        let decoder = Decoder::new(&device, &compiler, Arc::clone(&weights), decode)?;
        Ok(Self { device, compiler, weights, decoder, prefill, logits: Vec::new(), filled: 0, ceiling: None })
    }

    /// One line for the user when stored types were converted.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.weights.note()
    }

    /// Bytes of the weights on the device.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        self.weights.bytes()
    }

    /// Why the graph runs where [`Executor::Auto`] was asked for, in one line.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.decoder.refusal().map(ToString::to_string)
    }

    /// Appends `tokens` to `sequence`, and leaves the last position's logits where the token loop begins.
    fn append(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), BackendError> {
        let wanted = match logits {
            LogitsOf::Last => PrefillLogits::Last,
            LogitsOf::All => PrefillLogits::All,
        };
        self.logits = self.decoder.prefill(&mut self.prefill, sequence, tokens, wanted, progress)?.logits;
        Ok(())
    }
}

/// What multiplies in prefill: cuBLASLt where it is found, unless `PLANCHER_MATMUL` says otherwise.
fn matmul_choice() -> Result<MatmulChoice, CudaError> {
    match std::env::var("PLANCHER_MATMUL").as_deref() {
        Err(_) | Ok("" | "auto") => Ok(MatmulChoice::Auto),
        Ok("own") => Ok(MatmulChoice::Own),
        Ok("cublaslt") => Ok(MatmulChoice::CublasLt),
        Ok(other) => Err(CudaError::Unsupported(format!(
            "`PLANCHER_MATMUL` is `{other}`, and can be `auto`, `own` or `cublaslt`"
        ))),
    }
}

impl Backend for CudaBackend {
    fn vocab_size(&self) -> usize {
        self.weights.config().vocab_size
    }

    fn capacity(&self) -> usize {
        self.decoder.capacity()
    }

    fn position(&self) -> usize {
        self.decoder.position(0)
    }

    fn truncate(&mut self, position: usize) {
        self.decoder.truncate(0, position);
        if position == 0 {
            for sequence in 1..self.filled {
                self.decoder.truncate(sequence, 0);
            }
            self.filled = 0;
        }
    }

    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        self.append(0, tokens, logits, progress)?;
        Ok(&self.logits)
    }

    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        Ok(self.decoder.decode(&[token])?)
    }

    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        if let Some((_, ceiling)) = self.ceiling.filter(|(measured, _)| measured.elapsed() < CEILING_AGE) {
            return Ok(ceiling);
        }
        let ceilings = Ceilings::measure_reading(&self.device, &self.compiler)?;
        let ceiling = ceilings.read_ceiling(self.weights.bytes()).ok_or("reading was not measured")?;
        self.ceiling = Some((Instant::now(), ceiling));
        Ok(ceiling)
    }

    fn name(&self) -> &'static str {
        "CUDA"
    }

    fn device(&self) -> Option<&str> {
        Some(&self.device.properties().name)
    }

    fn storage(&self) -> Storage {
        let format = match self.weights.element() {
            Element::F16 => Format::F16,
            Element::Bf16 => Format::Bf16,
        };
        Storage { weights: Some(format), kv: format }
    }

    fn telemetry(&mut self) -> Option<Telemetry> {
        let now = plancher_cuda::Telemetry::read(self.device.properties())?;
        Some(Telemetry {
            sm_clock_mhz: now.sm_clock_mhz,
            memory_clock_mhz: now.memory_clock_mhz,
            power_w: now.power_watts,
            temperature_c: now.temperature_celsius,
        })
    }

    fn executor(&self) -> Option<Executor> {
        Some(self.decoder.executor())
    }

    fn set_executor(&mut self, executor: Executor) -> Result<(), BackendError> {
        Ok(self.decoder.set_executor(executor)?)
    }

    fn token_loop(&mut self) -> Option<&mut dyn TokenLoop> {
        Some(self)
    }

    fn batch(&mut self) -> Option<&mut dyn BatchDecode> {
        Some(self)
    }

    fn cuda(&mut self) -> Option<&mut CudaBackend> {
        Some(self)
    }
}

impl TokenLoop for CudaBackend {
    fn start(
        &mut self,
        params: SamplingParams,
        history: &[u32],
        most: usize,
        end_tokens: &[u32],
    ) -> Result<(), BackendError> {
        let SamplingParams { temperature, top_k, top_p, min_p, repetition_penalty, seed } = params;
        let sampling = Sampling { temperature, top_k, top_p, min_p, repetition_penalty, seed };
        Ok(self.decoder.start(&[sampling], &[history], most, end_tokens)?)
    }

    fn next_token(&mut self) -> Result<Option<u32>, BackendError> {
        Ok(self.decoder.next_tokens()?.first().copied().flatten())
    }

    fn stop(&mut self, position: usize) -> Result<(), BackendError> {
        Ok(self.decoder.stop(position)?)
    }
}

impl BatchDecode for CudaBackend {
    fn most(&self) -> usize {
        Decoder::MOST_SEQUENCES
    }

    fn fill(&mut self, prompts: &[Vec<u32>]) -> Result<(), BackendError> {
        Backend::truncate(self, 0);
        self.filled = prompts.len();
        for (sequence, prompt) in prompts.iter().enumerate().filter(|(_, prompt)| !prompt.is_empty()) {
            self.append(sequence, prompt, LogitsOf::Last, &mut |_| true)?;
        }
        Ok(())
    }

    fn decode(&mut self, first: &[u32], steps: usize) -> Result<StepTimes, BackendError> {
        let plancher_cuda::StepTimes { device, wall } = self.decoder.run(first, steps)?;
        Ok(StepTimes { device, wall })
    }

    fn logits(&mut self) -> Result<&[f32], BackendError> {
        Ok(self.decoder.last_logits(self.filled)?)
    }
}
