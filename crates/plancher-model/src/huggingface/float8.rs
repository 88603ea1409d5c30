//! fp8 checkpoints: `quantization_config` as `fp8` (one factor per tensor, or `weight_block_size` as `DeepSeek` and
//! Qwen have it) and as `compressed-tensors` write it (per tensor, row or block), and the factors stored beside
//! each weight. How activations would be quantised is ignored: they stay in floating point here. Which modules
//! were left alone follows from the types that are stored.

use std::ops::Range;
use std::path::Path;

use crate::json::Fields;
use crate::{DType, ModelError, Result, Scale};

use super::shards::Shards;
use super::tensors::float_type;

/// The layout of an fp8 checkpoint.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Float8 {
    /// `(rows, columns)` of the blocks that share a factor, when the configuration gives them.
    block: Option<(usize, usize)>,
}

/// Reads `quantization_config`; `None` when there is none.
///
/// # Errors
/// When it describes a layout other than fp8.
pub(super) fn read(config: Fields<'_>) -> Result<Option<Float8>> {
    let Some(quantization) = config.object("quantization_config")? else { return Ok(None) };
    let unsupported = |field: &str, value: &str| {
        let problem = format!(
            "is {value}, which is not supported (supported: 8-bit float weights, `fp8` or `compressed-tensors`)"
        );
        Err(quantization.invalid(field, problem))
    };
    match quantization.text("quant_method")? {
        Some("fp8") => {
            match quantization.text("fmt")? {
                None | Some("e4m3") => {}
                Some(other) => return unsupported("fmt", &format!("`{other}`")),
            }
            Ok(Some(Float8 { block: block(quantization, "weight_block_size")? }))
        }
        Some("compressed-tensors") => compressed_tensors(quantization).map(Some),
        Some(other) => unsupported("quant_method", &format!("`{other}`")),
        None => unsupported("quant_method", "missing"),
    }
}

/// The groups of a `compressed-tensors` configuration, all of which must be 8-bit floats in blocks of one size.
fn compressed_tensors(quantization: Fields<'_>) -> Result<Float8> {
    let Some(groups) = quantization.object("config_groups")? else {
        return Err(quantization.invalid("config_groups", "is missing"));
    };
    let mut sizes = Vec::new();
    for name in groups.names() {
        let Some(weights) = groups.object(name)?.map(|group| group.object("weights")).transpose()?.flatten() else {
            continue;
        };
        let bits = weights.size("num_bits", 64)?;
        let kind = weights.text("type")?;
        if (bits, kind) != (Some(8), Some("float")) || weights.flag("symmetric")? == Some(false) {
            let bits = bits.map_or("unknown".to_owned(), |n| n.to_string());
            let kind = kind.unwrap_or("unknown");
            let problem = format!(
                "stores weights as {bits}-bit `{kind}`, which is not supported (supported: symmetric 8-bit `float`)"
            );
            return Err(groups.invalid(name, problem));
        }
        sizes.push(block(weights, "block_structure")?);
    }
    if sizes.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(
            quantization.invalid("config_groups", "has groups with different block sizes, which is not supported")
        );
    }
    Ok(Float8 { block: sizes.first().copied().flatten() })
}

/// The block that shares a factor, `[rows, columns]`: the 128 × 128 of the hub's checkpoints, which is what kernels read.
fn block(fields: Fields<'_>, name: &str) -> Result<Option<(usize, usize)>> {
    let Some(list) = fields.list(name)? else { return Ok(None) };
    let sizes: Option<Vec<u64>> = list.iter().map(serde_json::Value::as_u64).collect();
    match sizes.as_deref() {
        Some([128, 128]) => Ok(Some((128, 128))),
        Some(other) => Err(fields.invalid(name, format!("is {other:?}; blocks of [128, 128] are supported"))),
        None => Err(fields.invalid(name, "is not a pair of sizes [rows, columns]")),
    }
}

/// The two spellings of the name of a matrix's factors.
fn factor_names(name: &str) -> [String; 2] {
    [format!("{name}_scale"), format!("{name}_scale_inv")]
}

/// Whether factors are stored beside the matrix `name`.
pub(super) fn has_factors(shards: &Shards, name: &str) -> bool {
    factor_names(name).iter().any(|factors| shards.tensors.contains_key(factors))
}

impl Float8 {
    /// The factors of rows `range` of the matrix `name` in the file `path`, which has `rows × columns` elements. Both spellings of
    /// the factor's name, `weight_scale` and `weight_scale_inv`, hold what stored elements are multiplied by.
    pub(super) fn scale(
        &self,
        path: &Path,
        shards: &Shards,
        name: &str,
        range: Range<usize>,
        rows: usize,
        columns: usize,
    ) -> Result<Scale> {
        let names = factor_names(name);
        let mut found = names.iter().filter_map(|scale| Some((scale, shards.tensors.get(scale)?)));
        let Some((scale_name, located)) = found.next() else {
            let problem = format!("is stored as F8_E4M3, but neither `{}` nor `{}` is there", names[0], names[1]);
            return Err(ModelError::invalid(path, name, problem));
        };
        let path = shards.path(located.0);
        if let Some((other, _)) = found.next() {
            return Err(ModelError::invalid(
                path,
                scale_name,
                format!("is stored beside `{other}`; only one can be right"),
            ));
        }
        let dtype = float_type(path, scale_name, &located.1)?;
        let bytes = shards.bytes(located);
        let values: Vec<f32> = match dtype {
            DType::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            DType::BF16 => bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            DType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            _ => {
                let problem = format!("is stored as {dtype}, expected factors in F32, BF16 or F16");
                return Err(ModelError::invalid(path, scale_name, problem));
            }
        };
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(ModelError::invalid(
                path,
                scale_name,
                format!("holds the factor {value}, expected finite numbers"),
            ));
        }
        let shape = &located.1.shape[..];
        if let Some((block_rows, block_columns)) = self.block {
            let across = columns.div_ceil(block_columns);
            if shape == [rows.div_ceil(block_rows), across] {
                if !range.start.is_multiple_of(block_rows) {
                    let problem = format!(
                        "has blocks of {block_rows} rows, but a part of `{name}` begins at row {}",
                        range.start
                    );
                    return Err(ModelError::invalid(path, scale_name, problem));
                }
                let blocks = range.start / block_rows..range.end.div_ceil(block_rows);
                let values = values[blocks.start * across..blocks.end * across].to_vec();
                return Ok(Scale::Block { block_rows, block_columns, values });
            }
        }
        if values.len() == 1 {
            return Ok(Scale::Tensor(values[0]));
        }
        if shape == [rows, 1] || shape == [rows] {
            return Ok(Scale::Row(values[range].to_vec()));
        }
        let problem =
            format!("has shape {shape:?}, which gives no factor to each tensor, row or block of ({rows}, {columns})");
        Err(ModelError::invalid(path, scale_name, problem))
    }
}
