//! Reading typed fields of a `config.json`: a missing field, a wrong type or an impossible value is an error that
//! names the field, never a default made up here.

use serde_json::{Map, Value};

use crate::FloorError;
use crate::error::Result;

/// No dimension, count or position number of a real model is larger.
const MOST: u64 = 1 << 28;
/// No real model has more layers; each takes memory here.
const MOST_LAYERS: u64 = 4096;

/// The fields of one object of a configuration.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(name: &str, value: &'a Value) -> Result<Self> {
        value.as_object().map(|map| Self { map }).ok_or_else(|| FloorError::invalid(name, "is not a JSON object"))
    }

    /// The value of `field`; JSON's `null` counts as absent.
    pub(super) fn get(self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn object(self, field: &str) -> Result<Option<Fields<'a>>> {
        self.get(field).map(|value| Self::new(field, value)).transpose()
    }

    /// A count of at least 1, absent or present.
    pub(super) fn count_if(self, field: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if (1..=MOST).contains(&n) => Ok(Some(n)),
            _ => Err(FloorError::invalid(field, format!("`{value}` is not a whole number from 1 to {MOST}"))),
        }
    }

    /// A count of at least 1 that must be there.
    pub(super) fn count(self, field: &str) -> Result<u64> {
        self.count_if(field)?.ok_or_else(|| FloorError::invalid(field, "is missing"))
    }

    /// The first of several spellings that is there.
    pub(super) fn count_of(self, fields: &[&str]) -> Result<u64> {
        for field in fields {
            if let Some(n) = self.count_if(field)? {
                return Ok(n);
            }
        }
        self.count(fields[0])
    }

    /// A whole number from 0.
    pub(super) fn number(self, field: &str, default: u64) -> Result<u64> {
        let Some(value) = self.get(field) else { return Ok(default) };
        match value.as_u64() {
            Some(n) if n <= MOST => Ok(n),
            _ => Err(FloorError::invalid(field, format!("`{value}` is not a whole number from 0 to {MOST}"))),
        }
    }

    pub(super) fn layers(self, field: &str) -> Result<u64> {
        let n = self.count(field)?;
        if n > MOST_LAYERS {
            return Err(FloorError::invalid(field, format!("`{n}` is more than {MOST_LAYERS} layers")));
        }
        Ok(n)
    }

    pub(super) fn flag(self, field: &str, default: bool) -> Result<bool> {
        match self.get(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(FloorError::invalid(field, format!("`{value}` is neither true nor false"))),
        }
    }

    pub(super) fn text(self, field: &str) -> Result<Option<&'a str>> {
        self.get(field)
            .map(|value| value.as_str().ok_or_else(|| FloorError::invalid(field, format!("`{value}` is not a string"))))
            .transpose()
    }

    pub(super) fn list(self, field: &str) -> Result<Option<&'a [Value]>> {
        self.get(field)
            .map(|value| {
                value
                    .as_array()
                    .map(Vec::as_slice)
                    .ok_or_else(|| FloorError::invalid(field, format!("`{value}` is not a list")))
            })
            .transpose()
    }
}
