//! Opening shared libraries by their path, without a panic whatever the file is.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::os::unix;

use super::{Environment, Kind};
use crate::{CudaError, Result};

/// A library in this process, never unloaded: its functions are kept in static tables.
#[derive(Debug)]
pub(crate) struct Loaded {
    kind: Kind,
    /// Where it was found.
    pub(crate) path: PathBuf,
    library: unix::Library,
}

impl Loaded {
    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the function's type.
    pub(crate) unsafe fn symbol<F: Copy>(&self, name: &'static str) -> Result<F> {
        // SAFETY: the caller vouches for the type.
        match unsafe { self.library.get::<F>(name.as_bytes()) } {
            Ok(symbol) => Ok(*symbol),
            Err(_) => Err(CudaError::SymbolMissing { library: self.kind.file(), symbol: name }),
        }
    }
}

/// Finds a library and loads it.
pub(crate) fn load(kind: Kind) -> Result<Loaded> {
    let search = Environment::of_process().find(kind);
    let missing =
        || CudaError::LibraryMissing { library: kind.file(), looked_in: search.directories(), advice: kind.advice() };
    let path = search.found.clone().ok_or_else(missing)?;
    if kind == Kind::Nvrtc {
        // NVRTC opens its companion by name, which only works if the folder is in the loader's path or the companion
        // is already there.
        for companion in companions(&path) {
            open(&companion, libloading::os::unix::RTLD_GLOBAL)?;
        }
    }
    let library = open(&path, unix::RTLD_LOCAL)?;
    Ok(Loaded { kind, path, library })
}

/// Loads a library so that a later `dlopen` of its bare name finds it. Success says nothing of the bare name: the
/// caller asks the binding whether its library is present.
pub(crate) fn preload(kind: Kind) -> Result<PathBuf> {
    let loaded = load(kind)?;
    let path = loaded.path.clone();
    std::mem::forget(loaded);
    Ok(path)
}

fn open(path: &Path, visibility: c_int) -> Result<unix::Library> {
    // SAFETY: loading runs the library's initialisers; these are NVIDIA's libraries, which are made to be loaded so.
    let library = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | visibility) };
    library.map_err(|error| {
        // "dlopen failed" alone helps nobody: what the loader says is the cause.
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let problem = cause.unwrap_or_else(|| error.to_string());
        let problem = problem.lines().next().unwrap_or_default().to_owned();
        CudaError::LibraryBroken { path: path.to_owned(), problem }
    })
}

/// NVRTC's built-in functions, which lie beside it.
fn companions(nvrtc: &Path) -> Vec<PathBuf> {
    let directory = nvrtc.parent().unwrap_or(Path::new("."));
    let names = std::fs::read_dir(directory).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // `libnvrtc.so.13` may be a link to `libnvrtc.so.13.0.88`; the companion of another version does no harm.
    names.filter(|name| name.starts_with("libnvrtc-builtins.so.")).map(|name| directory.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("libnvrtc.so.13");
        std::fs::write(&path, "no library").expect("writable");
        let error = open(&path, unix::RTLD_LOCAL).expect_err("no library");
        assert!(matches!(&error, CudaError::LibraryBroken { path: named, .. } if *named == path));
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(!error.to_string().ends_with("dlopen failed"), "the loader's reason is missing: {error}");
    }
}
