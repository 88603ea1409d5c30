//! Operations, number types and problem sizes, with the work that a problem counts for: the bytes that must move and the
//! floating-point operations that must be done, however a kernel does them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::LabError;

/// What a step's kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// `y <- a x + y`.
    Saxpy,
    /// `out (columns, rows) = in (rows, columns)ᵀ`.
    Transpose,
    /// The sum of all elements.
    Reduction,
    /// `c (m, n) = a (m, k) b`, where `b` is `(k, n)` in f32 and `(n, k)`, transposed, in bf16.
    Gemm,
}

impl Operation {
    /// The name that the kernel has in its file.
    #[must_use]
    pub const fn kernel(self) -> &'static str {
        match self {
            Self::Saxpy => "saxpy",
            Self::Transpose => "transpose",
            Self::Reduction => "reduce",
            Self::Gemm => "gemm",
        }
    }

    /// Whether the result is determined to the last bit.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Transpose)
    }

    /// Bytes that must be read and written at least. A product reads each operand once.
    #[must_use]
    pub fn bytes(self, dtype: Dtype, shape: Shape) -> u64 {
        let element = dtype.bytes();
        match (self, shape) {
            (Self::Saxpy, shape) => 3 * element * shape.elements(),
            (Self::Transpose, shape) => 2 * element * shape.elements(),
            (Self::Reduction, shape) => element * shape.elements(),
            (Self::Gemm, Shape::Product { m, n, k }) => element * (m * k + n * k + m * n),
            (Self::Gemm, _) => 0,
        }
    }

    /// Floating-point operations, a multiplication and an addition counted as two.
    #[must_use]
    pub fn flops(self, shape: Shape) -> u64 {
        match (self, shape) {
            (Self::Saxpy, shape) => 2 * shape.elements(),
            (Self::Reduction, shape) => shape.elements(),
            (Self::Gemm, Shape::Product { m, n, k }) => 2 * m * n * k,
            (Self::Transpose | Self::Gemm, _) => 0,
        }
    }
}

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// The upper half of an f32.
    Bf16,
}

impl Dtype {
    /// Bytes of a number.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Half the distance from 1 to the next number: the largest relative error of rounding.
    #[must_use]
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::F32 => 1.0 / 16_777_216.0,
            Self::Bf16 => 1.0 / 256.0,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// The size of a problem. One that is read from text has sides below 2^31 whose product is below 2^56 (an empty one counted as
/// 1), so that no count of bytes or operations overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// So many elements.
    Vector(u64),
    /// A matrix, row-major.
    Matrix {
        /// Rows.
        rows: u64,
        /// Columns, which lie side by side in memory.
        columns: u64,
    },
    /// A matrix product.
    Product {
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// The length of the sums.
        k: u64,
    },
}

impl Shape {
    /// A square matrix.
    #[must_use]
    pub const fn square(side: u64) -> Self {
        Self::Matrix { rows: side, columns: side }
    }

    /// A product of square matrices.
    #[must_use]
    pub const fn cube(side: u64) -> Self {
        Self::Product { m: side, n: side, k: side }
    }

    /// Elements of the result (of the input for a reduction).
    #[must_use]
    pub const fn elements(self) -> u64 {
        match self {
            Self::Vector(elements) => elements,
            Self::Matrix { rows, columns } => rows * columns,
            Self::Product { m, n, .. } => m * n,
        }
    }

    /// The same with every side rounded up to a multiple.
    #[must_use]
    pub const fn rounded_up(self, multiple: u64) -> Self {
        match self {
            Self::Vector(elements) => Self::Vector(elements.next_multiple_of(multiple)),
            Self::Matrix { rows, columns } => {
                Self::Matrix { rows: rows.next_multiple_of(multiple), columns: columns.next_multiple_of(multiple) }
            }
            Self::Product { m, n, k } => Self::Product {
                m: m.next_multiple_of(multiple),
                n: n.next_multiple_of(multiple),
                k: k.next_multiple_of(multiple),
            },
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vector(elements) => write!(f, "{elements}"),
            Self::Matrix { rows, columns } => write!(f, "{rows}x{columns}"),
            Self::Product { m, n, k } => write!(f, "{m}x{n}x{k}"),
        }
    }
}

impl FromStr for Shape {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let wrong = || LabError::Shape(text.to_owned());
        let side = |text: &str| text.parse::<u64>().ok().filter(|&side| side < 1 << 31);
        let sides: Option<Vec<u64>> = text.split('x').map(side).collect();
        let sides = sides.ok_or_else(wrong)?;
        let product = sides.iter().try_fold(1_u64, |product, &side| product.checked_mul(side.max(1)));
        if product.is_none_or(|product| product >= 1 << 56) {
            return Err(wrong());
        }
        match sides[..] {
            [elements] => Ok(Self::Vector(elements)),
            [rows, columns] => Ok(Self::Matrix { rows, columns }),
            [m, n, k] => Ok(Self::Product { m, n, k }),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_back_as_they_are_written() {
        for shape in [Shape::Vector(1 << 30), Shape::Matrix { rows: 1, columns: 129 }, Shape::cube(8192)] {
            assert_eq!(shape.to_string().parse::<Shape>().expect("a shape"), shape);
        }
        let largest: Shape = "4194304x4194304x4095".parse().expect("a shape");
        for dtype in [Dtype::F32, Dtype::Bf16] {
            assert!(Operation::Gemm.bytes(dtype, largest) > 0 && Operation::Gemm.flops(largest) > 0);
        }
        let huge = "2147483647";
        for wrong in [format!("{huge}x{huge}"), format!("{huge}x0x{huge}"), format!("{huge}x{huge}x{huge}")] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
        for wrong in ["", "x", "1x", "1x2x3x4", "-1", "2147483648", "99999999999999999999", "1 x 2"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn work_is_counted_once_an_element() {
        let saxpy = Operation::Saxpy.bytes(Dtype::F32, Shape::Vector(1 << 28));
        assert_eq!(saxpy, 3 << 30);
        assert_eq!(Operation::Transpose.bytes(Dtype::Bf16, Shape::square(1024)), 4 << 20);
        assert_eq!(Operation::Reduction.bytes(Dtype::F32, Shape::Vector(10)), 40);
        let product = Shape::Product { m: 2, n: 3, k: 5 };
        assert_eq!(Operation::Gemm.bytes(Dtype::F32, product), 4 * (10 + 15 + 6));
        assert_eq!(Operation::Gemm.flops(product), 60);
    }
}
