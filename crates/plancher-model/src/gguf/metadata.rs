//! The metadata of a GGUF file: keys with typed values, borrowed from the file's bytes. Getters say in one line
//! which key has the wrong type or value.

use std::collections::HashMap;
use std::path::Path;

use super::cursor::Cursor;
use crate::{ModelError, Result, limits};

/// Arrays may contain arrays, to this depth.
const MAX_DEPTH: usize = 4;

/// The type of a value (`gguf_metadata_value_type` of the specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Bytes of one value; nothing for strings and arrays.
    const fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    fn read(cursor: &mut Cursor<'_>, field: &str) -> Result<Self> {
        let id = cursor.u32(field)?;
        let kind = usize::try_from(id).ok().and_then(|id| Self::ALL.get(id));
        kind.copied().ok_or_else(|| cursor.invalid(field, format!("has value type {id}, expected 0 to 12")))
    }
}

/// A value of the metadata: its type and its stored bytes, whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GgufValue<'a> {
    kind: Kind,
    /// The type of the elements, and their number; for anything but an array the value itself, and 1.
    element: Kind,
    count: usize,
    bytes: &'a [u8],
}

/// A number as stored.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl<'a> GgufValue<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &str) -> Result<Self> {
        let kind = Kind::read(cursor, field)?;
        if kind == Kind::Array {
            return Self::read_array(cursor, field, 1);
        }
        let bytes = match kind.size() {
            Some(size) => cursor.take(field, size)?,
            None => cursor.string(field)?,
        };
        Ok(Self { kind, element: kind, count: 1, bytes })
    }

    fn read_array(cursor: &mut Cursor<'a>, field: &str, depth: usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            return Err(cursor.invalid(field, format!("nests arrays more than {MAX_DEPTH} deep")));
        }
        let element = Kind::read(cursor, field)?;
        let least = match element {
            Kind::Array => 12,
            other => other.size().unwrap_or(8),
        };
        let count = cursor.count(field, least)?;
        let mut end = cursor.clone();
        let start = cursor.position();
        match element.size() {
            // Cannot overflow: the count was bounded by what is left of the file.
            Some(size) => {
                end.take(field, count * size)?;
            }
            None => {
                for _ in 0..count {
                    if element == Kind::String {
                        end.string(field)?;
                    } else {
                        Self::read_array(&mut end, field, depth + 1)?;
                    }
                }
            }
        }
        let bytes = cursor.take(field, end.position() - start)?;
        Ok(Self { kind: Kind::Array, element, count, bytes })
    }

    /// What the type is, in words: `u32`, `array of string`.
    #[must_use]
    pub fn type_name(&self) -> String {
        match self.kind {
            Kind::Array => format!("array of {}", self.element.name()),
            kind => kind.name().to_owned(),
        }
    }

    fn numbers(&self) -> Option<impl ExactSizeIterator<Item = Number> + use<'a>> {
        let (element, size) = (self.element, self.element.size()?);
        Some(self.bytes.chunks_exact(size).map(move |b| number(element, b)))
    }
}

fn number(kind: Kind, b: &[u8]) -> Number {
    let mut word = [0; 8];
    word[..b.len()].copy_from_slice(b);
    let low = u64::from_le_bytes(word);
    Number::Integer(match kind {
        Kind::I8 => i128::from(low as u8 as i8),
        Kind::I16 => i128::from(low as u16 as i16),
        Kind::I32 => i128::from(low as u32 as i32),
        Kind::I64 => i128::from(low as i64),
        Kind::F32 => return Number::Float(f64::from(f32::from_bits(low as u32))),
        Kind::F64 => return Number::Float(f64::from_bits(low)),
        _ => i128::from(low),
    })
}

impl std::fmt::Display for GgufValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::String => write!(f, "`{}`", shown(self.bytes)),
            Kind::Array => write!(f, "{} × {}", self.count, self.element.name()),
            Kind::Bool if self.bytes[0] < 2 => write!(f, "{}", self.bytes[0] == 1),
            _ => match number(self.kind, self.bytes) {
                Number::Integer(n) => write!(f, "{n}"),
                Number::Float(n) => write!(f, "{n}"),
            },
        }
    }
}

/// Untrusted bytes as a short text of one line.
pub(super) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LONGEST)]);
    let mut short: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().count() > LONGEST {
        short.push('…');
    }
    short
}

/// The metadata of one file.
#[derive(Clone, Debug)]
pub struct GgufMetadata<'a> {
    path: &'a Path,
    entries: Vec<(&'a str, GgufValue<'a>)>,
    index: HashMap<&'a str, usize>,
}

impl<'a> GgufMetadata<'a> {
    /// Reads `count` keys with their values.
    pub(super) fn read(path: &'a Path, cursor: &mut Cursor<'a>, count: usize) -> Result<Self> {
        let mut metadata = Self { path, entries: Vec::new(), index: HashMap::new() };
        for i in 0..count {
            let key = cursor.name(&format!("metadata key {i}"))?;
            let value = GgufValue::read(cursor, key)?;
            if metadata.index.insert(key, i).is_some() {
                return Err(metadata.invalid(key, "is given twice"));
            }
            metadata.entries.push((key, value));
        }
        Ok(metadata)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Keys and values in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, GgufValue<'a>)> {
        self.entries.iter().copied()
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<GgufValue<'a>> {
        self.index.get(key).map(|&i| self.entries[i].1)
    }

