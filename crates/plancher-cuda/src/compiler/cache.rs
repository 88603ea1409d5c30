//! Compiled kernels on disk. An entry's name is a hash of everything that decides its contents, and its contents carry
//! their own hash: whatever a crash or a full disk left there is compiled again. The cache never causes an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

/// The first bytes of an entry; another number, another layout.
const MAGIC: &[u8; 8] = b"PLCUBIN1";
/// Bytes of a hash.
const HASH: usize = 32;
/// Bytes before the log: magic, hash of the rest, length of the log.
const HEADER: usize = 8 + HASH + 8;

/// A directory of entries, or nothing.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    directory: Option<PathBuf>,
}

/// The name of the entry for this text, compiled with these options by this compiler.
pub(super) fn key(text: &str, options: &[String], compiler: &str) -> String {
    let mut hash = Sha256::new();
    for part in [compiler, text].into_iter().chain(options.iter().map(String::as_str)) {
        // With its length, so that no two lists of parts run together to the same bytes.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// The hash of a text, in hexadecimal.
pub(super) fn hash_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Cache {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// The user's cache.
    pub(super) fn of_user() -> Self {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Self::new(cache.map(|cache| cache.join("plancher/cubin")))
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(format!("{key}.cubin")))
    }

    /// The log and the code, if there is a whole entry.
    pub(super) fn load(&self, key: &str) -> Option<(String, Vec<u8>)> {
        decode(&fs::read(self.path(key)?).ok()?)
    }

    /// Keeps an entry, if that is possible.
    pub(super) fn store(&self, key: &str, log: &str, code: &[u8]) {
        if let Some(path) = self.path(key) {
            // A full or read-only disk only costs time at the next start.
            let _ = write(&path, &encode(log, code));
        }
    }
}

/// Writes a file so that others see either nothing or all of it.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let unique = format!("{}.{}.temporary", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let temporary = path.with_extension(unique);
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn encode(log: &str, code: &[u8]) -> Vec<u8> {
    let mut rest = (log.len() as u64).to_le_bytes().to_vec();
    rest.extend_from_slice(log.as_bytes());
    rest.extend_from_slice(code);
    [MAGIC.as_slice(), &Sha256::digest(&rest), &rest].concat()
}

fn decode(entry: &[u8]) -> Option<(String, Vec<u8>)> {
    let hash = entry.get(8..8 + HASH).filter(|_| entry.starts_with(MAGIC))?;
    let rest = &entry[8 + HASH..];
    if Sha256::digest(rest).as_slice() != hash {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(rest.get(..8)?.try_into().ok()?)).ok()?;
    let end = HEADER.checked_add(length).filter(|&end| end <= entry.len())?;
    let log = String::from_utf8(entry[HEADER..end].to_vec()).ok()?;
    Some((log, entry[end..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_and_no_temporary_file_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = Cache::new(Some(directory.path().join("deep/er")));
        assert_eq!(cache.load("key"), None);
        cache.store("key", "log", b"\x7fELF");
        assert_eq!(cache.load("key"), Some(("log".to_owned(), b"\x7fELF".to_vec())));
        let files: Vec<_> = fs::read_dir(directory.path().join("deep/er")).expect("there").collect();
        assert_eq!(files.len(), 1);
    }

    #[test]
    fn a_damaged_entry_is_none() {
        let entry = encode("log", b"some code");
        for length in 0..entry.len() {
            assert_eq!(decode(&entry[..length]), None, "cut to {length}");
        }
        for index in 0..entry.len() {
            let mut damaged = entry.clone();
            damaged[index] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {index}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_none_even_with_the_right_hash() {
        for length in [100, u64::MAX] {
            let rest = length.to_le_bytes();
            let entry = [MAGIC.as_slice(), &Sha256::digest(rest), &rest].concat();
            assert_eq!(decode(&entry), None);
        }
    }

    #[test]
    fn every_part_decides_the_key() {
        let options = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let keys = [
            key("text", &options(&["a", "b"]), "13.0"),
            key("text", &options(&["ab"]), "13.0"),
            key("text", &options(&["b", "a"]), "13.0"),
            key("text", &options(&["a", "b"]), "13.5"),
            key("texta", &options(&["b"]), "13.0"),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key));
            assert_eq!(key.len(), 64);
        }
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_nothing_fails() {
        let cache = Cache::new(None);
        cache.store("key", "log", b"code");
        assert_eq!(cache.load("key"), None);
        let file = tempfile::NamedTempFile::new().expect("a file");
        Cache::new(Some(file.path().join("below a file"))).store("key", "log", b"code");
    }
}
