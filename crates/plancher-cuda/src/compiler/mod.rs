//! Kernels from source to machine code: NVRTC, what it reports, and the cache of what it made.

mod cache;
mod cubin;
mod elf;
mod log;
mod nvrtc;
mod source;

use std::path::PathBuf;

pub use cubin::{Cubin, KernelResources};
pub use source::{Source, Specialization};

use self::cache::Cache;
use self::nvrtc::Nvrtc;
use crate::driver::{CudaVersion, driver};
use crate::{Architecture, CudaError, Result};

/// Compiles kernels for any architecture, with or without a GPU, and keeps what it has compiled on disk.
#[derive(Debug, Clone)]
pub struct Compiler {
    nvrtc: &'static Nvrtc,
    cache: Cache,
}

impl Compiler {
    /// Finds NVRTC. Compiled kernels are kept in `$XDG_CACHE_HOME/plancher/cubin`, or below `~/.cache`.
    ///
    /// # Errors
    /// If NVRTC is not found or cannot be loaded.
    pub fn find() -> Result<Self> {
        Ok(Self { nvrtc: nvrtc::load()?, cache: Cache::of_user() })
    }

    /// The same compiler with another cache: a directory, or none.
    #[must_use]
    pub fn with_cache(self, directory: Option<PathBuf>) -> Self {
        Self { cache: Cache::new(directory), ..self }
    }

    /// NVRTC's version.
    #[must_use]
    pub fn version(&self) -> CudaVersion {
        self.nvrtc.version
    }

    /// The file of NVRTC's library.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.nvrtc.path()
    }

    /// Checks that code of this compiler runs on the driver that is installed: a driver runs code of its own major
    /// version and of older ones.
    ///
    /// # Errors
    /// If there is no driver, or the compiler is newer.
    pub fn check_driver(&self) -> Result<()> {
        let cuda = driver()?.cuda;
        if self.nvrtc.version.major > cuda.major {
            return Err(CudaError::DriverTooOld {
                driver: cuda.to_string(),
                needed: format!("{}.0", self.nvrtc.version.major),
                by: "the code of the NVRTC that was found",
            });
        }
        Ok(())
    }

    /// Compiles `source` for `architecture`, or takes it from the cache.
    ///
    /// # Errors
    /// If it does not compile: the error names the source and the first line at fault.
    pub fn compile(
        &self,
        source: Source,
        specialization: &Specialization,
        architecture: Architecture,
    ) -> Result<Cubin> {
        self.compile_text(source.name, &source.complete(), specialization, architecture)
    }

    /// As [`Self::compile`], for a text that is complete by itself: nothing is put in front of it. `name` is the file's
    /// name without its ending, for messages.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn compile_text(
        &self,
        name: &str,
        text: &str,
        specialization: &Specialization,
        architecture: Architecture,
    ) -> Result<Cubin> {
        let options = specialization.options(architecture);
        let key = cache::key(text, &options, &self.nvrtc.identity());
        if let Some((log, code)) = self.cache.load(&key) {
            return Ok(Cubin::new(name, architecture, code, &log, true));
        }
        let (log, code) = self.nvrtc.compile(name, text, &options, architecture)?;
        self.cache.store(&key, &log, &code);
        Ok(Cubin::new(name, architecture, code, &log, false))
    }
}
