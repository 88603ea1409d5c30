//! Machine code as text. NVIDIA's disassembler is a program of its own, which need not be there.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::libraries::Environment;
use crate::{CudaError, Result};

/// NVIDIA's disassembler, `nvdisasm`.
#[derive(Debug, Clone)]
pub struct Disassembler {
    path: PathBuf,
}

impl Disassembler {
    /// Looks for it beside NVRTC, in the toolkit, in Python's packages and in `PATH`.
    ///
    /// # Errors
    /// If it is not found: the error says where it was looked for and what to install.
    pub fn find() -> Result<Self> {
        let looked_in = Environment::of_process().tool_places();
        let found = looked_in.iter().map(|place| place.join("nvdisasm")).find(|path| path.is_file());
        let path = found.ok_or_else(|| CudaError::LibraryMissing {
            library: "nvdisasm",
            looked_in: looked_in.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
            advice: "run `pip install nvidia-cuda-nvdisasm`, or install the CUDA toolkit",
        })?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of machine code (an ELF file).
    ///
    /// # Errors
    /// If the disassembler cannot be run or does not understand the code.
    pub fn disassemble(&self, code: &[u8]) -> Result<String> {
        let failed = |problem: String| CudaError::Unsupported(format!("`{}` failed: {problem}", self.path.display()));
        let mut file = tempfile::NamedTempFile::new().map_err(|error| failed(error.to_string()))?;
        file.write_all(code).map_err(|error| failed(error.to_string()))?;
        let output = Command::new(&self.path)
            .arg("--print-code")
            .arg(file.path())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(failed(text.lines().next().unwrap_or("it does not say why").to_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// How often each instruction occurs in each kernel of a disassembly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instructions(BTreeMap<String, BTreeMap<String, usize>>);

impl Instructions {
    /// Reads a disassembly.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut kernels: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let mut kernel = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
                kernel = Some(name.to_owned());
            } else if let (Some(kernel), Some(instruction)) = (&kernel, instruction(line)) {
                *kernels.entry(kernel.clone()).or_default().entry(instruction.to_owned()).or_default() += 1;
            }
        }
        Self(kernels)
    }

    /// How many instructions of `kernel` are `instruction`, or begin with it and a dot.
    #[must_use]
    pub fn count(&self, kernel: &str, instruction: &str) -> usize {
        let is_one =
            |name: &str| name.strip_prefix(instruction).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let counts = self.0.get(kernel).into_iter().flatten();
        counts.filter(|(name, _)| is_one(name)).map(|(_, count)| count).sum()
    }
}

/// `/*0010*/  @!P0 LDG.E.128 R4, ...` is `LDG.E.128`.
fn instruction(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("/*")?.split_once("*/")?.1;
    let mut words = rest.split_whitespace();
    let first = words.next()?;
    let name = if first.starts_with('@') { words.next()? } else { first };
    let name = name.trim_end_matches(';');
    name.starts_with(|character: char| character.is_ascii_uppercase()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_in_their_kernels() {
        let text = "\
\t.section\t.text.first,\"ax\",@progbits
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R2, RZ ;
.L_x_1:
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R2, RZ ;
        /*0040*/                   EXIT ;
.text.second:
        /*0000*/                   EXIT;
        /* comment */
";
        let instructions = Instructions::read(text);
        assert_eq!(instructions.count("first", "HMMA"), 2);
        assert_eq!(instructions.count("first", "LDG.E.128"), 1);
        assert_eq!(instructions.count("first", "LDG.E"), 1);
        assert_eq!(instructions.count("first", "LD"), 0);
        assert_eq!(instructions.count("second", "EXIT"), 1);
        assert_eq!(instructions.count("second", "HMMA"), 0);
    }
}
