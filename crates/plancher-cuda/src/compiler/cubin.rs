//! Machine code, and what its kernels need.

use serde::Serialize;

use super::log;
use crate::Architecture;

/// What one kernel needs, as the assembler reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelResources {
    /// The kernel's name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread stores to local memory because registers ran out.
    pub spill_stores: u32,
    /// Bytes that a thread loads back.
    pub spill_loads: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of shared memory of a block that are known at compile time.
    pub shared_memory: u32,
    /// Barriers.
    pub barriers: u32,
}

/// The machine code of one source for one architecture.
#[derive(Debug, Clone)]
pub struct Cubin {
    /// The source's name.
    pub source_name: &'static str,
    /// What it runs on.
    pub architecture: Architecture,
    /// An ELF file.
    pub code: Vec<u8>,
    /// What its kernels need, by name.
    pub kernels: Vec<KernelResources>,
    /// Warnings of the compiler, one a line.
    pub warnings: Vec<String>,
    /// Whether it was on disk.
    pub cached: bool,
}

impl Cubin {
    pub(super) fn new(
        source_name: &'static str,
        architecture: Architecture,
        code: Vec<u8>,
        log: &str,
        cached: bool,
    ) -> Self {
        let (kernels, warnings) = (log::resources(log), log::warnings(log));
        Self { source_name, architecture, code, kernels, warnings, cached }
    }

    /// What the kernel called `name` needs.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&KernelResources> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}
