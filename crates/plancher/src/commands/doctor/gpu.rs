//! Whether an NVIDIA driver and NVRTC are installed, and if not, where they were looked for. Nothing is loaded: this
//! only looks at files.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// The driver and the run-time compiler.
#[derive(Serialize)]
pub(super) struct Gpu {
    pub(super) driver: Library,
    pub(super) nvrtc: Library,
}

/// A shared library that was looked for.
#[derive(Serialize)]
pub(super) struct Library {
    /// Where it is.
    found: Option<PathBuf>,
    /// What its version is, if that is known.
    version: Option<String>,
    /// Directories that were looked into.
    looked_in: Vec<PathBuf>,
}

impl Gpu {
    /// Looks for both.
    pub(super) fn look() -> Self {
        let mut nvrtc = environment_directories(&["PLANCHER_NVRTC_DIR"]);
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            nvrtc.extend(environment_directories(&[name]).into_iter().map(|home| home.join("lib64")));
        }
        nvrtc.extend(system_directories());
        nvrtc.push("/usr/local/cuda/lib64".into());
        let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
        let version = version.and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
        Self {
            driver: Library::look("libcuda.so.1", system_directories(), version),
            nvrtc: Library::look("libnvrtc.so", nvrtc, None),
        }
    }
}

impl Library {
    fn look(prefix: &str, mut directories: Vec<PathBuf>, version: Option<String>) -> Self {
        let mut seen = std::collections::HashSet::new();
        directories.retain(|directory| seen.insert(directory.clone()));
        let found = directories.iter().find_map(|directory| file_with_prefix(directory, prefix));
        Self { version: version.filter(|_| found.is_some()), found, looked_in: directories }
    }

    /// One line for people.
    pub(super) fn describe(&self) -> String {
        match (&self.found, &self.version) {
            (Some(path), Some(version)) => format!("{} ({version})", path.display()),
            (Some(path), None) => path.display().to_string(),
            (None, _) => {
                let directories: Vec<String> = self.looked_in.iter().map(|path| path.display().to_string()).collect();
                format!("not found (looked in {})", directories.join(", "))
            }
        }
    }
}

/// The first file of a directory, by name, that begins with `prefix`.
fn file_with_prefix(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).min().map(|name| directory.join(name))
}

/// Directories that environment variables list, separated by colons.
fn environment_directories(names: &[&str]) -> Vec<PathBuf> {
    let lists = names.iter().filter_map(std::env::var_os);
    lists.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).filter(|path| path.is_absolute()).collect()
}

fn system_directories() -> Vec<PathBuf> {
    let mut directories = environment_directories(&["LD_LIBRARY_PATH"]);
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    directories.extend([multiarch.as_str(), "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"].map(PathBuf::from));
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_by_its_name_and_a_missing_one_says_where_it_was_looked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let places = || vec![PathBuf::from("/nonexistent"), directory.path().to_owned()];
        let missing = Library::look("libnvrtc.so", places(), None);
        assert_eq!(missing.describe(), format!("not found (looked in /nonexistent, {})", directory.path().display()));
        std::fs::write(directory.path().join("libnvrtc.so.13"), "").expect("writable");
        let found = Library::look("libnvrtc.so", places(), None);
        assert_eq!(found.describe(), directory.path().join("libnvrtc.so.13").display().to_string());
    }
}
