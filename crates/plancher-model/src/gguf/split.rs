//! Models split over several files, `NAME-00001-of-0000N.gguf`: the first one has the metadata, and opening it
//! opens all.

use std::path::{Path, PathBuf};

use super::container::Gguf;
use crate::{MappedFile, ModelError, Result};

/// The number of parts is a u16.
const MAX_PARTS: u64 = 65_535;

/// Maps `path` and, when its metadata says so, all other parts.
pub(super) fn map_parts(path: &Path) -> Result<Vec<MappedFile>> {
    let first = MappedFile::open(path)?;
    let count = {
        let header = Gguf::parse(first.path(), first.bytes())?;
        let count = header.metadata.unsigned("split.count")?.unwrap_or(1);
        if count > MAX_PARTS {
            return Err(header.metadata.invalid("split.count", format!("is {count}, expected 1 to {MAX_PARTS}")));
        }
        count
    };
    if count <= 1 {
        return Ok(vec![first]);
    }
    let prefix = path.file_name().and_then(|name| name.to_str()).and_then(|name| {
        let (prefix, _) = name.strip_suffix(&format!("-of-{count:05}.gguf"))?.rsplit_once('-')?;
        Some(prefix.to_owned())
    });
    let Some(prefix) = prefix else {
        let problem = format!("is {count}, so the file's name should end in `-00001-of-{count:05}.gguf`");
        return Err(ModelError::invalid(path, "split.count", problem));
    };
    let part = |number: u64| -> PathBuf { path.with_file_name(format!("{prefix}-{number:05}-of-{count:05}.gguf")) };
    if path != part(1) {
        let problem = format!("is {count}: open the first part, `{}`", part(1).display());
        return Err(ModelError::invalid(path, "split.count", problem));
    }
    let mut files = vec![first];
    for number in 2..=count {
        files.push(MappedFile::open(&part(number))?);
    }
    Ok(files)
}

/// Parses all parts and checks that they belong together.
pub(super) fn parse_parts(files: &[MappedFile]) -> Result<Vec<Gguf<'_>>> {
    let parts: Vec<Gguf<'_>> =
        files.iter().map(|file| Gguf::parse(file.path(), file.bytes())).collect::<Result<_>>()?;
    if parts.len() == 1 {
        return Ok(parts);
    }
    for (i, part) in parts.iter().enumerate() {
        for (key, expected) in [("split.no", i), ("split.count", parts.len())] {
            let found = part.metadata.unsigned(key)?;
            if found != Some(expected as u64) {
                let found = found.map_or_else(|| "missing".to_owned(), |n| n.to_string());
                return Err(part.metadata.invalid(key, format!("is {found}, expected {expected}")));
            }
        }
    }
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    match parts[0].metadata.unsigned("split.tensors.count")? {
        Some(expected) if expected != found as u64 => {
            let problem = format!("is {expected}, but the parts have {found} tensors");
            Err(parts[0].metadata.invalid("split.tensors.count", problem))
        }
        _ => Ok(parts),
    }
}
