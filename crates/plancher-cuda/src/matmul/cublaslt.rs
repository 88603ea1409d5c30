//! cuBLASLt, found at run time: one plan (descriptors and the algorithm that the library's heuristics prefer) for each
//! shape.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{from_ref, null_mut};

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasStatus_t, cudaDataType,
};
use cudarc::driver::sys::CUdeviceptr;

use super::{Output, Plans, Product, ProductF32};
use crate::libraries::{Kind, preload};
use crate::{CudaError, Device, DeviceBuffer, Element, Result};

/// Scratch memory that algorithms may use, as the library's documentation advises for Hopper.
const WORKSPACE: usize = 32 << 20;

/// The library, its handle and the plans made so far.
#[derive(Debug)]
pub(super) struct CublasLt {
    // Dropped first to last: plans before the handle.
    plans: Plans<(Product, usize), Plan>,
    plans_f32: Plans<ProductF32, Plan>,
    handle: Handle,
    workspace: DeviceBuffer<u8>,
    device: Device,
    path: PathBuf,
    version: String,
}

#[derive(Debug)]
struct Handle(sys::cublasLtHandle_t);

// SAFETY: the library's handles may be used from any thread.
unsafe impl Send for Handle {}

impl CublasLt {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let path = preload(Kind::CublasLt)?;
        // SAFETY: this looks for the library that has just been loaded.
        if !unsafe { sys::is_culib_present() } {
            let problem = "the loader does not find it by its usual names".to_owned();
            return Err(CudaError::LibraryBroken { path, problem });
        }
        device.bind()?;
        let mut handle = null_mut();
        // SAFETY: the context is current, and `handle` is a place for the handle.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&raw mut handle) })?;
        let handle = Handle(handle);
        let workspace = DeviceBuffer::uninitialized(device, WORKSPACE)?;
        // SAFETY: the library is loaded.
        let version = unsafe { sys::cublasLtGetVersion() };
        let version = format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
        Ok(Self {
            plans: Plans::new(),
            plans_f32: Plans::new(),
            handle,
            workspace,
            device: device.clone(),
            path,
            version,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// `major.minor.patch`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// # Safety
    /// As [`super::Matmul::multiply`].
    pub(super) unsafe fn multiply(
        &mut self,
        product: &Product,
        m: usize,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        self.device.bind()?;
        let handle = self.handle.0;
        let plan = self.plans.get_or_make((*product, m), || Plan::of(handle, product, m))?;
        let beta = if product.output == Output::AddF32 { 1.0 } else { 0.0 };
        // SAFETY: the plan's descriptors say the sizes that the caller promises.
        unsafe { plan.run(&self.handle, &self.workspace, beta, x, weight, out) }
    }

    /// `out (m, rows) = x (m, columns) * weight` in f32 throughout, without tensor cores; `weight` is `(rows, columns)` and
    /// taken transposed, or `(columns, rows)`.
    ///
    /// # Safety
    /// As [`super::Matmul::multiply`], with numbers of 4 bytes.
    pub(super) unsafe fn multiply_f32(
        &mut self,
        shape: ProductF32,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        self.device.bind()?;
        let handle = self.handle.0;
        let plan = self.plans_f32.get_or_make(shape, || {
            let ProductF32 { m, rows, columns, transposed } = shape;
            let number = cudaDataType::CUDA_R_32F;
            let weight = if transposed { (columns, rows) } else { (rows, columns) };
            let layouts = [
                Layout::new(number, weight.0, weight.1, weight.0)?,
                Layout::new(number, columns, m, columns)?,
                Layout::new(number, rows, m, rows)?,
            ];
            Plan::new(handle, layouts, transposed, || format!("{shape:?}"))
        })?;
        // SAFETY: the plan's descriptors say the sizes that the caller promises.
        unsafe { plan.run(&self.handle, &self.workspace, 0.0, x, weight, out) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle was made once. An error has nowhere to go.
        let _ = unsafe { sys::cublasLtDestroy(self.0) };
    }
}

/// How one product is computed. The library counts columns first, so that our row-major `out = x * weightᵀ` is its
/// `outᵀ = weightᵀ' * xᵀ`: A is the weight, transposed, B is x.
#[derive(Debug)]
struct Plan {
    operation: Operation,
    weight: Layout,
    x: Layout,
    out: Layout,
    algorithm: cublasLtMatmulHeuristicResult_t,
}

// SAFETY: descriptors are plain memory of the library.
unsafe impl Send for Plan {}

impl Plan {
    fn of(handle: sys::cublasLtHandle_t, product: &Product, m: usize) -> Result<Self> {
        let element = match product.element {
            Element::Bf16 => cudaDataType::CUDA_R_16BF,
            Element::F16 => cudaDataType::CUDA_R_16F,
        };
        let result = if product.output == Output::Elements { element } else { cudaDataType::CUDA_R_32F };
        let layouts = [
            Layout::new(element, product.columns, product.rows, product.columns)?,
            Layout::new(element, product.columns, m, product.columns)?,
            Layout::new(result, product.rows, m, product.out_stride)?,
        ];
        Self::new(handle, layouts, true, || format!("{m} rows and {product:?}"))
    }

    /// `layouts` are those of the weight, of x and of the result; `shape` names them in messages.
    fn new(
        handle: sys::cublasLtHandle_t,
        layouts: [Layout; 3],
        transposed: bool,
        shape: impl FnOnce() -> String,
    ) -> Result<Self> {
        let operation = Operation::new(transposed)?;
        let [weight, x, out] = layouts;
        let preferences = Preferences::new()?;
        // SAFETY: a plain structure of numbers and a status, for which zero is success.
        let mut algorithm: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = 0;
        // SAFETY: all descriptors live during the call, and there is a place for one result.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                operation.0,
                weight.0,
                x.0,
                out.0,
                out.0,
                preferences.0,
                1,
                &raw mut algorithm,
                &raw mut found,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        check("cublasLtMatmulAlgoGetHeuristic", algorithm.state)?;
        if found == 0 {
            return Err(CudaError::Unsupported(format!("cuBLASLt has no algorithm for {}", shape())));
        }
        Ok(Self { operation, weight, x, out, algorithm })
    }

    /// # Safety
    /// The addresses hold what the layouts say, until the device has been waited for.
    unsafe fn run(
        &self,
        handle: &Handle,
        workspace: &DeviceBuffer<u8>,
        beta: f32,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        let one = 1.0_f32;
        // SAFETY: the descriptors are those of the addresses, as the caller promises; the factors are read during the
        // call; the workspace is as large as the algorithm was allowed to want.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle.0,
                self.operation.0,
                from_ref(&one).cast(),
                weight as *const c_void,
                self.weight.0,
                x as *const c_void,
                self.x.0,
                from_ref(&beta).cast(),
                out as *const c_void,
                self.out.0,
                out as *mut c_void,
                self.out.0,
                &raw const self.algorithm.algo,
                workspace.pointer() as *mut c_void,
                self.algorithm.workspaceSize,
                workspace.device().stream().cast(),
            )
        };
        check("cublasLtMatmul", status)
    }
}

#[derive(Debug)]
struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    /// With the weight transposed, or as it is.
    fn new(transposed: bool) -> Result<Self> {
        let mut operation = null_mut();
        let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: `operation` is a place for the descriptor.
        let status = unsafe { sys::cublasLtMatmulDescCreate(&raw mut operation, compute, cudaDataType::CUDA_R_32F) };
        check("cublasLtMatmulDescCreate", status)?;
        let operation = Self(operation);
        // `CUBLAS_OP_T` and `CUBLAS_OP_N` of cuBLAS, which the binding does not have.
        let transposed = i32::from(transposed);
        // SAFETY: the attribute has the type of `transposed`.
        let status = unsafe {
            sys::cublasLtMatmulDescSetAttribute(
                operation.0,
                Attribute::CUBLASLT_MATMUL_DESC_TRANSA,
                from_ref(&transposed).cast(),
                size_of_val(&transposed),
            )
        };
        check("cublasLtMatmulDescSetAttribute", status)?;
        Ok(operation)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made once. An error has nowhere to go.
        let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.0) };
    }
}

