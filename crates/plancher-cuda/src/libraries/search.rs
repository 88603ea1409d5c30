//! Where NVIDIA's libraries are: directories in the order in which they are looked into, and the newest file there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// One of the libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The driver's library, which comes with the driver.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Clocks, power and temperature; comes with the driver.
    Nvml,
}

impl Kind {
    /// What the library's file name begins with.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Driver => "libcuda.so.1",
            Self::Nvrtc => "libnvrtc.so",
            Self::CublasLt => "libcublasLt.so",
            Self::Nvml => "libnvidia-ml.so.1",
        }
    }

    /// What to install if it is missing.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Driver | Self::Nvml => "install the NVIDIA driver",
            Self::Nvrtc => {
                "run `pip install nvidia-cuda-nvrtc` (or install the CUDA toolkit) and set `PLANCHER_NVRTC_DIR` to the folder of `libnvrtc.so`"
            }
            Self::CublasLt => "run `pip install nvidia-cublas`, or install the CUDA toolkit",
        }
    }

    /// Whether this comes with the driver, and so is no business of toolkits and wheels.
    const fn is_of_the_driver(self) -> bool {
        matches!(self, Self::Driver | Self::Nvml)
    }
}

/// What the search reads: environment variables and a file system. Tests give it their own.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: Vec<(String, OsString)>,
    root: PathBuf,
}

impl Environment {
    /// This process's environment and file system.
    #[must_use]
    pub fn of_process() -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self { variables: variables.collect(), root: "/".into() }
    }

    /// The given variables, and a file system that begins at `root`.
    #[must_use]
    pub fn with(variables: &[(&str, &Path)], root: &Path) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.as_os_str().to_owned()));
        Self { variables: variables.collect(), root: root.to_owned() }
    }

    /// The absolute directories that a variable lists, separated by colons.
    fn directories(&self, name: &str) -> Vec<PathBuf> {
        let values = self.variables.iter().filter(|(variable, _)| variable == name);
        let listed = values.flat_map(|(_, value)| std::env::split_paths(value).collect::<Vec<_>>());
        listed.filter(|path| path.is_absolute()).collect()
    }

    /// A directory of the file system.
    fn rooted(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Every directory in which `kind` may lie, in order of preference, without repetition.
    #[must_use]
    pub fn places(&self, kind: Kind) -> Vec<PathBuf> {
        let mut places = Vec::new();
        if kind.is_of_the_driver() {
            places.extend(self.directories("LD_LIBRARY_PATH"));
        } else {
            places.extend(self.directories("PLANCHER_NVRTC_DIR"));
            for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
                places.extend(self.directories(name).iter().flat_map(|prefix| python_folders(&prefix.join("lib"))));
            }
            for name in ["CUDA_HOME", "CUDA_PATH"] {
                places.extend(self.directories(name).iter().flat_map(|home| [home.join("lib64"), home.join("lib")]));
            }
            places.extend(self.directories("LD_LIBRARY_PATH"));
            places.push(self.rooted("usr/local/cuda/lib64"));
        }
        let multiarch = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        for system in [multiarch.as_str(), "usr/lib64", "usr/lib", "usr/lib/wsl/lib", "usr/local/nvidia/lib64"] {
            places.push(self.rooted(system));
        }
        if !kind.is_of_the_driver() {
            for program in self.directories("PATH").iter().map(|place| place.join("python3")) {
                // A virtual environment's program is a link: its own folder and the one it points to both have packages.
                let real = program.canonicalize().ok().filter(|real| *real != program);
                for python in [Some(program), real].into_iter().flatten().filter(|python| python.is_file()) {
                    let prefix = python.parent().and_then(Path::parent);
                    places.extend(prefix.into_iter().flat_map(|prefix| python_folders(&prefix.join("lib"))));
                }
            }
            for home in self.directories("HOME") {
                places.extend(python_folders(&home.join(".local/lib")));
            }
            places.extend(python_folders(&self.rooted("usr/local/lib")));
            places.extend(python_folders(&self.rooted("usr/lib")));
        }
        let mut seen = std::collections::HashSet::new();
        places.retain(|place| seen.insert(place.clone()));
        places
    }

    /// Every directory in which NVIDIA's programs may lie: beside the libraries, and where the shell looks.
    #[must_use]
    pub(crate) fn tool_places(&self) -> Vec<PathBuf> {
        let libraries = self.places(Kind::Nvrtc);
        // `bin` beside `lib`, and the bare folder, where wheels are unpacked by hand.
        let beside = libraries.iter().flat_map(|place| [place.clone(), place.join("../bin")]);
        let mut places: Vec<PathBuf> = beside.chain(self.directories("PATH")).collect();
        let mut seen = std::collections::HashSet::new();
        places.retain(|place| place.is_dir() && seen.insert(place.clone()));
        places
    }

    /// Looks for a library.
    #[must_use]
    pub fn find(&self, kind: Kind) -> Library {
        let looked_in = self.places(kind);
        let found = looked_in.iter().find_map(|directory| newest(directory, kind.file()));
        Library { kind, found, looked_in }
    }
}