    /// An error about `key`.
    pub(crate) fn invalid(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::invalid(self.path, key, problem)
    }

    fn wrong_type(&self, key: &str, value: &GgufValue<'_>, expected: &str) -> ModelError {
        self.invalid(key, format!("is {value} of type {}, expected {expected}", value.type_name()))
    }

    /// A string.
    ///
    /// # Errors
    /// When the value is something else, or not UTF-8.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        if value.kind != Kind::String {
            return Err(self.wrong_type(key, &value, "a string"));
        }
        let text = std::str::from_utf8(value.bytes).map_err(|_| self.wrong_type(key, &value, "UTF-8 text"))?;
        Ok(Some(text))
    }

    /// An integer of any width that is not negative.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        if !matches!(value.kind, Kind::Bool | Kind::String | Kind::Array)
            && let Number::Integer(n) = number(value.kind, value.bytes)
            && let Ok(n) = u64::try_from(n)
        {
            return Ok(Some(n));
        }
        Err(self.wrong_type(key, &value, "an unsigned integer"))
    }

    /// A size from 1 to `maximum`.
    pub(super) fn size(&self, key: &str, maximum: usize) -> Result<Option<usize>> {
        self.unsigned(key)?.map(|n| limits::size(self.path, key, n, maximum)).transpose()
    }

    /// A token's id.
    ///
    /// # Errors
    /// When the value is not an unsigned integer of 32 bits.
    pub fn token(&self, key: &str) -> Result<Option<u32>> {
        let id = |n| u32::try_from(n).map_err(|_| self.invalid(key, format!("is {n}, expected a token id")));
        self.unsigned(key)?.map(id).transpose()
    }

    /// A finite number, float or integer.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        if !matches!(value.kind, Kind::Bool | Kind::String | Kind::Array) {
            let n = match number(value.kind, value.bytes) {
                Number::Integer(n) => n as f64,
                Number::Float(n) => n,
            };
            if n.is_finite() {
                return Ok(Some(n));
            }
        }
        Err(self.wrong_type(key, &value, "a finite number"))
    }

    /// A truth value.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match (value.kind, value.bytes) {
            (Kind::Bool, [0]) => Ok(Some(false)),
            (Kind::Bool, [1]) => Ok(Some(true)),
            _ => Err(self.wrong_type(key, &value, "a bool, stored as 0 or 1")),
        }
    }

    fn array(&self, key: &str, expected: &str) -> Result<Option<GgufValue<'a>>> {
        match self.get(key) {
            Some(value) if value.kind != Kind::Array => Err(self.wrong_type(key, &value, expected)),
            value => Ok(value),
        }
    }

    /// An array of strings.
    ///
    /// # Errors
    /// When the value is something else, or an entry is not UTF-8.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.array(key, "an array of strings")? else { return Ok(None) };
        if value.element != Kind::String {
            return Err(self.wrong_type(key, &value, "an array of strings"));
        }
        let mut cursor = Cursor::new(self.path, value.bytes);
        let text = |i| {
            let bytes = cursor.string(key)?;
            std::str::from_utf8(bytes)
                .map_err(|_| self.invalid(key, format!("entry {i} is `{}`, expected UTF-8 text", shown(bytes))))
        };
        (0..value.count).map(text).collect::<Result<_>>().map(Some)
    }

    /// An array of numbers, as f32.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let expected = "an array of numbers";
        let Some(value) = self.array(key, expected)? else { return Ok(None) };
        let numbers = value.numbers().ok_or_else(|| self.wrong_type(key, &value, expected))?;
        let float = |number| match number {
            Number::Integer(n) => n as f32,
            Number::Float(n) => n as f32,
        };
        Ok(Some(numbers.map(float).collect()))
    }

    /// An array of integers or bools.
    ///
    /// # Errors
    /// When the value is something else, or an entry does not fit in 32 bits.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i32>>> {
        let expected = "an array of integers";
        let Some(value) = self.array(key, expected)? else { return Ok(None) };
        let numbers = value.numbers().ok_or_else(|| self.wrong_type(key, &value, expected))?;
        let integer = |(i, number)| match number {
            Number::Integer(n) => {
                i32::try_from(n).map_err(|_| self.invalid(key, format!("entry {i} is {n}, expected 32 bits")))
            }
            Number::Float(_) => Err(self.wrong_type(key, &value, expected)),
        };
        numbers.enumerate().map(integer).collect::<Result<_>>().map(Some)
    }

    /// Entries of the array `key`.
    pub(super) fn array_length(&self, key: &str) -> Option<usize> {
        self.get(key).filter(|value| value.kind == Kind::Array).map(|value| value.count)
    }

    /// Whether the value of `key` is an array.
    pub(super) fn is_array(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.kind == Kind::Array)
    }
}
