//! The driver's library: loaded once, its version and functions checked before the first call, so that the binding
//! (which panics for a missing library or function) never meets either.

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};
use serde::Serialize;

use crate::libraries::{Environment, Kind, preload};
use crate::{CudaError, Result};

/// The oldest driver that works: programmatic dependent launch in graphs came with CUDA 12.3, the parameter sizes of
/// functions with 12.4.
pub const OLDEST_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 4 };

/// A version of CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CudaVersion {
    /// Code of one major version runs on every driver of that version.
    pub major: u32,
    /// Within the major version.
    pub minor: u32,
}

impl std::fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The driver as it was found.
#[derive(Debug, Clone, Serialize)]
pub struct Driver {
    /// The file, where this program had to look for it itself.
    pub path: Option<PathBuf>,
    /// The newest CUDA that the driver supports.
    pub cuda: CudaVersion,
}

/// Every function of the driver that this crate calls.
const FUNCTIONS: &[&str] = &[
    "cuCtxGetLimit",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncGetParamInfo",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveClusters",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuTensorMapEncodeTiled",
];

/// Loads the driver, or says why it cannot be used. The answer stays the same for the life of the process.
///
/// # Errors
/// If there is no driver, if it is older than [`OLDEST_DRIVER`], or if it cannot be started.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Driver> {
    // SAFETY: this tries to load the driver's library by its usual names, which runs its initialisers.
    let present = || unsafe { sys::is_culib_present() };
    let mut path = None;
    if !present() {
        path = Some(preload(Kind::Driver)?);
        if !present() {
            let search = Environment::of_process().find(Kind::Driver);
            return Err(CudaError::LibraryMissing {
                library: Kind::Driver.file(),
                looked_in: search.directories(),
                advice: Kind::Driver.advice(),
            });
        }
    }
    // SAFETY: the library is present, so this cannot panic.
    let library = unsafe { sys::culib() };
    let has = |name: &str| {
        // SAFETY: the address is not used, only whether there is one.
        unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
    };
    let mut number: c_int = 0;
    if has("cuDriverGetVersion") {
        // SAFETY: `number` is a place for the version.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut number) })?;
    }
    let number = u32::try_from(number).unwrap_or(0);
    let cuda = CudaVersion { major: number / 1000, minor: number % 1000 / 10 };
    if cuda < OLDEST_DRIVER {
        return Err(CudaError::DriverTooOld {
            driver: cuda.to_string(),
            needed: OLDEST_DRIVER.to_string(),
            by: "Plancher",
        });
    }
    if let Some(symbol) = FUNCTIONS.iter().find(|name| !has(name)) {
        return Err(CudaError::SymbolMissing { library: Kind::Driver.file(), symbol });
    }
    // SAFETY: the driver's first call; the flags must be 0.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    Ok(Driver { path, cuda })
}

/// Milliseconds between two events. The binding only knows the second version of this function, which came with CUDA
/// 12.8; the first one is in every driver.
///
/// # Safety
/// Both events must have been recorded.
pub(crate) unsafe fn elapsed_milliseconds(start: sys::CUevent, end: sys::CUevent) -> (CUresult, f32) {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
    let mut milliseconds = 0.0;
    // SAFETY: events exist, so the library is present; the type is that of the driver's header.
    let result = match unsafe { sys::culib().get::<Elapsed>(b"cuEventElapsedTime") } {
        // SAFETY: the caller vouches for the events, and `milliseconds` is a place for the time.
        Ok(elapsed) => unsafe { elapsed(&raw mut milliseconds, start, end) },
        Err(_) => CUresult::CUDA_ERROR_NOT_SUPPORTED,
    };
    (result, milliseconds)
}

/// An error of the driver, unless the call went well.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<()> {
    check_for(call, result, String::new)
}

/// As [`check`]; `subject` says what the call was for.
pub(crate) fn check_for(call: &'static str, result: CUresult, subject: impl FnOnce() -> String) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (name, text) = describe(result);
    let subject = subject();
    let on = if subject.is_empty() { subject } else { format!(" for {subject}") };
    Err(CudaError::Driver { call, on, name, text })
}

/// Whether an error leaves the device's context unusable, so that every later call in it fails too.
pub(crate) fn is_sticky(result: CUresult) -> bool {
    use CUresult as R;
    matches!(
        result,
        R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_EXTERNAL_DEVICE
            | R::CUDA_ERROR_UNKNOWN
    )
}

/// The driver's name and explanation of an error.
pub(crate) fn describe(result: CUresult) -> (String, String) {
    type Describe = unsafe fn(CUresult, *mut *const c_char) -> CUresult;
    let ask = |describe: Describe| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` is a place for a pointer to a string that lives as long as the driver.
        if unsafe { describe(result, &raw mut text) } != CUresult::CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver wrote a pointer to a C string.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = ask(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32));
    let text = ask(sys::cuGetErrorString).unwrap_or_else(|| "the driver does not say why".to_owned());
    (name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_there_or_an_error_says_what_is_missing() {
        match driver() {
            Ok(driver) => assert!(driver.cuda >= OLDEST_DRIVER),
            Err(error) => {
                let text = error.to_string();
                assert_eq!(text.lines().count(), 1, "{text}");
                assert!(!text.is_empty());
            }
        }
    }

    #[test]
    fn versions_are_ordered_and_printed() {
        let old = CudaVersion { major: 11, minor: 8 };
        assert!(old < OLDEST_DRIVER && OLDEST_DRIVER < CudaVersion { major: 13, minor: 0 });
        assert_eq!(old.to_string(), "11.8");
    }
}
