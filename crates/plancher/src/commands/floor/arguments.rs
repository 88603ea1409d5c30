//! The arguments of `plancher floor` and its two subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use plancher_floor::gap::Executor;
use plancher_floor::{Checkpointing, Compute, Format, Setting};

use super::quantity::{count, measured_time};
use super::sweep::SweepRange;

/// The context when none is given.
pub(super) const DEFAULT_CONTEXT: u64 = 1024;

/// The least time physics allows a model on a machine: bytes over bandwidth, FLOP over peak
///
/// Prints, by class of operation, the bytes that must move and the FLOP that must be done, both limits, and what is not
/// counted. GB are 1e9 bytes; peaks are dense rates; weights are read once a pass, the input embedding is not read.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<FloorCommand>,
    #[command(flatten)]
    pub(super) options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  plancher floor llama-3.1-8b --on h200
  plancher floor llama-3.1-70b --on h100-sxm --tp 2 --context 8k --weights fp8
  plancher floor mixtral-8x7b --on h200 --batch 16 --explain
  plancher floor llama-3.1-8b --on h100-sxm --draft llama-3.2-1b --k 5 --acceptance 0.7
  plancher floor llama-3.1-8b --on h200 --tp 8 --train --batch 1 --context 4096 --zero 1 --devices 64 --tokens 15e12
  plancher floor llama-3.2-1b --on h200 --context 32 --measured 760us --executor megakernel
  plancher floor ./config.json --on this --sweep batch=1..512 --html floor.html

A hardware file is TOML or JSON; all rates are per second, in bytes and FLOP:
  name = \"my card\"
  bandwidth = 1.0e12
  memory_bytes = 24e9
  peaks = { bf16 = 165e12, fp8 = 330e12, int8 = 660e12 }
  link = { bandwidth = 32e9, latency = 1e-6 }
  measured = { bandwidth = 0.93e12, peaks = { bf16 = 150e12 } }";

#[derive(Debug, Subcommand)]
pub(super) enum FloorCommand {
    Compare(CompareArguments),
    Fit(FitArguments),
}

#[derive(Debug, Args)]
pub(super) struct Options {
    /// A preset, a config.json, a model directory, a GGUF or safetensors file, or org/name in the Hugging Face cache
    #[arg(value_name = "MODEL")]
    pub(super) model: Option<String>,
    #[command(flatten)]
    pub(super) machine: MachineOptions,
    #[command(flatten)]
    pub(super) pass: PassOptions,
    #[command(flatten)]
    pub(super) draft: DraftOptions,
    #[command(flatten)]
    pub(super) training: TrainingOptions,
    /// A curve over batch=1..512, context=1k..128k or k=1..8; may be repeated
    #[arg(long, value_name = "RANGE")]
    pub(super) sweep: Vec<SweepRange>,
    /// A measured time of the step (760us, 4.5ms) or a bench JSON file: split the gap to the floor by its causes
    #[arg(long, value_name = "TIME|FILE")]
    pub(super) measured: Option<String>,
    /// How the measured step was run
    #[arg(long, value_enum, default_value_t = ExecutorName::Kernels, requires = "measured")]
    pub(super) executor: ExecutorName,
    /// Each formula with the numbers in it, and the conventions
    #[arg(long)]
    pub(super) explain: bool,
    /// Print JSON instead of tables
    #[arg(long, conflicts_with = "explain")]
    pub(super) json: bool,
    /// Draw the roofline and the sweeps into an SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Write one self-contained page with roofline, sweeps and tables
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// The tables of the course this began with: the printed value, the right one, and why they differ
    #[arg(long, conflicts_with_all = ["model", "train", "prompt", "draft", "sweep", "measured", "explain", "svg", "html", "on", "weights", "batch", "context"])]
    pub(super) seed_tables: bool,
}

#[derive(Debug, Args)]
pub(super) struct MachineOptions {
    /// A machine: a preset (h100-sxm, h200, …), `this`, or a JSON or TOML file
    #[arg(long, value_name = "MACHINE", default_value = "h100-sxm")]
    pub(super) on: String,
    /// How matmul weights are stored: bf16, fp8, int8, int4:g128, mxfp4, `q4_k`, … [default: as the model stores them]
    #[arg(long, value_name = "FORMAT")]
    pub(super) weights: Option<Format>,
    /// The same for the head alone [default: as `--weights`]
    #[arg(long, value_name = "FORMAT")]
    pub(super) head_weights: Option<Format>,
    /// How KV entries are stored: bf16, fp8, int8, int4
    #[arg(long, value_name = "FORMAT", default_value = "bf16")]
    pub(super) kv: Format,
    /// Devices that share every layer (tensor parallel)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, allow_negative_numbers = true)]
    pub(super) tp: u64,
    /// The operand type whose peak applies: f32, bf16, fp8, int8, fp4 [default: the fastest that holds the weights]
    #[arg(long, value_name = "TYPE", value_parser = Compute::from_name)]
    pub(super) compute: Option<Compute>,
    /// Rates of the data sheet, or those measured on such a machine
    #[arg(long, value_enum, default_value_t = Ceiling::Datasheet)]
    pub(super) ceiling: Ceiling,
    /// Compute also what does not fit in memory
    #[arg(long)]
    pub(super) ignore_memory: bool,
}

