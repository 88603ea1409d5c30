//! One problem: an operation on numbers of a type at a size, its arrays, and how its result is judged.

use crate::{Dtype, Operation, Shape};

/// What is computed, with what, how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    /// What.
    pub operation: Operation,
    /// With which numbers.
    pub dtype: Dtype,
    /// How much.
    pub shape: Shape,
}

/// An array of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Its name in the kernel's signature.
    pub name: &'static str,
    /// Its size.
    pub elements: u64,
    /// Rows and columns, for messages; (1, elements) for a vector.
    pub columns: u64,
    /// What the kernel does with it.
    pub role: Role,
}

/// What a kernel does with an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads it.
    Input,
    /// Writes all of it.
    Output,
    /// Reads and writes all of it.
    InPlace,
}

impl Problem {
    /// The arrays in the order of the kernel's parameters.
    #[must_use]
    pub fn arrays(&self) -> Vec<Array> {
        let vector = |name, elements, role| Array { name, elements, columns: elements, role };
        let matrix = |name, rows: u64, columns: u64, role| Array { name, elements: rows * columns, columns, role };
        match (self.operation, self.shape) {
            (Operation::Saxpy, shape) => {
                vec![vector("x", shape.elements(), Role::Input), vector("y", shape.elements(), Role::InPlace)]
            }
            (Operation::Transpose, Shape::Matrix { rows, columns }) => {
                vec![matrix("in", rows, columns, Role::Input), matrix("out", columns, rows, Role::Output)]
            }
            (Operation::Reduction, shape) => {
                vec![vector("x", shape.elements(), Role::Input), vector("sums", 1, Role::Output)]
            }
            (Operation::Gemm, Shape::Product { m, n, k }) => {
                let (rows, columns) = if self.b_is_transposed() { (n, k) } else { (k, n) };
                vec![
                    matrix("a", m, k, Role::Input),
                    matrix("b", rows, columns, Role::Input),
                    matrix("c", m, n, Role::Output),
                ]
            }
            (Operation::Transpose | Operation::Gemm, _) => Vec::new(),
        }
    }

    /// Whether the right matrix of a product is `(n, k)`.
    #[must_use]
    pub const fn b_is_transposed(&self) -> bool {
        matches!(self.dtype, Dtype::Bf16)
    }

    /// The type of the result: that of the numbers.
    #[must_use]
    pub const fn result_bytes(&self) -> u64 {
        self.dtype.bytes()
    }

    /// By how much the largest error may exceed what the precision honestly gives.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        match (self.operation, self.dtype) {
            // One rounding of the product and one of the sum, both counted in full.
            (Operation::Saxpy, _) => 1.01,
            (Operation::Transpose, _) => 0.0,
            // The honest error is that of one standard deviation; among 10^8 results some lie six away, and 4.4 were
            // measured among 10^6. Operands cut to ten bits are off by hundreds.
            (Operation::Reduction, _) | (Operation::Gemm, Dtype::F32) => 10.0,
            // Half a unit in the last place is certain; tensor cores cut sums off instead of rounding them.
            (Operation::Gemm, Dtype::Bf16) => 2.0,
        }
    }

    /// Whether a result can be told from one computed in higher precision: sums of f32 that are long enough.
    #[must_use]
    pub fn shows_precision(&self) -> bool {
        match (self.operation, self.dtype, self.shape) {
            (Operation::Gemm, Dtype::F32, Shape::Product { m, n, k }) => k >= 256 && m * n >= 1024,
            _ => false,
        }
    }
}

/// Below this multiple of the error that rounding the exact result once makes (root mean squares), sums were not computed in
/// f32: even the kindest order of adding rounds more than once.
pub const TOO_PRECISE: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_the_sizes_of_the_signature() {
        let shape = Shape::Product { m: 2, n: 3, k: 5 };
        let sizes = |dtype| {
            let arrays = Problem { operation: Operation::Gemm, dtype, shape }.arrays();
            arrays.iter().map(|array| (array.elements, array.columns)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(Dtype::F32), [(10, 5), (15, 3), (6, 3)]);
        assert_eq!(sizes(Dtype::Bf16), [(10, 5), (15, 5), (6, 3)]);
        let transpose = Problem {
            operation: Operation::Transpose,
            dtype: Dtype::F32,
            shape: Shape::Matrix { rows: 2, columns: 7 },
        };
        assert_eq!(transpose.arrays()[1].columns, 2);
    }
}
