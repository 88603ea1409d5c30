//! The header of a safetensors file: 8 bytes of length (little endian), then that many bytes of JSON that give
//! each tensor a type, a shape and a byte range, then the data, which the ranges must tile without gap or
//! overlap (<https://github.com/huggingface/safetensors#format>). The header comes from strangers: everything
//! is checked before use, and the work is linear in the header's length.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{ModelError, Result};

/// The longest header that is read, as in the format's own library.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Tensors in one file. The largest models have a few thousand in each of their shards.
const MAX_TENSORS: usize = 1 << 18;
/// Dimensions of one tensor.
const MAX_RANK: usize = 8;

/// One tensor as the header describes it, its byte range checked against the file.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    /// The type in the format's own words.
    pub dtype: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Byte offset from the start of the file.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    #[serde(deserialize_with = "read_shape")]
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Reads the header of the safetensors file `path`, whose whole content is `bytes`.
///
/// # Errors
/// When the header is not well-formed or describes data that the file does not hold.
pub fn read_safetensors_header(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, StoredTensor>> {
    let invalid = |field: &str, problem: String| ModelError::invalid(path, field, problem);
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(invalid("header", format!("is cut off: the file has {} bytes", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(invalid("header length", format!("is {length}, expected at most {MAX_HEADER_BYTES}")));
    }
    let length = length as usize;
    let Some((header, data)) = rest.split_at_checked(length) else {
        return Err(invalid("header length", format!("is {length}, but only {} bytes follow", rest.len())));
    };
    let mut json = serde_json::Deserializer::from_slice(header);
    let entries = HeaderSeed
        .deserialize(&mut json)
        .and_then(|entries| json.end().map(|()| entries))
        .map_err(|e| invalid("header", format!("is not well-formed: {e}")))?;

    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        let tensor = check(&entry, data.len()).map_err(|problem| invalid(&name, problem))?;
        tensors.insert(name, StoredTensor { offset: tensor.offset + 8 + length, ..tensor });
    }
    check_tiling(path, &tensors, 8 + length, bytes.len())?;
    Ok(tensors)
}

/// An entry's byte range and size, the offset relative to the data.
fn check(entry: &Entry, data_length: usize) -> std::result::Result<StoredTensor, String> {
    let (begin, end) = entry.data_offsets;
    if begin > end || end > data_length as u64 {
        return Err(format!("`data_offsets` are [{begin}, {end}], but the file holds {data_length} bytes of data"));
    }
    let elements = entry.shape.iter().try_fold(1_u64, |product, &n| product.checked_mul(n));
    let bits = elements.and_then(|n| n.checked_mul(bits_of(&entry.dtype).unwrap_or(0)));
    let Some(bits) = bits else {
        return Err(format!("`shape` {:?} overflows", entry.shape));
    };
    // A type that is not known here is refused by name when the tensor is used.
    if bits_of(&entry.dtype).is_some() && (!bits.is_multiple_of(8) || bits / 8 != end - begin) {
        return Err(format!(
            "`shape` {:?} of {} takes {} bytes, but `data_offsets` [{begin}, {end}] span {}",
            entry.shape,
            entry.dtype,
            bits.div_ceil(8),
            end - begin
        ));
    }
    let shape = entry.shape.iter().map(|&n| n as usize).collect();
    Ok(StoredTensor { dtype: entry.dtype.clone(), shape, offset: begin as usize, bytes: (end - begin) as usize })
}

/// Checks that the tensors cover the data, from `start` to `end`, without gap or overlap.
fn check_tiling(path: &Path, tensors: &BTreeMap<String, StoredTensor>, start: usize, end: usize) -> Result<()> {
    let mut order: Vec<(&String, &StoredTensor)> = tensors.iter().collect();
    order.sort_by_key(|(name, tensor)| (tensor.offset, tensor.bytes, *name));
    let mut position = start;
    let mut previous = "the header";
    for (name, tensor) in order {
        let at = tensor.offset - start;
        if tensor.offset < position {
            return Err(ModelError::invalid(
                path,
                name,
                format!("begins at byte {at} of the data, inside `{previous}`"),
            ));
        }
        if tensor.offset > position {
            let gap = tensor.offset - position;
            let problem = format!("begins at byte {at} of the data, {gap} bytes after the end of `{previous}`");
            return Err(ModelError::invalid(path, name, problem));
        }
        position += tensor.bytes;
        previous = name;
    }
    if position != end {
        let problem = format!("`{previous}` is the last tensor, but {} more bytes follow it", end - position);
        return Err(ModelError::invalid(path, "data", problem));
    }
    Ok(())
}

/// Bits of one element of the types that the format defines.
fn bits_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Reads a shape, and stops at the first dimension too many: a list may be as long as the header.
fn read_shape<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u64>, D::Error> {
    struct Shape;

    impl<'de> Visitor<'de> for Shape {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of dimensions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
            let mut shape = Vec::with_capacity(MAX_RANK);
            while let Some(size) = list.next_element()? {
                if shape.len() == MAX_RANK {
                    return Err(A::Error::custom(format!("`shape` has more than {MAX_RANK} dimensions")));
                }
                shape.push(size);
            }
            Ok(shape)
        }
    }

    deserializer.deserialize_seq(Shape)
}

/// Reads the header's object entry by entry, so that duplicate names and absurd counts are seen.
struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = BTreeMap<String, Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = BTreeMap<String, Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = map.next_value::<Entry>().map_err(|e| A::Error::custom(format!("tensor `{name}`: {e}")))?;
            if entries.len() == MAX_TENSORS {
                return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
            }
            if entries.insert(name.clone(), entry).is_some() {
                return Err(A::Error::custom(format!("tensor `{name}` is described twice")));
            }
        }
        Ok(entries)
    }
}
