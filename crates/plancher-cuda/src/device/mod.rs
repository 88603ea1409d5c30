//! A GPU: its context, one stream on which everything runs in order, and what went wrong on it.

mod faults;
mod properties;
mod recording;

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstream};
use serde::Serialize;

pub use properties::Properties;

use self::faults::Faults;
use self::recording::Recording;
use crate::driver::{check, check_for, driver};
use crate::{Architecture, CudaError, Result};

/// The limit of a context that sets a part of the second-level cache aside.
const PERSISTING_L2: sys::CUlimit = sys::CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE;

/// A GPU that is ready for work. Clones share it.
///
/// All work is put on one stream and runs in the order in which it was put there, also that of several threads. The
/// device's primary context is used, the one that other libraries in the process (PyTorch) use too.
#[derive(Debug, Clone)]
pub struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: CUdevice,
    context: CUcontext,
    stream: CUstream,
    properties: Properties,
    faults: Faults,
}

// SAFETY: the handles are the driver's, which may be used from any thread; `bind` makes the context current first.
unsafe impl Send for Inner {}
// SAFETY: as above; what this type itself changes lies behind a mutex.
unsafe impl Sync for Inner {}

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What no process uses now.
    pub free: u64,
    /// All that the driver manages.
    pub total: u64,
}

