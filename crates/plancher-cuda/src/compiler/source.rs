//! What is compiled: a file of kernels with the common helpers in front, and the constants that shape it.

use std::fmt::Display;

use super::cache::hash_of;
use crate::Architecture;

/// The helpers that every kernel may use.
const COMMON: &str = include_str!("../../kernels/common.cuh");

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The file's name without its ending, such as `matvec`.
    pub name: &'static str,
    /// Its text, which includes nothing.
    pub text: &'static str,
}

impl Source {
    /// The hash of what the compiler gets, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        hash_of(&self.complete())
    }

    /// The names of the kernels in it, in their order.
    #[must_use]
    pub fn kernels(&self) -> Vec<&'static str> {
        self.text.split("__global__").skip(1).filter_map(kernel_name).collect()
    }

    /// What the compiler gets. Line numbers in its messages are those of the files.
    pub(super) fn complete(&self) -> String {
        format!("#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"{}.cu\"\n{}\n", self.name, self.text)
    }
}

/// The name of the kernel declared by what follows `__global__`: `void __launch_bounds__(256) name(`.
fn kernel_name(declaration: &'static str) -> Option<&'static str> {
    let mut rest = declaration;
    loop {
        let (head, tail) = rest.split_once('(')?;
        let word = head.split_whitespace().last()?;
        if !word.starts_with("__") {
            return Some(word);
        }
        // An attribute: its argument ends at the matching parenthesis.
        let mut depth = 1_usize;
        let end = tail.char_indices().find_map(|(index, character)| {
            depth = match character {
                '(' => depth + 1,
                ')' => depth - 1,
                _ => depth,
            };
            (depth == 0).then_some(index + 1)
        })?;
        rest = &tail[end..];
    }
}

/// What a source is specialised for: constants, and options of the compiler. Order matters only for the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Specialization {
    definitions: Vec<(&'static str, String)>,
    options: Vec<String>,
}

impl Specialization {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines a macro.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: impl Display) -> Self {
        self.definitions.push((name, value.to_string()));
        self
    }

    /// Adds an option of NVRTC, such as `--maxrregcount=64` or `--use_fast_math`.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// The macros, in the order in which they were defined.
    pub fn definitions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.definitions.iter().map(|(name, value)| (*name, value.as_str()))
    }

    pub(super) fn options(&self, architecture: Architecture) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".to_owned(),
            "-lineinfo".to_owned(),
            // Registers and spills come from the assembler's report.
            "--ptxas-options=-v".to_owned(),
        ];
        options.extend(self.options.iter().cloned());
        options.extend(self.definitions.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_behind_their_attributes() {
        let text = "extern \"C\" __global__ void plain(int x) {}\n
            extern \"C\" __global__ void __launch_bounds__((WARPS * 32), 2) bounded(\n    float* x) {}
            __global__ void __launch_bounds__(1) __cluster_dims__(2, 1, 1) clustered() {}
            // __global__ in a comment";
        assert_eq!(Source { name: "test", text }.kernels(), ["plain", "bounded", "clustered"]);
    }
}
