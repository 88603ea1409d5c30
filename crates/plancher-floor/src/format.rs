//! The formats in which weights and KV entries are stored, and the exact bytes they take with their scales.

use std::fmt;
use std::str::FromStr;

use crate::FloorError;
use crate::error::{Result, product};

/// How the elements of a tensor are stored. Sizes include the scales (and zero points) that belong to groups
/// of elements; one scale for a whole tensor or output channel is below 0.1 % and is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, non_camel_case_types, reason = "the names are the formats' own")]
pub enum Format {
    F32,
    F16,
    Bf16,
    /// 8-bit floats with one scale a tensor: 8 bit.
    Fp8,
    /// 8-bit floats with an f32 scale per 128 × 128 block (DeepSeek-V3): 8 + 32 / 16384 bit.
    Fp8Block128,
    /// 8-bit integers; `group: None` is one scale a tensor or channel.
    Int8 {
        group: Option<Group>,
    },
    /// 4-bit integers with an fp16 scale per group.
    Int4 {
        group: Group,
    },
    /// 4-bit normal floats with an f32 scale per 64 (bitsandbytes): 4.5 bit.
    Nf4,
    /// 4-bit floats with an 8-bit exponent per 32: 4.25 bit.
    Mxfp4,
    /// 4-bit floats with an fp8 scale per 16: 4.5 bit.
    Nvfp4,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

/// A group of quantised elements that share an fp16 scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Elements in the group.
    pub elements: u32,
    /// Whether the group also carries an fp16 zero point.
    pub zero_point: bool,
}

impl Format {
    /// The names that [`Format::from_str`] reads.
    pub const NAMES: &'static str = "f32, f16, bf16, fp8, fp8:b128, int8, int8:g128, int4 (= int4:g128), int4:g64, int4:g128:zp, \
         nf4, mxfp4, nvfp4, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k";

    /// A block as (elements, bits): the exact ratio of the format.
    #[must_use]
    pub const fn block(self) -> (u64, u64) {
        const fn grouped(bits: u64, group: Group) -> (u64, u64) {
            let scale = if group.zero_point { 32 } else { 16 };
            (group.elements as u64, bits * group.elements as u64 + scale)
        }
        match self {
            Self::F32 => (1, 32),
            Self::F16 | Self::Bf16 => (1, 16),
            Self::Fp8 | Self::Int8 { group: None } => (1, 8),
            Self::Fp8Block128 => (16384, 8 * 16384 + 32),
            Self::Int8 { group: Some(group) } => grouped(8, group),
            Self::Int4 { group } => grouped(4, group),
            Self::Nf4 => (64, 4 * 64 + 32),
            Self::Mxfp4 => (32, 8 * 17),
            Self::Nvfp4 => (16, 8 * 9),
            Self::Q8_0 => (32, 8 * 34),
            Self::Q4_0 => (32, 8 * 18),
            Self::Q4_1 => (32, 8 * 20),
            Self::Q5_0 => (32, 8 * 22),
            Self::Q5_1 => (32, 8 * 24),
            Self::Q2_K => (256, 8 * 84),
            Self::Q3_K => (256, 8 * 110),
            Self::Q4_K => (256, 8 * 144),
            Self::Q5_K => (256, 8 * 176),
            Self::Q6_K => (256, 8 * 210),
        }
    }

    /// Stored bits per element, scales included.
    #[must_use]
    pub fn bits(self) -> f64 {
        let (elements, bits) = self.block();
        bits as f64 / elements as f64
    }

    /// Bytes of `elements` elements, rounded up to a whole byte.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits.
    pub fn bytes(self, elements: u128) -> Result<u128> {
        let (block_elements, block_bits) = self.block();
        Ok(product("bytes of a tensor", [elements, u128::from(block_bits)])?.div_ceil(8 * u128::from(block_elements)))
    }

    /// The width of the narrowest matmul operand that holds these elements exactly: it decides which of a
    /// machine's peaks can be reached at best.
    #[must_use]
    pub const fn operand_bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::Fp8
            | Self::Fp8Block128
            | Self::Int8 { .. }
            | Self::Q8_0
            | Self::Q5_0
            | Self::Q5_1
            | Self::Q5_K
            | Self::Q6_K => 8,
            Self::Int4 { .. }
            | Self::Nf4
            | Self::Mxfp4
            | Self::Nvfp4
            | Self::Q4_0
            | Self::Q4_1
            | Self::Q2_K
            | Self::Q3_K
            | Self::Q4_K => 4,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grouped = |name: &str, group: &Group| {
            format!("{name}:g{}{}", group.elements, if group.zero_point { ":zp" } else { "" })
        };
        let name = match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block128 => "fp8:b128",
            Self::Int8 { group: None } => "int8",
            Self::Int8 { group: Some(group) } => return f.pad(&grouped("int8", group)),
            Self::Int4 { group } => return f.pad(&grouped("int4", group)),
            Self::Nf4 => "nf4",
            Self::Mxfp4 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q2_K => "q2_k",
            Self::Q3_K => "q3_k",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
        };
        f.pad(name)
    }
}