impl Device {
    /// How many GPUs the driver shows.
    ///
    /// # Errors
    /// If there is no usable driver.
    pub fn count() -> Result<usize> {
        driver()?;
        let mut count: c_int = 0;
        // SAFETY: `count` is a place for the number.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens GPU number `ordinal`, counted from 0 in the driver's order (`CUDA_VISIBLE_DEVICES` changes it).
    ///
    /// # Errors
    /// If there is no usable driver or no such GPU, or if the driver refuses a context.
    pub fn open(ordinal: usize) -> Result<Self> {
        let count = Self::count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or(CudaError::NoDevice { ordinal, count })?;
        let mut device: CUdevice = 0;
        // SAFETY: `device` is a place for the handle.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, number) })?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: `context` is a place for the handle, and `device` is a device.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) })?;
        // From here on a failure must release the context: `Inner` does it.
        let mut inner = Inner {
            device,
            context,
            stream: std::ptr::null_mut(),
            properties: Properties::default(),
            faults: Faults::default(),
        };
        inner.properties = Properties::read(ordinal, device)?;
        inner.make_current()?;
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and `stream` is a place for the handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut inner.stream, flags) })?;
        Ok(Self(Arc::new(inner)))
    }

    /// What this device is.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.0.properties
    }

    /// What code is compiled for to run here.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.0.properties.architecture()
    }

    /// Free and total memory.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn memory(&self) -> Result<Memory> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; both are places for sizes.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(Memory { free: free as u64, total: total as u64 })
    }

    /// Waits until all work on the stream has been done.
    ///
    /// # Errors
    /// If some of it failed; the error names the kernels that may have.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream is this device's.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream()) })?;
        self.0.faults.all_well();
        Ok(())
    }

    /// Waits until all work in the context has been done, also what others have put on streams of their own.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize_context(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })?;
        self.0.faults.all_well();
        Ok(())
    }

    /// Sets `bytes` bytes at an address of this device, for memory that is dealt out by address. Does not wait.
    ///
    /// # Errors
    /// If the range does not lie in an allocation, or the device has failed.
    ///
    /// # Safety
    /// The range is memory of the device, and nothing of the host relies on what it holds.
    pub unsafe fn fill(&self, pointer: u64, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: as the caller promises; the driver refuses what is no allocation.
        let result = unsafe { sys::cuMemsetD8Async(pointer, byte, bytes as usize, self.stream()) };
        self.check("cuMemsetD8Async", result)
    }

    /// Bytes of the second-level cache that are set aside for data marked as persisting.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn persisting_l2(&self) -> Result<u64> {
        self.bind()?;
        let mut bytes = 0;
        // SAFETY: the context is current, and `bytes` is a place for the size.
        let result = unsafe { sys::cuCtxGetLimit(&raw mut bytes, PERSISTING_L2) };
        self.check("cuCtxGetLimit", result)?;
        Ok(bytes as u64)
    }

    /// Sets so many bytes of the second-level cache aside; the driver may take another number. What persists there now
    /// becomes ordinary.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn set_persisting_l2(&self, bytes: u64) -> Result<()> {
        self.bind()?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the context is current.
        self.check("cuCtxResetPersistingL2Cache", unsafe { sys::cuCtxResetPersistingL2Cache() })?;
        // SAFETY: as above.
        self.check("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(PERSISTING_L2, bytes) })
    }

    /// Whether all work on the stream has been done. Does not wait.
    ///
    /// # Errors
    /// If some of it failed; the error names the kernels that may have.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.bind()?;
        // SAFETY: the stream is this device's.
        let result = unsafe { sys::cuStreamQuery(self.stream()) };
        if result == CUresult::CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        self.check("cuStreamQuery", result)?;
        Ok(true)
    }

    /// The stream, for libraries that put work on it: the device's, which lives as long as any clone of it, or that on
    /// which this thread records a graph.
    #[must_use]
    pub fn stream(&self) -> CUstream {
        recording::stream(self.identity()).unwrap_or(self.0.stream)
    }

    /// Tells devices apart; clones have the same.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Makes the context current on this thread; every call of the driver needs that first.
    ///
    /// # Errors
    /// If the device has failed before.
    pub fn bind(&self) -> Result<()> {
        self.0.faults.check()?;
        self.0.make_current()
    }

    /// Remembers that `kernel` was launched, so that an error that shows later can name it.
    pub(crate) fn launched(&self, kernel: &Arc<str>) {
        if !recording::launched(self.identity(), kernel) {
            self.0.faults.launched(kernel);
        }
    }

    /// Records what `work` puts on this device's stream from this thread; nothing of it runs. Returns the graph, with the
    /// names of its kernels; `name` stands for it in messages.
    pub(crate) fn record(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<(sys::CUgraph, Vec<Arc<str>>)> {
        self.bind()?;
        let recording = Recording::begin(self, name)?;
        let outcome = work();
        let (graph, kernels) = recording.end()?;
        if let Err(error) = outcome {
            // SAFETY: the graph was just made, and nobody else has it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
            return Err(error);
        }
        Ok((graph, kernels))
    }

    /// As [`Self::launched`], for a graph of these kernels.
    pub(crate) fn replayed(&self, graph: &Arc<str>, kernels: &[Arc<str>]) {
        self.0.faults.replayed(graph, kernels);
    }

    /// Whether a launch is to be followed by a wait, to find out which kernel fails; what is only recorded cannot be.
    pub(crate) fn waits_after_launches(&self) -> bool {
        self.0.faults.waits_after_launches() && recording::stream(self.identity()).is_none()
    }

    /// An error, unless the call went well; one that spoils the context is kept and ends all later work.
    pub(crate) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.check_for(call, result, String::new)
    }

    /// As [`Self::check`]; `subject` says what the call was for.
    pub(crate) fn check_for(
        &self,
        call: &'static str,
        result: CUresult,
        subject: impl FnOnce() -> String,
    ) -> Result<()> {
        if crate::driver::is_sticky(result) {
            return Err(self.0.faults.failed(result));
        }
        check_for(call, result, subject)
    }
}

impl Inner {
    fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained as long as this lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Errors have nowhere to go here, and after a fault every call fails anyway.
        if !self.stream.is_null() && self.make_current().is_ok() {
            // SAFETY: the stream was made by `open`, and nothing uses it any more.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
        // SAFETY: `open` retained the context once.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error_and_no_panic() {
        let error = Device::open(usize::MAX).expect_err("no such device");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}
