//! JSON files of unknown origin: read with a bound on their size, and their fields fetched with the type that
//! is expected, so that every message names the file, the field and the value found.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{ModelError, Result, limits};

/// The largest `config.json` or `generation_config.json` that is read (real ones have a few kilobytes).
const MAX_BYTES: u64 = 4 << 20;

/// Opens a regular file. Anything else is refused before it is opened: opening a pipe would wait for a writer.
///
/// # Errors
/// When the file cannot be opened or is not a regular file.
pub(crate) fn open_regular(path: &Path) -> Result<std::fs::File> {
    let metadata = std::fs::metadata(path).map_err(|e| ModelError::io(path, e))?;
    if !metadata.is_file() {
        return Err(ModelError::invalid(path, "file", "is not a regular file"));
    }
    std::fs::File::open(path).map_err(|e| ModelError::io(path, e))
}

/// Reads at most `maximum` bytes of a file.
///
/// # Errors
/// When the file cannot be read or is larger.
pub(crate) fn read_bounded(path: &Path, maximum: u64) -> Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(maximum + 1).read_to_end(&mut bytes).map_err(|e| ModelError::io(path, e))?;
    if bytes.len() as u64 > maximum {
        return Err(ModelError::invalid(path, "file", format!("is larger than {maximum} bytes")));
    }
    Ok(bytes)
}

/// Reads at most `maximum` bytes of a file that need not be there.
///
/// # Errors
/// When the file is there and cannot be read or is larger.
pub(crate) fn read_optional(path: &Path, maximum: u64) -> Result<Option<Vec<u8>>> {
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ModelError::io(path, error)),
        Ok(metadata) if !metadata.is_file() => Err(ModelError::invalid(path, "file", "is not a regular file")),
        Ok(_) => read_bounded(path, maximum).map(Some),
    }
}

/// Reads a small file that holds one JSON object.
///
/// # Errors
/// When the file cannot be read, is larger than 4 MiB or is not a JSON object (at most 128 levels deep).
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let bytes = read_bounded(path, MAX_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|e| ModelError::invalid(path, "file", format!("is not a JSON object: {e}")))
}

/// The fields of a JSON object, with what messages need. A field that is `null` counts as absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    path: &'a Path,
    /// Names of the enclosing field, for messages.
    within: Option<&'a str>,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The fields of a file's top-level object.
    pub(crate) fn new(path: &'a Path, object: &'a Map<String, Value>) -> Self {
        Self { path, within: None, object }
    }

    /// The file.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The name of the field that holds this object; nothing for the top level.
    pub(crate) fn name(&self) -> Option<&'a str> {
        self.within
    }

    /// An error about field `name`.
    pub(crate) fn invalid(&self, name: &str, problem: impl Into<String>) -> ModelError {
        let field = self.within.map_or_else(|| name.to_owned(), |outer| format!("{outer}.{name}"));
        ModelError::invalid(self.path, field, problem)
    }

    fn unexpected(&self, name: &str, value: &Value, expected: &str) -> ModelError {
        self.invalid(name, format!("is {value}, expected {expected}"))
    }

    /// The names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.object.keys().map(String::as_str)
    }

    /// Whether the field is there, even as `null`.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// The field's value.
    pub(crate) fn value(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A size from 1 to `maximum`.
    pub(crate) fn size(&self, name: &str, maximum: usize) -> Result<Option<usize>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let size = value.as_u64().and_then(|n| limits::size(self.path, name, n, maximum).ok());
        size.map(Some).ok_or_else(|| self.unexpected(name, value, &format!("an integer from 1 to {maximum}")))
    }

    /// A size that must be there.
    pub(crate) fn required_size(&self, name: &str, maximum: usize) -> Result<usize> {
        self.size(name, maximum)?.ok_or_else(|| self.invalid(name, "is missing"))
    }

    /// A finite number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_f64().filter(|n| n.is_finite());
        number.map(Some).ok_or_else(|| self.unexpected(name, value, "a number"))
    }

    /// A finite number above zero.
    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>> {
        let number = self.number(name)?;
        if number.is_some_and(|n| n <= 0.0 || !(n as f32).is_normal()) {
            let value = self.value(name).unwrap_or(&Value::Null);
            return Err(self.unexpected(name, value, "a number above 0 that f32 can hold"));
        }
        Ok(number)
    }

    /// A positive number that must be there.
    pub(crate) fn required_positive(&self, name: &str) -> Result<f64> {
        self.positive(name)?.ok_or_else(|| self.invalid(name, "is missing"))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.unexpected(name, value, "true or false"))
    }

    /// A string.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.unexpected(name, value, "a string"))
    }

    /// A list.
    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [Value]>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| self.unexpected(name, value, "a list"))
    }

    /// A nested object.
    pub(crate) fn object(&self, name: &'a str) -> Result<Option<Fields<'a>>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| self.unexpected(name, value, "an object"))?;
        Ok(Some(Fields { path: self.path, within: Some(name), object }))
    }

    /// Token ids: one, or a list of them; none when absent.
    pub(crate) fn tokens(&self, name: &str) -> Result<Vec<u32>> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(list) => list.iter().map(one).collect(),
            single => one(single).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.unexpected(name, value, "a token id or a list of token ids"))
    }
}