impl FromStr for Format {
    type Err = FloorError;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let unknown =
            || FloorError::UnknownName { kind: "format", name: text.to_owned(), known: Self::NAMES.to_owned() };
        match lower.as_str() {
            "int4" => return Ok(Self::Int4 { group: Group { elements: 128, zero_point: false } }),
            "int8" => return Ok(Self::Int8 { group: None }),
            _ => {}
        }
        if let Some(rest) = lower.strip_prefix("int4:g") {
            return Ok(Self::Int4 { group: parse_group(rest).ok_or_else(unknown)? });
        }
        if let Some(rest) = lower.strip_prefix("int8:g") {
            return Ok(Self::Int8 { group: Some(parse_group(rest).ok_or_else(unknown)?) });
        }
        let named = [
            Self::F32,
            Self::F16,
            Self::Bf16,
            Self::Fp8,
            Self::Fp8Block128,
            Self::Nf4,
            Self::Mxfp4,
            Self::Nvfp4,
            Self::Q8_0,
            Self::Q4_0,
            Self::Q4_1,
            Self::Q5_0,
            Self::Q5_1,
            Self::Q2_K,
            Self::Q3_K,
            Self::Q4_K,
            Self::Q5_K,
            Self::Q6_K,
        ];
        let alias = match lower.as_str() {
            "fp32" | "float32" => "f32",
            "fp16" | "float16" => "f16",
            "bfloat16" => "bf16",
            "f8_e4m3" | "f8_e5m2" => "fp8",
            other => other,
        };
        named.into_iter().find(|format| format.to_string() == alias).ok_or_else(unknown)
    }
}

/// Reads `128` or `128:zp`.
fn parse_group(text: &str) -> Option<Group> {
    let (size, zero_point) = match text.strip_suffix(":zp") {
        Some(size) => (size, true),
        None => (text, false),
    };
    let elements = size.parse().ok().filter(|n: &u32| (1..=1 << 20).contains(n))?;
    Some(Group { elements, zero_point })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_the_bits_of_the_convention_list() {
        let expected = [
            ("int4:g128", 4.125),
            ("int4", 4.125),
            ("int4:g64", 4.25),
            ("int4:g128:zp", 4.25),
            ("int4:g64:zp", 4.5),
            ("int8:g128", 8.125),
            ("int8", 8.0),
            ("q8_0", 8.5),
            ("q4_0", 4.5),
            ("q4_1", 5.0),
            ("q5_0", 5.5),
            ("q5_1", 6.0),
            ("q2_k", 2.625),
            ("q3_k", 3.4375),
            ("q4_k", 4.5),
            ("q5_k", 5.5),
            ("Q6_K", 6.5625),
            ("mxfp4", 4.25),
            ("nvfp4", 4.5),
            ("nf4", 4.5),
            ("fp8", 8.0),
            ("BF16", 16.0),
            ("fp16", 16.0),
            ("f32", 32.0),
        ];
        for (name, bits) in expected {
            assert_eq!(name.parse::<Format>().unwrap().bits().to_bits(), f64::to_bits(bits), "{name}");
        }
    }

    #[test]
    fn int4_is_not_a_quarter_of_bf16() {
        let ratio = |name: &str| 16.0 / name.parse::<Format>().unwrap().bits();
        assert_eq!(format!("{:.2} {:.2}", ratio("int4:g128"), ratio("int4:g128:zp")), "3.88 3.76");
    }

    #[test]
    fn bytes_are_rounded_up_once() {
        let q4_k: Format = "q4_k".parse().unwrap();
        assert_eq!(q4_k.bytes(256).unwrap(), 144);
        assert_eq!(q4_k.bytes(1).unwrap(), 1);
        assert_eq!(q4_k.bytes(0).unwrap(), 0);
        assert!(matches!(q4_k.bytes(u128::MAX), Err(FloorError::Overflow(_))));
    }

    #[test]
    fn names_round_trip_and_bad_names_are_refused() {
        for name in ["int4:g64:zp", "int8:g32", "q5_k", "fp8:b128", "nvfp4"] {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        for name in ["", "int4:", "int4:g0", "int4:g-1", "int4:gx", "int3", "q9_k", "int4:g99999999999"] {
            assert!(matches!(name.parse::<Format>(), Err(FloorError::UnknownName { .. })), "{name}");
        }
    }
}
