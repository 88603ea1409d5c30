//! An array of the host that the device can read and write: page-locked and mapped into the device's addresses.

use std::ffi::c_void;
use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUdeviceptr};

use super::{byte_size, range};
use crate::{CudaError, Device, Result};

/// An array of `len` zeroed elements in page-locked memory of the host, which the device sees at
/// [`Self::device_pointer`]. Copies from it run at the bus's full speed; a kernel can write results into it that the
/// host reads while the kernel runs on.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    device: Device,
    host: *mut T,
    mapped: CUdeviceptr,
    len: usize,
    elements: PhantomData<T>,
}

// SAFETY: this owns the memory like a `Box` of plain data.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: shared access only reads, through volatile reads.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// An array of zeros.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn zeroed(device: &Device, len: usize) -> Result<Self> {
        let bytes = byte_size::<T>(len)?.max(1);
        device.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current, and `host` is a place for the address.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut host, bytes, flags) };
        device.check_for("cuMemHostAlloc", result, || format!("{bytes} bytes of page-locked memory"))?;
        // SAFETY: the allocation is `bytes` long and nothing else knows of it.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        let mut buffer = Self { device: device.clone(), host: host.cast(), mapped: 0, len, elements: PhantomData };
        // SAFETY: the memory was allocated as mapped.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut buffer.mapped, host, 0) };
        device.check("cuMemHostGetDevicePointer", result)?;
        Ok(buffer)
    }

    /// Element `index` as it is now; the device may be changing it.
    ///
    /// # Panics
    /// If `index` is not below the length.
    #[must_use]
    pub fn read(&self, index: usize) -> T {
        assert!(index < self.len, "element {index} of a buffer of {}", self.len);
        // SAFETY: the element is inside; any bits are a value of `T`; volatile, because the device may write it.
        unsafe { self.host.add(index).read_volatile() }
    }

    /// Elements `at..at + count` as they are now.
    ///
    /// # Errors
    /// If they lie outside.
    pub fn read_range(&self, at: usize, count: usize) -> Result<Vec<T>> {
        range("end of what is read", at, count, self.len)?;
        Ok((at..at + count).map(|index| self.read(index)).collect())
    }

    /// Sets element `index`; the device may be reading it.
    ///
    /// # Panics
    /// If `index` is not below the length.
    pub fn write(&mut self, index: usize, value: T) {
        assert!(index < self.len, "element {index} of a buffer of {}", self.len);
        // SAFETY: the element is inside; volatile, because the device may read it.
        unsafe { self.host.add(index).write_volatile(value) }
    }

    /// All elements, to be filled. No kernel or copy that uses them may be running: those that can be are started by
    /// unsafe functions, whose callers promise it.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: the allocation holds `len` elements, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.host, self.len) }
    }

    /// Copies `values` to the elements from `at` on, under the same condition as [`Self::as_mut_slice`].
    ///
    /// # Errors
    /// If they do not fit.
    pub fn copy_from_slice(&mut self, at: usize, values: &[T]) -> Result<()> {
        range("end of what is written", at, values.len(), self.len)?;
        self.as_mut_slice()[at..at + values.len()].copy_from_slice(values);
        Ok(())
    }

    /// The host's address of element `index`, which must be at most the length.
    pub(super) fn host_pointer(&self, index: usize) -> *mut T {
        debug_assert!(index <= self.len);
        self.host.wrapping_add(index)
    }

    /// The device's address of element `index`; `index` may be the length.
    ///
    /// # Errors
    /// If it is larger.
    pub fn device_pointer_at(&self, index: usize) -> Result<CUdeviceptr> {
        if index > self.len {
            return Err(CudaError::Range { what: "element", value: index as u64, limit: self.len as u64 });
        }
        Ok(self.mapped + (index * size_of::<T>()) as u64)
    }
}

impl<T> PinnedBuffer<T> {
    /// The device's address of the first element.
    #[must_use]
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.mapped
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // Work on the stream may still use the memory. After a failure nothing runs any more.
        let _ = self.device.synchronize();
        // SAFETY: the address is an allocation that is freed once. An error has nowhere to go.
        let _ = unsafe { sys::cuMemFreeHost(self.host.cast()) };
    }
}
