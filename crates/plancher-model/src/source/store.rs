//! Writing a fetched file so that it is either complete and right or not there: a partial file beside it, a
//! checksum over every byte, a rename at the end, and a lock so that two processes do not write one file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use super::cache::create_parent;
use crate::{ModelError, Result};

/// A file that is being written.
pub(super) struct PartialFile {
    /// Where the complete file will be.
    target: PathBuf,
    /// Where its bytes go until then.
    partial: PathBuf,
    file: File,
    hasher: Sha256,
    length: u64,
    /// Held until the file is dropped.
    _lock: File,
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[digit as usize])).collect()
}

/// The error of a pull that was called off.
pub(super) fn cancelled(what: &Path) -> ModelError {
    ModelError::Fetch { what: what.display().to_string(), problem: "cancelled".to_owned() }
}

/// Whether `path` is a file of that size (or, when it is not known, any file).
pub(super) fn is_complete(path: &Path, bytes: Option<u64>) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && bytes.is_none_or(|bytes| bytes == metadata.len()))
}

/// `path` with `.suffix` behind its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

impl PartialFile {
    /// Opens the partial file of `target` and takes its lock, waiting while another process holds it. With
    /// `resume`, what an earlier try left is kept and hashed; otherwise it is thrown away.
    pub(super) fn open(target: &Path, resume: bool, stop: &AtomicBool) -> Result<Self> {
        create_parent(target)?;
        let lock_path = beside(target, ".lock");
        let lock = File::create(&lock_path).map_err(|e| ModelError::write(&lock_path, e))?;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(ModelError::write(&lock_path, error)),
                Err(TryLockError::WouldBlock) if stop.load(Ordering::Relaxed) => return Err(cancelled(target)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(100)),
            }
        }
        let partial = beside(target, ".incomplete");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(!resume);
        let file = options.open(&partial).map_err(|e| ModelError::write(&partial, e))?;
        let mut opened =
            Self { target: target.to_owned(), partial, file, hasher: Sha256::new(), length: 0, _lock: lock };
        opened.hash_existing(stop)?;
        Ok(opened)
    }

    fn hash_existing(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(cancelled(&self.target));
            }
            let count = self.file.read(&mut buffer).map_err(|e| ModelError::io(&self.partial, e))?;
            if count == 0 {
                return Ok(());
            }
            self.hasher.update(&buffer[..count]);
            self.length += count as u64;
        }
    }

    /// Bytes written so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether the target is there by now, of the size `bytes`: another process may have fetched it while this one
    /// waited for the lock. What was written is then removed.
    pub(super) fn is_superfluous(&self, bytes: Option<u64>) -> bool {
        let there = is_complete(&self.target, bytes);
        if there {
            let _ = std::fs::remove_file(&self.partial);
            let _ = std::fs::remove_file(beside(&self.target, ".lock"));
        }
        there
    }

    /// Throws away what was written.
    pub(super) fn restart(&mut self) -> Result<()> {
        let file = File::create(&self.partial).map_err(|e| ModelError::write(&self.partial, e))?;
        self.file = file;
        self.hasher = Sha256::new();
        self.length = 0;
        Ok(())
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| ModelError::write(&self.partial, e))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Checks size and hash and moves the file to its place. A file that is not what it should be is removed.
    pub(super) fn finish(self, bytes: Option<u64>, sha256: Option<&str>) -> Result<()> {
        let wrong = |problem: String| {
            let _ = std::fs::remove_file(&self.partial);
            ModelError::Fetch { what: self.target.display().to_string(), problem }
        };
        if let Some(expected) = bytes.filter(|expected| *expected != self.length) {
            return Err(wrong(format!("has {} bytes instead of {expected}; it was removed", self.length)));
        }
        let found = hex(&self.hasher.clone().finalize());
        if let Some(expected) = sha256.filter(|expected| *expected != found) {
            return Err(wrong(format!("its SHA-256 is `{found}` instead of `{expected}`; it was removed")));
        }
        self.file.sync_all().map_err(|e| ModelError::write(&self.partial, e))?;
        std::fs::rename(&self.partial, &self.target).map_err(|e| ModelError::write(&self.target, e))?;
        let _ = std::fs::remove_file(beside(&self.target, ".lock"));
        Ok(())
    }
}
