//! A matrix on the device and the type of its elements.

use crate::{CudaError, Device, DeviceBuffer, Result, Specialization};

/// Rows are padded with zeros to a multiple of this many elements, so that no kernel has a remainder in K.
pub const ROW_MULTIPLE: usize = 64;

/// The 16-bit type of weights, keys and values, and of what is multiplied with weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Element {
    /// bfloat16: the range of f32, 8 bits of significand.
    #[serde(rename = "bf16")]
    Bf16,
    /// IEEE half precision: up to 65504, 11 bits of significand.
    #[serde(rename = "f16")]
    F16,
}

impl Element {
    /// The name that files and messages use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Constants that every kernel which touches elements is compiled with.
    #[must_use]
    pub fn constants(self) -> Specialization {
        Specialization::new().define("ELEMENT_F16", u8::from(self == Self::F16))
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A row-major matrix of 16-bit elements.
#[derive(Debug)]
pub struct DeviceMatrix {
    /// `(rows, stride)`, zeros from `columns` on.
    pub elements: DeviceBuffer<u16>,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Elements from one row to the next: `columns` rounded up to a multiple of [`ROW_MULTIPLE`].
    pub stride: usize,
}

impl DeviceMatrix {
    /// A matrix whose elements are not yet written.
    pub(super) fn uninitialized(device: &Device, rows: usize, columns: usize) -> Result<Self> {
        let stride = padded(columns);
        let elements = stride.checked_mul(rows).ok_or(CudaError::Range {
            what: "elements of a matrix",
            value: u64::MAX,
            limit: isize::MAX as u64,
        })?;
        Ok(Self { elements: DeviceBuffer::uninitialized(device, elements)?, rows, columns, stride })
    }
}

/// The stride of rows of `columns` elements.
#[must_use]
pub fn padded(columns: usize) -> usize {
    columns.next_multiple_of(ROW_MULTIPLE)
}
