//! The hash that ties a measured figure to the code that was timed: SHA-256 over the names and contents of a crate's
//! sources, so that a figure whose code has changed is seen to be stale.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// The hash of `crates/NAME/src/**` of every named crate, in the order given, but for `src/gpu/`: that is code about the
/// programs of another processor, which a figure of this one has not run (a GPU's figures name their kernels instead).
pub(crate) fn of_crates<S: AsRef<str>>(root: &Path, crates: &[S]) -> Result<String> {
    let mut hasher = Sha256::new();
    for name in crates {
        let source = root.join("crates").join(name.as_ref()).join("src");
        let mut files = Vec::new();
        collect(&source, &mut files).with_context(|| format!("`{}`", source.display()))?;
        let elsewhere = source.join("gpu");
        files.retain(|file| !file.starts_with(&elsewhere));
        files.sort();
        for file in files {
            let relative = file.strip_prefix(root)?.to_string_lossy().into_owned();
            let content = std::fs::read(&file)?;
            hasher.update(relative.as_bytes());
            hasher.update((content.len() as u64).to_le_bytes());
            hasher.update(&content);
        }
    }
    Ok(hex(&hasher.finalize()))
}

/// The hash of one file's contents.
pub(crate) fn of_file(path: &Path) -> Result<String> {
    let content = std::fs::read(path).with_context(|| format!("`{}`", path.display()))?;
    Ok(hex(&Sha256::digest(content)))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs" || e == "cu") {
            files.push(path);
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_about_another_processor_is_not_what_was_timed() -> Result<()> {
        let root = tempfile::tempdir()?;
        let source = root.path().join("crates/program/src");
        std::fs::create_dir_all(source.join("gpu"))?;
        std::fs::write(source.join("lib.rs"), "mod gpu;")?;
        let before = of_crates(root.path(), &["program"])?;
        std::fs::write(source.join("gpu/mod.rs"), "//! A plan.")?;
        assert_eq!(of_crates(root.path(), &["program"])?, before);
        std::fs::write(source.join("gpu.rs"), "//! A plan.")?;
        assert_ne!(of_crates(root.path(), &["program"])?, before);
        Ok(())
    }
}
