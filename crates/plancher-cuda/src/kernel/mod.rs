//! Kernels on a device: loading machine code, setting attributes, launching.

mod arguments;
mod launch;
mod load;
mod tensor_map;

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute as Attribute, CUmodule, CUresult};

pub use arguments::Arguments;
pub use launch::Launch;
pub use load::Loader;
pub use tensor_map::{TensorMap, Tiled};

use crate::{Cubin, CudaError, Device, KernelResources, Result};

/// Machine code on a device; unloaded when it and all its kernels are dropped.
#[derive(Debug, Clone)]
pub struct Module(Arc<ModuleInner>);

#[derive(Debug)]
struct ModuleInner {
    device: Device,
    module: CUmodule,
    source_name: Arc<str>,
    /// The number of parameters of the kernels for which the code tells it.
    parameter_counts: HashMap<String, usize>,
}

// SAFETY: the handle is the driver's, which may be used from any thread.
unsafe impl Send for ModuleInner {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for ModuleInner {}

/// A kernel that can be launched.
#[derive(Debug, Clone)]
pub struct Kernel {
    module: Module,
    function: CUfunction,
    name: Arc<str>,
    /// Bytes of each parameter.
    parameters: Arc<[usize]>,
}

// SAFETY: the handle belongs to the module, which this keeps.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Module {
    /// Puts machine code on the device.
    ///
    /// # Errors
    /// If the driver does not accept it, or there is no memory for it.
    pub fn load(device: &Device, cubin: &Cubin) -> Result<Self> {
        device.bind()?;
        let mut module: CUmodule = std::ptr::null_mut();
        // SAFETY: the code is a whole ELF file as NVRTC made it, since only the compiler makes a `Cubin`, and `module` is
        // a place for the handle.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, cubin.code().as_ptr().cast::<c_void>()) };
        device.check_for("cuModuleLoadData", result, || format!("`{}` ({})", cubin.source_name, cubin.architecture))?;
        let counted = |kernel: &KernelResources| Some((kernel.name.clone(), cubin.parameter_count(&kernel.name)?));
        let parameter_counts = cubin.kernels.iter().filter_map(counted).collect();
        let source_name = Arc::clone(&cubin.source_name);
        Ok(Self(Arc::new(ModuleInner { device: device.clone(), module, source_name, parameter_counts })))
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let inner = &self.0;
        let missing = || CudaError::Launch {
            kernel: name.to_owned(),
            problem: format!("`{}.cu` has no such kernel", inner.source_name),
        };
        inner.device.bind()?;
        let c_name = CString::new(name).map_err(|_| missing())?;
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a zero, and `function` is a place for the handle.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut function, inner.module, c_name.as_ptr()) };
        if result == CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(missing());
        }
        inner.device.check_for("cuModuleGetFunction", result, || format!("`{name}`"))?;
        let mut parameters = Vec::new();
        // Where the code does not tell their number, the driver's refusal of one too many does.
        let most = inner.parameter_counts.get(name).copied().unwrap_or(usize::MAX);
        let (mut offset, mut size) = (0, 0);
        while parameters.len() < most {
            // SAFETY: the function is loaded, and both are places for sizes.
            let result = unsafe { sys::cuFuncGetParamInfo(function, parameters.len(), &raw mut offset, &raw mut size) };
            if result != CUresult::CUDA_SUCCESS {
                break;
            }
            parameters.push(size);
        }
        Ok(Kernel { module: self.clone(), function, name: name.into(), parameters: parameters.into() })
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        // Work on the stream may still run this code.
        if self.device.synchronize().is_ok() {
            // SAFETY: the module was loaded once and nothing uses it any more. An error has nowhere to go.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

impl Kernel {
    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device on which this runs.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.module.0.device
    }

    /// Lets a block have `bytes` of dynamic shared memory; without this, 48 KiB are the most.
    ///
    /// # Errors
    /// If the device does not have that much.
    pub fn set_dynamic_shared_memory(&self, bytes: u32) -> Result<()> {
        let limit = self.device().properties().shared_memory_per_block;
        if bytes > limit {
            let (value, limit) = (bytes.into(), limit.into());
            return Err(CudaError::Range { what: "shared memory of a block", value, limit });
        }
        self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
    }

    /// Allows clusters of more than 8 blocks.
    ///
    /// # Errors
    /// If the device has no clusters.
    pub fn allow_large_clusters(&self) -> Result<()> {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    /// How much of a multiprocessor's fast memory is to be shared memory, in per cent of the most possible; the rest
    /// is first-level cache.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn prefer_shared_memory(&self, percent: u32) -> Result<()> {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent.min(100))
    }

    fn set(&self, attribute: Attribute, value: u32) -> Result<()> {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        self.device().bind()?;
        // SAFETY: the function is loaded as long as this lives.
        let result = unsafe { sys::cuFuncSetAttribute(self.function, attribute, value) };
        self.device().check_for("cuFuncSetAttribute", result, || format!("`{}`", self.name))
    }

    fn get(&self, attribute: Attribute) -> Result<u32> {
        let mut value: c_int = 0;
        self.device().bind()?;
        // SAFETY: the function is loaded as long as this lives, and `value` is a place for the number.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.function) };
        self.device().check_for("cuFuncGetAttribute", result, || format!("`{}`", self.name))?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Registers of a thread.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn registers(&self) -> Result<u32> {
        self.get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// How many blocks of `threads` threads with `shared` bytes of dynamic shared memory one multiprocessor holds.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32> {
        let mut blocks: c_int = 0;
        self.device().bind()?;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the function is loaded as long as this lives, and `blocks` is a place for the number.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, self.function, threads, shared as usize)
        };
        let call = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        self.device().check_for(call, result, || format!("`{}`", self.name))?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
