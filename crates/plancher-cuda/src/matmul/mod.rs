//! Products of many rows with a weight matrix: cuBLASLt where it is found, else our own tensor-core kernel.

mod cublaslt;
mod tensor_core;

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use cudarc::driver::sys::CUdeviceptr;

use self::cublaslt::CublasLt;
use self::tensor_core::TensorCore;
pub(crate) use self::tensor_core::{FAMILY, HOPPER_FAMILY};
use crate::{Compiler, CudaError, Device, Element, Loader, Result};

/// What a product writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Elements of the weights' type.
    Elements,
    /// f32.
    F32,
    /// f32, added to what is there.
    AddF32,
}

/// The shape of `out (m, rows) = x (m, columns) * weight (rows, columns)ᵀ`, all row-major, sums in f32. `m` is given at
/// each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// The type of `x` and `weight`.
    pub element: Element,
    /// Outputs.
    pub rows: usize,
    /// Inputs, padding included: a multiple of [`ROW_MULTIPLE`](crate::ROW_MULTIPLE), which is also the stride of `x` and
    /// of `weight`.
    pub columns: usize,
    /// Numbers from one row of the result to the next: at least `rows`, a multiple of 4. What lies between `rows` and
    /// the stride may become zeros.
    pub out_stride: usize,
    /// What is written.
    pub output: Output,
}

/// The shape of `out (m, rows) = x (m, columns) * weight` in f32, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductF32 {
    /// Rows of `x` and of the result.
    pub m: usize,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Whether `weight` is `(rows, columns)`, and taken transposed, or `(columns, rows)`.
    pub transposed: bool,
}

/// Which implementation to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MatmulChoice {
    /// cuBLASLt where it is found.
    #[default]
    Auto,
    /// cuBLASLt, or an error.
    CublasLt,
    /// Our own kernel.
    Own,
}

/// Multiplies. Plans and kernels are made at the first use of a shape; to record products in a graph, do them once before
/// (a graph records launches, not the loading of kernels).
#[derive(Debug)]
pub struct Matmul(Implementation);

#[derive(Debug)]
enum Implementation {
    CublasLt(Box<CublasLt>),
    Own(Box<TensorCore>),
}

impl Matmul {
    /// Makes one for `device`.
    ///
    /// # Errors
    /// If cuBLASLt is demanded and cannot be used, or the device fails.
    pub fn new(device: &Device, compiler: &Compiler, choice: MatmulChoice) -> Result<Self> {
        if choice != MatmulChoice::Own {
            match CublasLt::new(device) {
                Ok(library) => return Ok(Self(Implementation::CublasLt(Box::new(library)))),
                Err(error) if choice == MatmulChoice::CublasLt => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Self(Implementation::Own(Box::new(TensorCore::new(Loader::new(device, compiler))))))
    }

    /// `cuBLASLt` with its version, or `own`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.0 {
            Implementation::CublasLt(library) => format!("cuBLASLt {}", library.version()),
            Implementation::Own(_) => "own".to_owned(),
        }
    }

    /// The file of cuBLASLt, where it is used.
    #[must_use]
    pub fn library(&self) -> Option<&Path> {
        match &self.0 {
            Implementation::CublasLt(library) => Some(library.path()),
            Implementation::Own(_) => None,
        }
    }

    /// Puts the product of `m` rows on the device's stream. All addresses are multiples of 256.
    ///
    /// # Errors
    /// If there is no algorithm or kernel for the shape, or the device fails.
    ///
    /// # Safety
    /// `x` holds `(m, columns)` elements, `weight` `(rows, columns)`, `out` `(m, out_stride)` numbers; they live until
    /// the device has been waited for, and `out` overlaps neither of the others.
    pub unsafe fn multiply(
        &mut self,
        product: &Product,
        m: usize,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        if m == 0 {
            return Ok(());
        }
        product.check(m)?;
        // SAFETY: as the caller promises.
        unsafe {
            match &mut self.0 {
                Implementation::CublasLt(library) => library.multiply(product, m, x, weight, out),
                Implementation::Own(kernel) => kernel.multiply(product, m, x, weight, out),
            }
        }
    }
}

impl Matmul {
    /// The product of a shape in f32 throughout, by cuBLASLt, for ceilings. Addresses are multiples of 16.
    ///
    /// # Errors
    /// If this is not cuBLASLt, if it has no algorithm for the shape, or the device fails.
    ///
    /// # Safety
    /// As [`Self::multiply`], with numbers of 4 bytes, without strides.
    pub unsafe fn multiply_f32(
        &mut self,
        shape: ProductF32,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        match &mut self.0 {
            // SAFETY: as the caller promises.
            Implementation::CublasLt(library) => unsafe { library.multiply_f32(shape, x, weight, out) },
            Implementation::Own(_) => Err(CudaError::Unsupported("our own products are not in f32".to_owned())),
        }
    }
}

impl Product {
    fn check(&self, m: usize) -> Result<()> {
        let sizes = [m, self.rows, self.columns, self.out_stride];
        let fits = sizes.iter().all(|&size| size > 0 && i32::try_from(size).is_ok());
        let strides = self.columns.is_multiple_of(crate::ROW_MULTIPLE) && self.out_stride.is_multiple_of(4);
        if fits && strides && self.out_stride >= self.rows {
            return Ok(());
        }
        Err(CudaError::Unsupported(format!("a product of {m} rows and this shape is impossible: {self:?}")))
    }
}

/// Plans by what they are for, a bounded number of them.
#[derive(Debug)]
struct Plans<K, T> {
    plans: HashMap<K, T>,
}

impl<K: Copy + Eq + Hash, T> Plans<K, T> {
    /// More shapes than any model has at a time; the rows of last chunks vary.
    const MOST: usize = 512;

    fn new() -> Self {
        Self { plans: HashMap::new() }
    }

    fn get_or_make(&mut self, key: K, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if !self.plans.contains_key(&key) && self.plans.len() >= Self::MOST {
            self.plans.clear();
        }
        Ok(match self.plans.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(make()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_no_kernel_takes_are_refused() {
        let good = Product { element: Element::F16, rows: 10, columns: 128, out_stride: 12, output: Output::F32 };
        assert!(good.check(7).is_ok());
        for bad in [
            Product { columns: 100, ..good },
            Product { out_stride: 8, ..good },
            Product { out_stride: 10, ..good },
            Product { rows: 0, ..good },
            Product { rows: 1 << 33, out_stride: 1 << 33, ..good },
        ] {
            assert!(bad.check(7).is_err(), "{bad:?}");
        }
        assert!(good.check(1 << 32).is_err());
    }

    #[test]
    fn plans_are_made_once_and_do_not_pile_up() {
        let product = Product { element: Element::F16, rows: 1, columns: 64, out_stride: 4, output: Output::F32 };
        let mut plans = Plans::new();
        let mut made = 0;
        for m in (1..2000).chain(1990..2000) {
            let plan = plans.get_or_make((product, m), || {
                made += 1;
                Ok(m)
            });
            assert_eq!(plan, Ok(&m));
            assert!(plans.plans.len() <= Plans::<(Product, usize), usize>::MOST);
        }
        assert_eq!(made, 1999);
    }
}
