//! Text files that a user names: read whole, but never without bound (a device file has no end).

mod writing;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub(crate) use writing::{Kind, is_same, require_writable, write_whole};

/// More than any configuration, hardware file, kernel, profile or report has.
const MOST_BYTES: u64 = 16 << 20;

/// The text of the file at `path`, or what is wrong with it in one line: it cannot be read, is not UTF-8 or is larger than
/// 16 MiB.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    let mut text = String::new();
    File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("`{}` has more than {MOST_BYTES} bytes", path.display()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_end_is_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error, "`/dev/zero` has more than 16777216 bytes");
    }

    #[test]
    fn a_missing_file_and_a_directory_are_named() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().join("nothing"), directory.path().to_owned()] {
            let error = read_text(&path).unwrap_err();
            assert!(error.starts_with(&format!("cannot read `{}`", path.display())), "{error}");
        }
    }
}
