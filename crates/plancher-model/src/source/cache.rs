//! The Hugging Face cache on disk: `models--org--name/{refs,snapshots,blobs}`.

use std::path::{Path, PathBuf};

use super::name::RepositoryName;
use crate::{ModelError, Result};

/// A repository's directory in the cache.
pub(super) struct CachedRepository {
    root: PathBuf,
}

impl CachedRepository {
    pub(super) fn new(hub_cache: &Path, repository: &RepositoryName) -> Self {
        Self { root: hub_cache.join(format!("models--{}--{}", repository.owner, repository.name)) }
    }

    /// The directory itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a file's bytes are kept, by its hash.
    pub(super) fn blob(&self, hash: &str) -> PathBuf {
        self.root.join("blobs").join(hash)
    }

    /// The files of a commit.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// The snapshot that a branch, tag or commit names here, if it is there.
    pub(super) fn find(&self, revision: &str) -> Option<PathBuf> {
        let commit = std::fs::read_to_string(self.root.join("refs").join(revision)).ok();
        let commit = commit.as_deref().map(str::trim).filter(|commit| is_commit(commit)).unwrap_or(revision);
        let snapshot = self.snapshot(commit);
        snapshot.is_dir().then_some(snapshot)
    }

    /// Records that `revision` is `commit`.
    pub(super) fn record(&self, revision: &str, commit: &str) -> Result<()> {
        if revision == commit {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        create_parent(&path)?;
        std::fs::write(&path, commit).map_err(|e| ModelError::write(&path, e))
    }

    /// Makes `file` of a snapshot point to a blob.
    pub(super) fn link(&self, commit: &str, file: &str, hash: &str) -> Result<()> {
        let path = self.snapshot(commit).join(file);
        create_parent(&path)?;
        if path.exists() {
            return Ok(());
        }
        let up = "../".repeat(file.matches('/').count() + 2);
        // A link that leads nowhere is in the way of a new one.
        let _ = std::fs::remove_file(&path);
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(format!("{up}blobs/{hash}"), &path);
        #[cfg(not(unix))]
        let linked = std::fs::copy(self.blob(hash), &path).map(|_| drop(up));
        match linked {
            // Another pull of the same repository was faster.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
            linked => linked.map_err(|e| ModelError::write(&path, e)),
        }
    }
}

/// Whether a text is a commit's hash.
pub(super) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Creates the directory a file lies in.
pub(super) fn create_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(parent).map_err(|e| ModelError::write(parent, e))
}

/// The files below a directory, as paths relative to it with `/`, sorted.
pub(super) fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![(directory.to_owned(), String::new(), 0)];
    while let Some((path, prefix, depth)) = open.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // Links lead to blobs: what they are counts.
            if entry.path().is_file() {
                files.push(name);
            } else if entry.path().is_dir() && depth < 4 {
                open.push((entry.path(), format!("{name}/"), depth + 1));
            }
        }
    }
    files.sort();
    files
}
