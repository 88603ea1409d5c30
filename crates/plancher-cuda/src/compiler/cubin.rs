//! Machine code, and what its kernels need.

use std::sync::Arc;

use serde::Serialize;

use super::{elf, log};
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
    pub source_name: Arc<str>,
    /// What it runs on.
    pub architecture: Architecture,
    /// An ELF file. Private: what the driver loads must be what NVRTC made.
    code: Vec<u8>,
    /// What its kernels need, by name.
    pub kernels: Vec<KernelResources>,
    /// Warnings of the compiler, one a line.
    pub warnings: Vec<String>,
    /// Whether it was on disk.
    pub cached: bool,
}

impl Cubin {
    pub(super) fn new(source_name: &str, architecture: Architecture, code: Vec<u8>, log: &str, cached: bool) -> Self {
        let (kernels, warnings) = (log::resources(log), log::warnings(log));
        Self { source_name: source_name.into(), architecture, code, kernels, warnings, cached }
    }

    /// The machine code, an ELF file.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// How many parameters the kernel called `name` has, if the code says so in a way that is understood.
    pub(crate) fn parameter_count(&self, name: &str) -> Option<usize> {
        elf::parameter_count(&self.code, name)
    }

    /// The most threads that a block of the kernel called `name` may have by its `__launch_bounds__`, if it has any and the
    /// code says so in a way that is understood.
    #[must_use]
    pub fn most_threads(&self, name: &str) -> Option<u32> {
        elf::most_threads(&self.code, name)
    }

    /// What the kernel called `name` needs.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&KernelResources> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Architecture, Compiler, Source, Specialization};

    #[test]
    fn the_number_of_parameters_is_read_from_real_code() {
        let Ok(compiler) = Compiler::find() else {
            assert!(std::env::var_os("PLANCHER_REQUIRE_NVRTC").is_none(), "there is no NVRTC");
            return;
        };
        let source = Source {
            name: "parameters",
            text: "struct large { u64 x[70]; };
extern \"C\" __global__ void five(float* x, char c, int n, large s, short q) { x[0] = c + n + s.x[3] + q; }
extern \"C\" __global__ void __launch_bounds__(192) unused(float* x, int n) { }
extern \"C\" __global__ void none() { }",
        };
        for architecture in Architecture::ALL {
            let cubin = compiler
                .clone()
                .with_cache(None)
                .compile(source, &Specialization::new(), architecture)
                .expect("compiles");
            let count = |name| cubin.parameter_count(name);
            assert_eq!([count("five"), count("unused"), count("none")], [Some(5), Some(2), Some(0)], "{architecture}");
            assert_eq!(count("no such kernel"), None);
            let most = ["unused", "none", "no such kernel"].map(|name| cubin.most_threads(name));
            assert_eq!(most, [Some(192), None, None], "{architecture}");
        }
    }
}
