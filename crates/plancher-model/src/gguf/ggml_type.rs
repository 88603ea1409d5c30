//! The numbers by which GGUF names tensor types (`enum ggml_type` of `ggml.h`).

use crate::DType;

/// The type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// One that can be read.
    Supported(DType),
    /// One that cannot, by GGML's name.
    Other(&'static str),
    /// A number that names no type known here.
    Unknown(u32),
}

impl GgmlType {
    /// The type with number `id`.
    #[must_use]
    pub const fn from_id(id: u32) -> Self {
        Self::Supported(match id {
            0 => DType::F32,
            1 => DType::F16,
            2 => DType::Q4_0,
            3 => DType::Q4_1,
            6 => DType::Q5_0,
            7 => DType::Q5_1,
            8 => DType::Q8_0,
            10 => DType::Q2_K,
            11 => DType::Q3_K,
            12 => DType::Q4_K,
            13 => DType::Q5_K,
            14 => DType::Q6_K,
            30 => DType::BF16,
            _ => return Self::other(id),
        })
    }

    const fn other(id: u32) -> Self {
        Self::Other(match id {
            4 => "Q4_2",
            5 => "Q4_3",
            9 => "Q8_1",
            15 => "Q8_K",
            16 => "IQ2_XXS",
            17 => "IQ2_XS",
            18 => "IQ3_XXS",
            19 => "IQ1_S",
            20 => "IQ4_NL",
            21 => "IQ3_S",
            22 => "IQ2_S",
            23 => "IQ4_XS",
            24 => "I8",
            25 => "I16",
            26 => "I32",
            27 => "I64",
            28 => "F64",
            29 => "IQ1_M",
            31 => "Q4_0_4_4",
            32 => "Q4_0_4_8",
            33 => "Q4_0_8_8",
            34 => "TQ1_0",
            35 => "TQ2_0",
            36 => "IQ4_NL_4_4",
            37 => "IQ4_NL_4_8",
            38 => "IQ4_NL_8_8",
            39 => "MXFP4",
            40 => "NVFP4",
            41 => "Q1_0",
            42 => "Q2_0",
            _ => return Self::Unknown(id),
        })
    }

    /// The number that [`from_id`](Self::from_id) reads as `dtype`; `F8_E4M3` has none.
    #[must_use]
    pub fn id(dtype: DType) -> Option<u32> {
        (0..=42).find(|&id| Self::from_id(id) == Self::Supported(dtype))
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Supported(dtype) => dtype.fmt(f),
            Self::Other(name) => f.pad(name),
            Self::Unknown(id) => write!(f, "type {id}"),
        }
    }
}