#[derive(Debug)]
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// Of a matrix whose columns, each of `rows` numbers, begin `stride` numbers apart.
    fn new(number: cudaDataType, rows: usize, columns: usize, stride: usize) -> Result<Self> {
        let mut layout = null_mut();
        // SAFETY: `layout` is a place for the descriptor.
        let status = unsafe {
            sys::cublasLtMatrixLayoutCreate(&raw mut layout, number, rows as u64, columns as u64, stride as i64)
        };
        check("cublasLtMatrixLayoutCreate", status)?;
        Ok(Self(layout))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made once. An error has nowhere to go.
        let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

struct Preferences(sys::cublasLtMatmulPreference_t);

impl Preferences {
    fn new() -> Result<Self> {
        let mut preferences = null_mut();
        // SAFETY: `preferences` is a place for the descriptor.
        let status = unsafe { sys::cublasLtMatmulPreferenceCreate(&raw mut preferences) };
        check("cublasLtMatmulPreferenceCreate", status)?;
        let preferences = Self(preferences);
        let workspace = WORKSPACE as u64;
        // SAFETY: the attribute is a 64-bit number.
        let status = unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                preferences.0,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                from_ref(&workspace).cast(),
                size_of_val(&workspace),
            )
        };
        check("cublasLtMatmulPreferenceSetAttribute", status)?;
        Ok(preferences)
    }
}

impl Drop for Preferences {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made once. An error has nowhere to go.
        let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library is loaded, since it has just answered; its texts are constants.
    let text = |text: *const std::ffi::c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    let (name, text) =
        unsafe { (text(sys::cublasLtGetStatusName(status)), text(sys::cublasLtGetStatusString(status))) };
    Err(CudaError::Driver { call, on: String::new(), name, text })
}
