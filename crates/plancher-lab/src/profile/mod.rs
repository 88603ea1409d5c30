//! Where a kernel's time went, and whether it went where the catalogue says: tables of Nsight Compute are read, or, where
//! there is none, bytes and operations are counted and divided by the time; then every part of a version's explanation is
//! held against that.

mod counted;
mod ncu;
mod verdict;

pub use counted::counted;
pub use ncu::{Launch, METRICS, Metric, SECTIONS, read_table, split, summarize};
pub use verdict::{Check, Explanation, NEARLY, explanation};

/// Names of units in [`crate::record::ProfileRun::sol`].
pub mod unit {
    /// The memory.
    pub const MEMORY: &str = "memory";
    /// The second-level cache.
    pub const L2: &str = "second-level cache";
    /// The first-level cache and shared memory.
    pub const L1: &str = "first-level cache";
    /// The multiprocessors' arithmetic and the issue of instructions.
    pub const COMPUTE: &str = "arithmetic";
    /// The tensor cores, which are a part of the arithmetic.
    pub const TENSOR: &str = "tensor cores";
}
