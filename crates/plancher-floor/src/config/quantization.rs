//! What a `quantization_config` says about how the weights are stored.

use super::fields::Fields;
use crate::error::Result;
use crate::format::Group;
use crate::{FloorError, Format, ModelShape};

/// Applies `quantization_config`, if there is one. The head stays as it is: these methods leave it alone.
pub(super) fn apply(mut shape: ModelShape, fields: Fields<'_>, base: Format) -> Result<ModelShape> {
    let Some(quantization) = fields.object("quantization_config")? else { return Ok(shape) };
    let method = quantization.text("quant_method")?.unwrap_or("");
    let format = match method {
        "fp8" => fp8(quantization)?,
        "mxfp4" => {
            // Only the experts: attention, router, embedding and head are listed as not converted.
            let weights = shape.layers.iter_mut().flat_map(|layer| &mut layer.weights);
            let mut found = false;
            for weight in weights.filter(|weight| weight.class == crate::Class::RoutedExperts) {
                weight.format = Format::Mxfp4;
                found = true;
            }
            if !found {
                return Err(FloorError::invalid(
                    "quantization_config.quant_method",
                    "`mxfp4` is only understood with routed experts, of which there are none",
                ));
            }
            return Ok(shape);
        }
        "gptq" | "awq" => {
            shape.notes.push(format!("packed zero points of `{method}` (4 bit a group)"));
            grouped(quantization.count_of(&["bits", "w_bit"])?, quantization, "group_size")?
        }
        "bitsandbytes" if quantization.flag("load_in_4bit", false)? => Format::Nf4,
        "bitsandbytes" if quantization.flag("load_in_8bit", false)? => Format::Int8 { group: None },
        "modelopt" => match quantization.text("quant_algo")? {
            Some("FP8") => Format::Fp8,
            Some("NVFP4") => Format::Nvfp4,
            other => return refuse("quant_algo", other.unwrap_or("")),
        },
        "compressed-tensors" => compressed_tensors(quantization)?,
        other => return refuse("quant_method", other),
    };
    Ok(shape.with_weights(Some(format), Some(base)))
}

fn refuse<T>(field: &str, value: &str) -> Result<T> {
    Err(FloorError::invalid(format!("quantization_config.{field}"), format!("`{value}` is not understood")))
}

fn fp8(quantization: Fields<'_>) -> Result<Format> {
    match quantization.list("weight_block_size")? {
        None => Ok(Format::Fp8),
        Some([rows, columns]) if rows == 128 && columns == 128 => Ok(Format::Fp8Block128),
        Some(other) => refuse("weight_block_size", &format!("{other:?}")),
    }
}

fn grouped(bits: u64, fields: Fields<'_>, field: &str) -> Result<Format> {
    let per_channel = fields.get(field).is_none_or(|value| value == -1);
    let group = if per_channel {
        None
    } else {
        // `count` keeps it below 2^28.
        Some(Group { elements: fields.count(field)? as u32, zero_point: false })
    };
    match (bits, group) {
        (8, group) => Ok(Format::Int8 { group }),
        (4, Some(group)) => Ok(Format::Int4 { group }),
        (4, None) => refuse(field, "-1"),
        (bits, _) => refuse("bits", &bits.to_string()),
    }
}

fn compressed_tensors(quantization: Fields<'_>) -> Result<Format> {
    let first = quantization.get("config_groups").and_then(|groups| groups.as_object()?.values().next());
    let Some(group) = first else { return refuse("config_groups", "") };
    let Some(weights) = Fields::new("config_groups", group)?.object("weights")? else {
        return refuse("config_groups.weights", "");
    };
    let bits = weights.count("num_bits")?;
    match (bits, weights.text("type")?) {
        (8, Some("float")) => Ok(Format::Fp8),
        (4, Some("float")) if weights.get("group_size").is_some_and(|size| size == 16) => Ok(Format::Nvfp4),
        (4, Some("float")) if weights.get("group_size").is_some_and(|size| size == 32) => Ok(Format::Mxfp4),
        (_, Some("int")) => grouped(bits, weights, "group_size"),
        (bits, other) => refuse("config_groups", &format!("{bits} bit {}", other.unwrap_or(""))),
    }
}
