//! Files that a user has written: all of it or nothing, and never over something that is not of their kind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// What is written, which is all that may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A recorded run.
    Record,
    /// A page.
    Html,
    /// A drawing.
    Svg,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Record => "a JSON record",
            Self::Html => "an HTML page",
            Self::Svg => "an SVG drawing",
        }
    }

    /// Whether a file that begins so is of this kind.
    fn begins(self, start: &str) -> bool {
        let start = start.trim_start().to_ascii_lowercase();
        match self {
            Self::Record => start.starts_with('{') && start.contains("\"schema\""),
            Self::Html => start.starts_with("<!doctype html") || start.starts_with("<html"),
            Self::Svg => start.starts_with("<svg") || start.starts_with("<?xml"),
        }
    }
}

/// Whether a file can be written at `path` later on: its folder takes files, and what is there is of the same kind. The line
/// says what is wrong.
pub(crate) fn require_writable(path: &Path, kind: Kind) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write `{}`: {error}", path.display());
    if path.as_os_str() == "-" {
        return Err("`-` is no file here: name one".to_owned());
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(format!("cannot write `{}`: it is no file", path.display())),
        Ok(_) => {
            let mut start = Vec::new();
            File::open(path).map_err(failed)?.take(4096).read_to_end(&mut start).map_err(failed)?;
            let start = String::from_utf8_lossy(&start);
            if !start.is_empty() && !kind.begins(&start) {
                let what = kind.name();
                return Err(format!("`{}` is there and is not {what}: it is left as it is", path.display()));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let beside = beside(path);
    create(&beside).map_err(failed)?;
    fs::remove_file(&beside).map_err(failed)
}

/// Writes all of a file or, where that fails, leaves what was there.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let beside = beside(path);
    let write = || -> std::io::Result<()> {
        let mut file = create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // What a link leads to is replaced, not the link.
        fs::rename(&beside, fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
    };
    write().map_err(|error| {
        // It may not be there.
        let _ = fs::remove_file(&beside);
        format!("cannot write `{}`: {error}", path.display())
    })
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// A name in the folder of the file itself, so that renaming is not copying.
fn beside(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.partial", std::process::id()))
}

/// Whether two paths are the same file, be it there or not.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| {
        fs::canonicalize(path).ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
        })
    };
    a == b || whole(a).zip(whole(b)).is_some_and(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_the_same_kind_is_overwritten_and_nothing_is_left_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab.html");
        require_writable(&path, Kind::Html).unwrap();
        write_whole(&path, "<!DOCTYPE html>\n").unwrap();
        require_writable(&path, Kind::Html).unwrap();
        for kind in [Kind::Record, Kind::Svg] {
            let error = require_writable(&path, kind).unwrap_err();
            assert!(error.contains("it is left as it is"), "{error}");
        }
        write_whole(&path, "<html>").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<html>");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_said_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/run.json");
        for path in [missing.as_path(), folder.path(), Path::new("-")] {
            assert!(require_writable(path, Kind::Record).is_err(), "{}", path.display());
        }
        assert!(write_whole(&missing, "{}").is_err());
    }

    #[test]
    fn one_file_has_several_paths() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, dotted) = (folder.path().join("a"), folder.path().join("./a"));
        assert!(is_same(&plain, &dotted) && !is_same(&plain, &folder.path().join("b")));
    }
}
