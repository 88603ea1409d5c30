//! The error of this crate: one line that names the file, the field and the value that was wrong.

use std::path::PathBuf;

/// Why a model could not be read. Every message names the file and the field it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The operating system refused a file.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The operating system refused to write a file.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A field of a file has a value that cannot be right.
    #[error("`{}`: `{}`: {}", path.display(), one_line(field), one_line(problem))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The field, tensor or metadata key.
        field: String,
        /// What is wrong with it, with the value.
        problem: String,
    },
    /// The model's architecture is not one of those that can be lowered.
    #[error("`{}`: architecture `{}` is not supported (supported: {})", path.display(), one_line(name), crate::Architecture::LIST)]
    UnsupportedArchitecture {
        /// The file that names the architecture.
        path: PathBuf,
        /// The name found there.
        name: String,
    },
    /// A tensor is stored in a type that cannot be read.
    #[error("`{}`: tensor `{}` is stored as {}, which is not supported (supported: {})", path.display(), one_line(tensor), one_line(dtype), crate::DType::LIST)]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// The type's name in the file's own words.
        dtype: String,
    },
    /// A tensor that the configuration requires is not in the files.
    #[error("`{}`: tensor `{}` is missing", path.display(), one_line(tensor))]
    MissingTensor {
        /// The file or directory.
        path: PathBuf,
        /// The name that was looked for.
        tensor: String,
    },
    /// No model of that name is on this machine.
    #[error("model `{name}`: {looked}; {hint}")]
    NotFound {
        /// The name as given.
        name: String,
        /// Where it was looked for.
        looked: String,
        /// What would help.
        hint: String,
    },
    /// A file could not be fetched.
    #[error("cannot fetch `{what}`: {problem}")]
    Fetch {
        /// The address, package or file.
        what: String,
        /// What went wrong.
        problem: String,
    },
}

impl ModelError {
    /// Shorthand for [`ModelError::Invalid`].
    pub fn invalid(path: impl Into<PathBuf>, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), field: field.into(), problem: problem.into() }
    }

    /// Shorthand for [`ModelError::Io`].
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// Shorthand for [`ModelError::Write`].
    pub fn write(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Write { path: path.into(), source }
    }
}

/// Text that may come from a hostile file, as part of a one-line message: control characters escaped, cut off
/// when long.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
