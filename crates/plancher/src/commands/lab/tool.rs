//! NVIDIA's tools that watch the measuring process: where they are, which version they are, and what they write.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::file::read_text;

/// The program that was named, else the one called `name` in PATH or in CUDA's folders; `None` where it is not.
pub(super) fn find(named: Option<&Path>, name: &str) -> Option<PathBuf> {
    if let Some(named) = named {
        // A path must be there; a name is looked for.
        let is_name = named.components().count() == 1;
        return if is_name { in_path(named) } else { named.is_file().then(|| named.to_owned()) };
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = homes.chain(["/usr/local/cuda".into(), "/opt/cuda".into()]);
    in_path(Path::new(name)).or_else(|| folders.map(|home| home.join("bin").join(name)).find(|path| path.is_file()))
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// `ncu 2025.3.1.0`, of the tool called `name`.
pub(super) fn version(program: &Path, name: &str) -> String {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    version_in(&said).map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

/// The number behind `Version `, at the beginning of a line.
fn version_in(said: &str) -> Option<&str> {
    said.lines().rev().find_map(|line| line.trim().strip_prefix("Version ")?.split(' ').next())
}

/// A file that a tool writes and that is gone when it has been read.
pub(super) struct Log(PathBuf);

impl Log {
    /// One that no other run of this program writes to.
    pub(super) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(format!("plancher-{name}-{process}-{count}.txt")))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What was written; nothing if nothing was.
    pub(super) fn text(&self) -> String {
        read_text(&self.0).unwrap_or_default()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // It is not there if nothing was written.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_tools_print_them() {
        let said =
            "NVIDIA (R) Compute Sanitizer\nCopyright (c) 2020-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 1)\n";
        assert_eq!(version_in(said), Some("2025.3.1.0"));
        assert_eq!(version_in("Version"), None);
        assert_eq!(version(Path::new("/no/such/program"), "ncu"), "ncu");
    }

    #[test]
    fn logs_have_files_of_their_own_that_go_with_them() {
        let (first, second) = (Log::new("test"), Log::new("test"));
        assert_ne!(first.path(), second.path());
        assert_eq!(first.text(), "");
        std::fs::write(first.path(), "said").expect("writable");
        assert_eq!(first.text(), "said");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
