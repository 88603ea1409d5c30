//! What can go wrong in the lab, apart from a kernel being wrong: that is a result, not an error.

use plancher_cuda::CudaError;

/// An error of the lab, in one line.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The CUDA layer failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A `// lab:` line that cannot be used.
    #[error("`{file}`, line {line}: `{directive}`: {problem}")]
    Directive {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The directive.
        directive: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A `// lab:` line that is not there.
    #[error("`{file}`: {problem}")]
    NoDirective {
        /// The file's name.
        file: String,
        /// Which.
        problem: String,
    },
    /// A name that the catalogue does not have.
    #[error("there is no {what} `{name}`: the lab has {known}")]
    Unknown {
        /// A step, a version.
        what: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// A file that cannot be read.
    #[error("`{path}` cannot be read: {problem}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        problem: String,
    },
    /// A recorded run that cannot be one.
    #[error("`{file}`: {problem}")]
    Evidence {
        /// Which file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Text that should describe a shape or a number type and does not.
    #[error("`{0}` is no shape: write `1024`, `rows x columns` or `m x n x k` without spaces")]
    Shape(String),
    /// The process that measures, or what it said, is not as it should be.
    #[error("the measuring process failed: {0}")]
    Child(String),
    /// Something that this machine or this step does not offer.
    #[error("{0}")]
    Unsupported(String),
}

/// The result of this crate.
pub type Result<T, E = LabError> = std::result::Result<T, E>;