impl MachineOptions {
    pub(super) fn setting(&self) -> Setting {
        Setting { kv: self.kv, tensor_parallel: self.tp, compute: self.compute }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Ceiling {
    Datasheet,
    Measured,
}

#[derive(Debug, Args)]
pub(super) struct PassOptions {
    /// Sequences
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, allow_negative_numbers = true)]
    pub(super) batch: u64,
    /// Tokens that attention sees when decoding; of a sequence in training [default: 1024]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub(super) context: Option<u64>,
    /// Prefill of this many tokens; with `--context` beside it both are shown
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub(super) prompt: Option<u64>,
    /// Prefill computes the head at every position, not only at the last
    #[arg(long, requires = "prompt")]
    pub(super) all_logits: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Speculation")]
pub(super) struct DraftOptions {
    /// What drafts: a model, or mtp, medusa, eagle
    #[arg(long, value_name = "MODEL")]
    pub(super) draft: Option<String>,
    /// Drafted tokens a pass [default: 1 for mtp, 5 for medusa and eagle]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub(super) k: Option<u64>,
    /// Acceptance of a drafted token: one value, or one a position (0.8,0.7,0.6)
    #[arg(long, value_name = "A", value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) acceptance: Option<Vec<f64>>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct TrainingOptions {
    /// A training step: `AdamW` in bf16 mixed precision, `--batch` sequences of `--context` tokens a replica
    #[arg(long, conflicts_with_all = ["prompt", "draft", "k", "acceptance", "sweep", "explain", "svg", "html", "kv", "executor"])]
    pub(super) train: bool,
    /// Tokens to train on, for the time of the whole run
    #[arg(long, value_name = "N", value_parser = count, requires = "train", allow_negative_numbers = true)]
    pub(super) tokens: Option<u64>,
    /// What replicas divide between them: 1 optimizer states, 2 also gradients, 3 also weights
    #[arg(long, value_name = "STAGE", default_value_t = 0, requires = "train", allow_negative_numbers = true)]
    pub(super) zero: u8,
    /// Data-parallel replicas, each of `--tp` devices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, requires = "train", allow_negative_numbers = true)]
    pub(super) devices: u64,
    /// What is computed again in the backward pass: nothing, the attention matrix, or everything
    #[arg(long, value_enum, default_value_t = CheckpointingName::Selective, requires = "train")]
    pub(super) checkpointing: CheckpointingName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CheckpointingName {
    Full,
    Selective,
    None,
}

impl From<CheckpointingName> for Checkpointing {
    fn from(name: CheckpointingName) -> Self {
        match name {
            CheckpointingName::Full => Self::Full,
            CheckpointingName::Selective => Self::Selective,
            CheckpointingName::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExecutorName {
    /// One kernel after the other in a CUDA graph
    Kernels,
    /// One persistent kernel
    Megakernel,
    /// CPU threads
    Cpu,
}

impl From<ExecutorName> for Executor {
    fn from(name: ExecutorName) -> Self {
        match name {
            ExecutorName::Kernels => Self::Kernels,
            ExecutorName::Megakernel => Self::Megakernel,
            ExecutorName::Cpu => Self::Cpu,
        }
    }
}

impl Options {
    pub(super) fn measured_seconds(&self) -> anyhow::Result<Option<f64>> {
        self.measured.as_deref().map(measured_time).transpose()
    }
}

/// Models or machines side by side
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Models and machines; models are taken on every machine named here, else on `--on`
    #[arg(value_name = "MODEL|MACHINE", required = true, num_args = 2..)]
    pub(super) subjects: Vec<String>,
    /// The model when only machines are compared
    #[arg(long, value_name = "MODEL", default_value = "llama-3.1-8b")]
    pub(super) model: String,
    #[command(flatten)]
    pub(super) machine: MachineOptions,
    #[command(flatten)]
    pub(super) pass: PassOptions,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// What fits in memory: the largest batch at a context, the largest context at a batch
#[derive(Debug, Args)]
pub(super) struct FitArguments {
    /// A preset, a config.json, a model directory, a GGUF or safetensors file, or org/name in the Hugging Face cache
    #[arg(value_name = "MODEL")]
    pub(super) model: String,
    #[command(flatten)]
    pub(super) machine: MachineOptions,
    /// Sequences, for the largest context
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, allow_negative_numbers = true)]
    pub(super) batch: u64,
    /// Tokens of each sequence, for the largest batch
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONTEXT, value_parser = count, allow_negative_numbers = true)]
    pub(super) context: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}