/// The folders in which NVIDIA's wheels and PyTorch keep libraries, below `lib/python3.*/{site,dist}-packages`.
fn python_folders(lib: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for python in entries(lib, "python3") {
        for packages in ["site-packages", "dist-packages"].map(|name| lib.join(&python).join(name)) {
            let nvidia = packages.join("nvidia");
            folders.extend(entries(&nvidia, "").iter().map(|package| nvidia.join(package).join("lib")));
            folders.push(packages.join("torch/lib"));
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// The names in a directory that begin with `prefix`, newest version first.
fn entries(directory: &Path, prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort_by_key(|name| std::cmp::Reverse((numbers(name), name.clone())));
    names
}

/// The numbers in a name: `libnvrtc.so.13` is newer than `libnvrtc.so.9`.
fn numbers(name: &str) -> Vec<u64> {
    let digits = name.split(|character: char| !character.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// The newest file of a directory whose name is `file`, or `file` and a version.
fn newest(directory: &Path, file: &str) -> Option<PathBuf> {
    let matches = |name: &String| name == file || name[file.len()..].starts_with('.');
    entries(directory, file).into_iter().find(matches).map(|name| directory.join(name))
}

/// A library that was looked for.
#[derive(Debug, Clone, Serialize)]
pub struct Library {
    /// Which.
    pub kind: Kind,
    /// Where it is.
    pub found: Option<PathBuf>,
    /// Directories that were looked into.
    pub looked_in: Vec<PathBuf>,
}

impl Library {
    /// The directories, separated by commas.
    #[must_use]
    pub fn directories(&self) -> String {
        let directories: Vec<String> = self.looked_in.iter().map(|path| path.display().to_string()).collect();
        directories.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().expect("below a directory")).expect("a directory");
        std::fs::write(path, "").expect("writable");
        path.to_owned()
    }

    #[test]
    fn the_newest_library_of_the_first_place_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let virtual_environment = root.join("venv");
        let system = file(&root.join("usr/local/cuda/lib64/libnvrtc.so.12"));
        let environment = Environment::with(&[("VIRTUAL_ENV", &virtual_environment)], root);
        assert_eq!(environment.find(Kind::Nvrtc).found, Some(system));
        file(&virtual_environment.join("lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
        let newest =
            file(&virtual_environment.join("lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.13"));
        file(&virtual_environment.join("lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.sock"));
        assert_eq!(environment.find(Kind::Nvrtc).found, Some(newest));
        let own = file(&root.join("own/libnvrtc.so.12"));
        let environment = Environment::with(
            &[("VIRTUAL_ENV", &virtual_environment), ("PLANCHER_NVRTC_DIR", &root.join("own"))],
            root,
        );
        assert_eq!(environment.find(Kind::Nvrtc).found, Some(own));
    }

    #[test]
    fn newer_python_and_newer_toolkits_come_first() {
        let root = tempfile::tempdir().expect("a directory");
        let lib = root.path().join("usr/local/lib");
        for python in ["python3.9", "python3.12"] {
            for cuda in ["cu12", "cu13"] {
                file(&lib.join(python).join("dist-packages/nvidia").join(cuda).join("lib/libcublasLt.so.13"));
            }
        }
        let found = Environment::with(&[], root.path()).find(Kind::CublasLt).found.expect("there");
        assert_eq!(found, lib.join("python3.12/dist-packages/nvidia/cu13/lib/libcublasLt.so.13"));
    }

    #[cfg(unix)]
    #[test]
    fn the_packages_of_the_python_in_the_path_are_looked_into() {
        let root = tempfile::tempdir().expect("a directory");
        let real = file(&root.path().join("opt/python/bin/python3.12"));
        let packages = root.path().join("opt/python/lib/python3.12/site-packages/nvidia/cu13/lib");
        let nvrtc = file(&packages.join("libnvrtc.so.13"));
        let bin = root.path().join("bin");
        std::fs::create_dir(&bin).expect("a directory");
        std::os::unix::fs::symlink(real, bin.join("python3")).expect("a link");
        let environment = Environment::with(&[("PATH", &bin)], root.path());
        assert_eq!(environment.find(Kind::Nvrtc).found, nvrtc.canonicalize().ok());
    }

    #[test]
    fn a_missing_library_names_the_places_and_the_driver_is_not_sought_among_wheels() {
        let root = tempfile::tempdir().expect("a directory");
        let home = root.path().join("cuda");
        let environment =
            Environment::with(&[("CUDA_HOME", &home), ("LD_LIBRARY_PATH", Path::new("relative"))], root.path());
        let nvrtc = environment.find(Kind::Nvrtc);
        assert_eq!(nvrtc.found, None);
        assert_eq!(nvrtc.looked_in[0], home.join("lib64"));
        assert!(nvrtc.directories().contains("usr/local/cuda/lib64"));
        let driver = environment.find(Kind::Driver);
        assert!(driver.looked_in.iter().all(|place| !place.starts_with(&home)));
        let there = file(&root.path().join("usr/lib64/libcuda.so.1"));
        assert_eq!(environment.find(Kind::Driver).found, Some(there));
    }
}
