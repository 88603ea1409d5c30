//! What is promised of one file of kernels.

use crate::{Architecture, Source, Specialization};

/// One file of kernels. Its Rust wrapper declares it, and [`CATALOGUE`](super::CATALOGUE) lists it.
#[derive(Debug)]
pub struct Family {
    /// The file.
    pub source: Source,
    /// What it is for, in a few words.
    pub purpose: &'static str,
    /// For which architectures it compiles; usually [`Architecture::ALL`].
    pub architectures: &'static [Architecture],
    /// The most bytes that a thread of any of its kernels may spill, stores and loads together.
    pub spill_budget: u32,
    /// Instructions that must be there.
    pub expected: &'static [Expectation],
    /// Representative constants, each with a short label: the shapes of real models, and each branch of the source.
    pub specializations: fn() -> Vec<(&'static str, Specialization)>,
}

/// An instruction that must be in a kernel's machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// In which kernel, wherever that is compiled.
    pub kernel: &'static str,
    /// From which architecture on: 80, 90.
    pub from: u32,
    /// The instruction as the disassembler writes it, whole or up to a dot: `HMMA`, `LDG.E.128`.
    pub instruction: &'static str,
}

impl Expectation {
    /// `kernel` contains `instruction` from architecture number `from` on.
    #[must_use]
    pub const fn new(kernel: &'static str, from: u32, instruction: &'static str) -> Self {
        Self { kernel, from, instruction }
    }
}
