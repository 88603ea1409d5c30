//! The contract between requests and whatever computes logits: one sequence, a position, and a cache that can be
//! cut back; and what a backend may offer beyond that: a token loop of its own, several sequences at once.

use plancher_cuda::Executor;
use plancher_floor::Format;
use serde::Serialize;

use crate::CudaBackend;
use crate::sampling::SamplingParams;

/// What a failed step was about; each backend has its own error behind it.
pub type BackendError = Box<dyn std::error::Error + Send + Sync>;

/// Which positions' logits a prefill returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// The last position: `(vocab_size)`.
    Last,
    /// Every position: `(tokens, vocab_size)`.
    All,
}

/// Computes logits for one sequence and remembers its keys and values.
///
/// Contract: `prefill` and `decode` append at `position()`; the same calls from position 0 give the same bits,
/// whatever was in the cache before; `truncate` never computes. Tokens are below `vocab_size()` and positions below
/// `capacity()`: callers check, implementations assert.
pub trait Backend {
    /// Rows of the head.
    fn vocab_size(&self) -> usize;
    /// Positions that the KV cache can hold.
    fn capacity(&self) -> usize;
    /// Positions held now.
    fn position(&self) -> usize;
    /// Forgets every position from `position` on.
    fn truncate(&mut self, position: usize);
    /// Appends `tokens` (at least one); `progress` is told how many are done as chunks end and returns false to stop
    /// (the tokens appended so far stay, as `position()` tells). Returns the logits asked for, of the appended tokens.
    ///
    /// # Errors
    /// When the step fails; the sequence is then cut back to where it was.
    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError>;
    /// Appends one token and returns its logits `(vocab_size)`.
    ///
    /// # Errors
    /// As for `prefill`.
    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError>;
    /// The rate at which this backend's workers can read the step's weights and do nothing else, GB/s, measured now.
    ///
    /// # Errors
    /// When it cannot be measured.
    fn read_ceiling(&mut self) -> Result<f64, BackendError>;
    /// What it runs on, for tables: `CPU`, `CUDA`.
    fn name(&self) -> &'static str {
        "CPU"
    }
    /// The device it runs on, where that is not the machine's processor: its name as the driver gives it.
    fn device(&self) -> Option<&str> {
        None
    }
    /// How it keeps what a step reads: what the floor's bytes are counted in.
    fn storage(&self) -> Storage {
        Storage::default()
    }
    /// The clocks, power and temperature of the device, where it has its own.
    fn telemetry(&mut self) -> Option<Telemetry> {
        None
    }
    /// What runs the decode steps of one sequence, where there is a choice: the one that was made.
    fn executor(&self) -> Option<Executor> {
        None
    }
    /// Makes that choice anew; what the cache holds stays.
    ///
    /// # Errors
    /// When there is no choice, or not this one.
    fn set_executor(&mut self, executor: Executor) -> Result<(), BackendError> {
        Err(format!("the {} has no `{executor}` to run decode steps", self.name()).into())
    }
    /// The loop that samples where the logits are, if there is one.
    fn token_loop(&mut self) -> Option<&mut dyn TokenLoop> {
        None
    }
    /// Decoding of several sequences at once, if it can.
    fn batch(&mut self) -> Option<&mut dyn BatchDecode> {
        None
    }
    /// Itself, where it is an NVIDIA GPU: for what only that has.
    fn cuda(&mut self) -> Option<&mut CudaBackend> {
        None
    }
}

/// The formats of what a decode step reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage {
    /// What every matrix was converted to when it was loaded; `None`: it keeps its file's format.
    pub weights: Option<Format>,
    /// Keys and values.
    pub kv: Format,
}

impl Default for Storage {
    /// The CPU's: the file's own weights, f16 keys and values.
    fn default() -> Self {
        Self { weights: None, kv: Format::F16 }
    }
}

/// A device's state at a moment; what it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Telemetry {
    /// Clock of the processors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<u32>,
}

/// Chooses tokens where the logits are, and feeds each to the next step without asking the host. The device may run
/// ahead of the host, which reads the tokens as they come and ends the loop when it has enough.
///
/// Contract: the tokens are those that [`crate::sampling::Sampler`] chooses from the same logits: exactly so without
/// temperature; with it, from the same distribution, the same ones for the same seed on the same device (draws are made
/// in another way than on the host, so that a seed gives other tokens there).
pub trait TokenLoop {
    /// Begins after a prefill, from the logits of its last position. `history` are the tokens that the repetition
    /// penalty covers; at most `most` tokens (1 or more, and no more than the capacity allows) will be asked for. After
    /// one of `end_tokens` the device need not run ahead.
    ///
    /// # Errors
    /// When the device fails.
    fn start(
        &mut self,
        params: SamplingParams,
        history: &[u32],
        most: usize,
        end_tokens: &[u32],
    ) -> Result<(), BackendError>;
    /// The next token; `None` when the logits it should come from are not finite numbers. The first one needs no
    /// step; before each of the others, the token before it was appended to the cache.
    ///
    /// # Errors
    /// When the device fails.
    fn next_token(&mut self) -> Result<Option<u32>, BackendError>;
    /// Ends the loop, and forgets every position from `position` on that running ahead has appended.
    ///
    /// # Errors
    /// When the device fails.
    fn stop(&mut self, position: usize) -> Result<(), BackendError>;
}

/// Decodes several sequences of the same length in one step, for measurement. The first is the backend's own sequence;
/// when that is cut back to nothing, so are the others.
pub trait BatchDecode {
    /// The most sequences.
    fn most(&self) -> usize;
    /// Makes the sequences hold `prompts`, one each, all of one length (which may be 0).
    ///
    /// # Errors
    /// When the device fails or its memory does not suffice.
    fn fill(&mut self, prompts: &[Vec<u32>]) -> Result<(), BackendError>;
    /// Appends `steps` tokens to each sequence that was filled: first `first`, one a sequence, then the most likely one
    /// each time. Nothing comes back to the host in between.
    ///
    /// # Errors
    /// When the device fails.
    fn decode(&mut self, first: &[u32], steps: usize) -> Result<StepTimes, BackendError>;
    /// The logits of all sequences after the last step, `(sequences, vocab_size)`.
    ///
    /// # Errors
    /// When the device fails.
    fn logits(&mut self) -> Result<&[f32], BackendError>;
}

/// How long steps took, all together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// By the device's own clock, from the first step's start to the last one's end, seconds.
    pub device: f64,
    /// By the host's clock, from asking to having, seconds.
    pub wall: f64,
}
