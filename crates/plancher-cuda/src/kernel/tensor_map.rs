//! Tensor maps: how the bulk copy engine finds the boxes of a matrix (compute capability 9.0).

use cudarc::driver::sys::{
    self, CUdeviceptr, CUtensorMap, CUtensorMapDataType_enum as Type, CUtensorMapFloatOOBfill_enum as Fill,
    CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
    CUtensorMapSwizzle_enum as Swizzle,
};

use crate::{CudaError, Device, Result};

/// A matrix in the device's memory as the bulk copy engine sees it: boxes of it are copied to and from shared memory, and
/// what lies outside the matrix is read as zeros and not written. A kernel takes it as
/// `const __grid_constant__ tensor_map` with `struct alignas(64) tensor_map { unsigned long long opaque[16]; }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap(CUtensorMap);

/// A matrix and its boxes, row-major. Numbers have 2 bytes (bf16) or 4 (f32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiled {
    /// The address of the first element, a multiple of 16.
    pub pointer: CUdeviceptr,
    /// Bytes of an element: 2 or 4.
    pub element_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Columns; a row's bytes are a multiple of 16.
    pub columns: u64,
    /// Rows of a box, at most 256.
    pub box_rows: u32,
    /// Columns of a box, at most 256; its bytes are a multiple of 16, and with a swizzle at most as many as that.
    pub box_columns: u32,
    /// Bytes of the pattern in which pieces of 16 bytes change places in shared memory: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}

impl TensorMap {
    /// Describes a matrix.
    ///
    /// # Errors
    /// If the driver does not accept the description; what it demands is said at the fields of [`Tiled`].
    pub fn new(device: &Device, tiled: &Tiled) -> Result<Self> {
        let refuse = |problem: &str| CudaError::Unsupported(format!("a tensor map of {tiled:?}: {problem}"));
        if !device.architecture().has_bulk_copies() {
            return Err(refuse("this device has no tensor maps"));
        }
        let number = match tiled.element_bytes {
            2 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            4 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            _ => return Err(refuse("elements have 2 or 4 bytes")),
        };
        let swizzle = match tiled.swizzle {
            0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            _ => return Err(refuse("a swizzle is 0, 32, 64 or 128 bytes")),
        };
        let stride = tiled.columns.checked_mul(tiled.element_bytes).ok_or_else(|| refuse("it is too large"))?;
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the context is current after `bind`; the map is a place for the description, aligned as its type says;
        // the arrays have the lengths that rank 2 asks for. The address is only described, not used.
        let result = unsafe {
            device.bind()?;
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                number,
                2,
                tiled.pointer as *mut std::ffi::c_void,
                [tiled.columns, tiled.rows].as_ptr(),
                [stride].as_ptr(),
                [tiled.box_columns, tiled.box_rows].as_ptr(),
                [1, 1].as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        device.check_for("cuTensorMapEncodeTiled", result, || format!("{tiled:?}"))?;
        Ok(Self(map))
    }

    pub(super) fn words(&self) -> [u64; 16] {
        self.0.opaque
    }
}
