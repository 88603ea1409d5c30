//! The error of this crate: one line that says what failed, on what, and what to do about it.

use std::path::PathBuf;

use crate::Architecture;

/// Why the GPU cannot be used, or why work on it failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// A shared library was not found.
    #[error("`{library}` was not found (looked in {looked_in}); {advice}")]
    LibraryMissing {
        /// The library's file name.
        library: &'static str,
        /// The directories, separated by commas.
        looked_in: String,
        /// What to install.
        advice: &'static str,
    },
    /// A shared library was found and cannot be loaded.
    #[error("`{}` cannot be loaded: {problem}", path.display())]
    LibraryBroken {
        /// Which file.
        path: PathBuf,
        /// What the loader says.
        problem: String,
    },
    /// A shared library lacks a function, so it is too old.
    #[error("`{library}` has no function `{symbol}`: it is too old")]
    SymbolMissing {
        /// The library's file name.
        library: &'static str,
        /// Which function.
        symbol: &'static str,
    },
    /// The driver is older than what this crate needs, or than the compiler's code needs.
    #[error(
        "the NVIDIA driver supports CUDA {driver}, but {needed} is needed by {by}: update the driver{or}",
        or = if *by == "Plancher" { "" } else { ", or set `PLANCHER_NVRTC_DIR` to an older NVRTC" }
    )]
    DriverTooOld {
        /// What the driver supports, `major.minor`.
        driver: String,
        /// What is needed.
        needed: String,
        /// By whom.
        by: &'static str,
    },
    /// There is no such GPU.
    #[error("there is no GPU `{ordinal}`: the driver shows {count}")]
    NoDevice {
        /// Which was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver refused a call. The device can still be used.
    #[error("`{call}` failed{on}: {text} ({name})")]
    Driver {
        /// Which function of the driver, or what was asked of it.
        call: &'static str,
        /// What it was called for: empty, or ` for ...`.
        on: String,
        /// The driver's name of the error.
        name: String,
        /// The driver's explanation.
        text: String,
    },
    /// Work on the device went wrong, and the device's context with it: nothing works in this process any more.
    #[error("the GPU failed in {kernels}: {text} ({name})")]
    Fault {
        /// The kernel, or the kernels launched since the device was last known to be well.
        kernels: String,
        /// The driver's name of the error.
        name: String,
        /// The driver's explanation.
        text: String,
    },
    /// Memory of the device could not be had. Nothing was changed.
    #[error("GPU memory is short by {missing} bytes: {wanted} bytes were asked for and {free} are free")]
    OutOfMemory {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that were free.
        free: u64,
        /// The difference, at least 1: memory can be free and still too scattered.
        missing: u64,
    },
    /// A size does not fit, or a range lies outside.
    #[error("`{what}` is {value}, and at most {limit} is possible")]
    Range {
        /// What was too large.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The largest possible value.
        limit: u64,
    },
    /// A kernel does not compile.
    #[error("kernel `{source_name}` does not compile for {architecture}: {problem}")]
    Compile {
        /// Which source.
        source_name: String,
        /// For which architecture.
        architecture: Architecture,
        /// The first error.
        problem: String,
        /// All that the compiler said.
        log: String,
    },
    /// A kernel is launched with arguments that it does not take.
    #[error("kernel `{kernel}` cannot be launched: {problem}")]
    Launch {
        /// Which kernel.
        kernel: String,
        /// What is wrong.
        problem: String,
    },
    /// The megakernel waited for something that did not come, and ended. The device can still be used.
    #[error("the megakernel gave up: {waiter} looked {polls} times for {awaited}")]
    Stalled {
        /// Who waited, at which instruction.
        waiter: String,
        /// For what.
        awaited: String,
        /// How often it looked.
        polls: u32,
    },
    /// Something that this device, driver or kernel does not offer.
    #[error("{0}")]
    Unsupported(String),
}

/// The result of this crate.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;
