//! Runs programs on CPU threads: one pinned worker a thread, each streaming its packed weights, signalling by
//! counters. [`kernels`] holds the arithmetic (scalar reference, then one file per instruction set, chosen at run
//! time); the runtime holds threads, protocol, KV cache and the executor.

pub mod kernels;
