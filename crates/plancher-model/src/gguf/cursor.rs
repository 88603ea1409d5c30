//! Reads the little-endian fields of a GGUF header, never past the end, naming the field that is cut off.

use std::path::Path;

use crate::{ModelError, Result};

/// The longest key or tensor name; real ones stay below 64 bytes.
const MAX_NAME: usize = 256;

/// A position in the bytes of a file.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(super) fn invalid(&self, field: &str, problem: impl Into<String>) -> ModelError {
        ModelError::invalid(self.path, field, problem)
    }

    /// The next `length` bytes of `field`.
    pub(super) fn take(&mut self, field: &str, length: usize) -> Result<&'a [u8]> {
        if length > self.remaining() {
            let problem = format!(
                "needs {length} bytes at byte {}, but the file ends at byte {}",
                self.position,
                self.bytes.len()
            );
            return Err(self.invalid(field, problem));
        }
        let taken = &self.bytes[self.position..self.position + length];
        self.position += length;
        Ok(taken)
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(field, 4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(field, 8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// A count of things that take at least `least` bytes each, so that the rest of the file bounds it.
    pub(super) fn count(&mut self, field: &str, least: usize) -> Result<usize> {
        let count = self.u64(field)?;
        match usize::try_from(count) {
            Ok(n) if n <= self.remaining() / least => Ok(n),
            _ => {
                let problem = format!(
                    "is {count}, which at {least} bytes each or more does not fit in the {} bytes that follow",
                    self.remaining()
                );
                Err(self.invalid(field, problem))
            }
        }
    }

    /// The bytes of a string: a length, then as many bytes.
    pub(super) fn string(&mut self, field: &str) -> Result<&'a [u8]> {
        let length = self.count(field, 1)?;
        self.take(field, length)
    }

    /// A key or a tensor's name: short and printable, so that it can be shown in one line.
    pub(super) fn name(&mut self, field: &str) -> Result<&'a str> {
        let bytes = self.string(field)?;
        match std::str::from_utf8(bytes) {
            Ok(name) if (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control) => Ok(name),
            _ => {
                let shown = super::metadata::shown(bytes);
                let problem = format!("is `{shown}` of {} bytes, expected a name of 1 to {MAX_NAME}", bytes.len());
                Err(self.invalid(field, problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end() {
        let bytes = [1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        let mut cursor = Cursor::new(Path::new("a.gguf"), &bytes);
        assert_eq!(cursor.u32("first").unwrap(), 1);
        insta::assert_snapshot!(cursor.clone().string("second").unwrap_err(), @"`a.gguf`: `second`: is 18446744073709551615, which at 1 bytes each or more does not fit in the 0 bytes that follow");
        assert_eq!(cursor.u32("second").unwrap(), u32::MAX);
        insta::assert_snapshot!(cursor.u64("third").unwrap_err(), @"`a.gguf`: `third`: needs 8 bytes at byte 8, but the file ends at byte 12");
    }
}
