//! Runs programs on CPU threads: one pinned worker a thread, each streaming its packed weights, signalling by
//! counters. [`kernels`] holds the arithmetic (scalar reference, then one file per instruction set, chosen at run
//! time); the runtime holds threads, protocol ([`sync`]), KV cache and the [`Executor`]. [`Machine`] and
//! [`bandwidth`] say what there is to run on.

mod affinity;
mod attention;
pub mod bandwidth;
mod error;
mod executor;
pub mod kernels;
mod kv_cache;
mod machine;
mod memory;
mod pool;
pub mod sync;
mod vector;

pub use affinity::{allowed_cpus, physical_cores};
pub use error::CpuError;
pub use executor::{Executor, LogitsOf, Options, StepTrace, TraceEvent};
pub use machine::{Cache, Machine};
pub use memory::{HugeBuffer, OutOfMemory};
pub use pool::{Pool, PoolError};
