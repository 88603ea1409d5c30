//! Requests: tokens in, tokens out. Sampling, stop conditions, the conversation's KV cache, and the measurement of
//! every run against its floor. What computes logits is a [`Backend`].

mod backend;
mod bench;
mod cpu;
mod cuda;
mod cuda_trace;
mod error;
mod generate;
mod hash;
mod measure;
mod perplexity;
mod reference;
pub mod sampling;
mod sequence;
mod shape;
mod text_stream;

pub use backend::{Backend, BackendError, BatchDecode, LogitsOf, StepTimes, Storage, Telemetry, TokenLoop};
pub use bench::{BenchCase, BenchSamples, bench, bench_in_turns};
pub use cpu::CpuBackend;
pub use cuda::{CudaBackend, CudaOptions};
pub use cuda_trace::TracedStep;
pub use error::EngineError;
pub use generate::{Event, FinishReason, Generation, Request, Timing, generate};
pub use hash::hash_logits;
pub use measure::{DecodeReport, DecodeSteps};
pub use perplexity::{LEAST_WINDOW, Perplexity, perplexity};
pub use reference::ReferenceBackend;
pub use sequence::{Prefill, Sequence};
pub use shape::{KV_FORMAT, model_shape};
pub use text_stream::TextStream;

pub use plancher_cuda::Executor;

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, EngineError>;
