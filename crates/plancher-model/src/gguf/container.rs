//! The structure of a GGUF file: header, metadata, tensor descriptions, and where the tensors' bytes lie.

use std::collections::HashSet;
use std::path::Path;

use super::cursor::Cursor;
use super::ggml_type::GgmlType;
use super::metadata::{GgufMetadata, shown};
use crate::{ModelError, Result};

/// The most dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_DIMENSIONS: u32 = 4;
/// Alignment of tensors when `general.alignment` does not say otherwise.
const ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;

/// A tensor's description.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type.
    pub ggml_type: GgmlType,
    /// Its sizes, fastest first, 1 to 4 of them, none 0.
    pub dimensions: Vec<usize>,
    /// Where its bytes begin in the file; a multiple of the alignment.
    pub offset: usize,
}

impl GgufTensor<'_> {
    /// Elements of a row: the fastest dimension.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.dimensions[0]
    }

    /// The product of all other dimensions.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.dimensions[1..].iter().product()
    }
}

/// A parsed file. Every tensor of a supported type lies inside the file and overlaps no other.
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    /// 2 or 3.
    pub version: u32,
    /// Keys and values.
    pub metadata: GgufMetadata<'a>,
    /// Tensors in the file's order.
    pub tensors: Vec<GgufTensor<'a>>,
}

impl<'a> Gguf<'a> {
    /// Reads the structure in `bytes`, the content of the file `path`. Time and memory are proportional to the
    /// size of the header.
    ///
    /// # Errors
    /// When `bytes` are not a well-formed file of version 2 or 3.
    pub fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(path, bytes);
        let version = version(&mut cursor)?;
        // A tensor takes a name's length and a byte of it, dimensions, a type and an offset; a key the same and a
        // value.
        let n_tensors = cursor.count("tensor_count", 33)?;
        let n_keys = cursor.count("metadata_kv_count", 14)?;
        let metadata = GgufMetadata::read(path, &mut cursor, n_keys)?;
        let alignment = metadata.unsigned("general.alignment")?.unwrap_or(ALIGNMENT);
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            let problem = format!("is {alignment}, expected a power of two up to {MAX_ALIGNMENT}");
            return Err(metadata.invalid("general.alignment", problem));
        }
        let mut tensors = Vec::new();
        let mut names = HashSet::new();
        for i in 0..n_tensors {
            let tensor = read_tensor(&mut cursor, i)?;
            if !names.insert(tensor.name) {
                return Err(cursor.invalid(tensor.name, "is described twice"));
            }
            tensors.push(tensor);
        }
        let data = cursor.position() as u64;
        let data = data.next_multiple_of(alignment);
        place(path, &mut tensors, data, alignment, bytes.len())?;
        Ok(Self { version, metadata, tensors })
    }
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let found = cursor.clone().take("file", cursor.remaining().min(4))?;
    if found != b"GGUF" {
        return Err(cursor.invalid("file", format!("begins with `{}`, expected `GGUF`", shown(found))));
    }
    cursor.take("magic", 4)?;
    let version = cursor.u32("version")?;
    match version {
        2 | 3 => Ok(version),
        _ if matches!(version.swap_bytes(), 1..=3) => {
            let problem = format!("is {} in big-endian order, which is not supported", version.swap_bytes());
            Err(cursor.invalid("version", problem))
        }
        _ => Err(cursor.invalid("version", format!("is {version}, which is not supported (supported: 2, 3)"))),
    }
}

/// Reads a tensor's description; its offset is still the one in the data section.
fn read_tensor<'a>(cursor: &mut Cursor<'a>, i: usize) -> Result<GgufTensor<'a>> {
    let name = cursor.name(&format!("tensor name {i}"))?;
    let n_dimensions = cursor.u32(name)?;
    if !(1..=MAX_DIMENSIONS).contains(&n_dimensions) {
        return Err(cursor.invalid(name, format!("has {n_dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}")));
    }
    let stored: Vec<u64> = (0..n_dimensions).map(|_| cursor.u64(name)).collect::<Result<_>>()?;
    let elements = stored.iter().try_fold(1u64, |product, &n| product.checked_mul(n));
    // With this bound, sizes in bytes cannot overflow 64 bits either.
    if !elements.is_some_and(|n| (1..1 << 48).contains(&n)) {
        return Err(cursor.invalid(name, format!("has dimensions {stored:?}, whose product is zero or absurd")));
    }
    let ggml_type = GgmlType::from_id(cursor.u32(name)?);
    let offset = cursor.u64(name)?;
    let too_large = |_| cursor.invalid(name, format!("begins at {offset}, which this machine cannot address"));
    let offset = usize::try_from(offset).map_err(too_large)?;
    Ok(GgufTensor { name, ggml_type, dimensions: stored.iter().map(|&n| n as usize).collect(), offset })
}

/// Makes offsets absolute and checks that tensors lie inside the file and apart from each other.
fn place(path: &Path, tensors: &mut [GgufTensor<'_>], data: u64, alignment: u64, length: usize) -> Result<()> {
    let mut extents: Vec<(u64, u64, &str)> = Vec::new();
    for tensor in tensors {
        let invalid = |problem: String| ModelError::invalid(path, tensor.name, problem);
        let relative = tensor.offset as u64;
        if !relative.is_multiple_of(alignment) {
            return Err(invalid(format!("begins at {relative}, which is not a multiple of the alignment {alignment}")));
        }
        let size = match tensor.ggml_type {
            GgmlType::Supported(dtype) => {
                let row = dtype.row_bytes(tensor.columns()).ok_or_else(|| {
                    let block = dtype.block_elements();
                    invalid(format!("has rows of {} elements, not whole {dtype} blocks of {block}", tensor.columns()))
                })?;
                row as u64 * tensor.rows() as u64
            }
            // The size is not known; whoever wants the tensor is told its type.
            GgmlType::Other(_) | GgmlType::Unknown(_) => 0,
        };
        let end = data.checked_add(relative).and_then(|start| start.checked_add(size));
        let Some(end) = end.filter(|&end| end <= length as u64) else {
            let problem = format!("has {size} bytes at {data} + {relative}, past the end of the file at {length}");
            return Err(invalid(problem));
        };
        tensor.offset = (end - size) as usize;
        if size > 0 {
            extents.push((end - size, end, tensor.name));
        }
    }
    extents.sort_unstable();
    match extents.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let problem = format!("begins at byte {}, inside `{}`, which ends at {}", pair[1].0, pair[0].2, pair[0].1);
            Err(ModelError::invalid(path, pair[1].2, problem))
        }
    }
}
