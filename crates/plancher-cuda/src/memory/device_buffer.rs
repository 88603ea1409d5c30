//! An array in the device's memory.

use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use super::{PinnedBuffer, byte_size, range};
use crate::{CudaError, Device, Result};

/// An array of `len` elements in the device's memory, aligned to 256 bytes, freed when dropped.
///
/// Work that uses it runs on the device's stream, and freeing waits for that work.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    device: Device,
    pointer: CUdeviceptr,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// An array whose contents are whatever was there before.
    ///
    /// # Errors
    /// If the memory cannot be had: the error says how many bytes are missing, and the device goes on working.
    pub fn uninitialized(device: &Device, len: usize) -> Result<Self> {
        let bytes = byte_size::<T>(len)?;
        let mut pointer: CUdeviceptr = 0;
        if bytes > 0 {
            device.bind()?;
            // SAFETY: the context is current, and `pointer` is a place for the address.
            let result = unsafe { sys::cuMemAlloc_v2(&raw mut pointer, bytes) };
            if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Err(out_of_memory(bytes as u64, device.memory()?.free));
            }
            device.check("cuMemAlloc", result)?;
        }
        Ok(Self { device: device.clone(), pointer, len, elements: PhantomData })
    }

    /// An array of zero bytes.
    ///
    /// # Errors
    /// As [`Self::uninitialized`], or if the device has failed.
    pub fn zeroed(device: &Device, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialized(device, len)?;
        buffer.fill_bytes(0)?;
        Ok(buffer)
    }

    /// An array with these contents.
    ///
    /// # Errors
    /// As [`Self::uninitialized`], or if the device has failed.
    pub fn from_slice(device: &Device, values: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialized(device, values.len())?;
        buffer.upload(0, values)?;
        Ok(buffer)
    }

    /// Sets every byte. Does not wait.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range is this allocation.
        let result = unsafe { sys::cuMemsetD8Async(self.pointer, byte, self.bytes(), self.device.stream()) };
        self.device.check("cuMemsetD8Async", result)
    }

    /// Copies `values` to the elements from `at` on, and waits until they are there.
    ///
    /// # Errors
    /// If they do not fit, or if the device has failed.
    pub fn upload(&mut self, at: usize, values: &[T]) -> Result<()> {
        range("end of what is uploaded", at, values.len(), self.len)?;
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let (to, from) = (self.pointer_at(at), values.as_ptr().cast());
        // SAFETY: both ranges are inside their arrays, and the wait below keeps `values` borrowed until the end.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, size_of_val(values), self.device.stream()) };
        self.device.check("cuMemcpyHtoDAsync", result)?;
        self.device.synchronize()
    }

    /// As [`Self::upload`], from pinned memory and without waiting: elements `from..from + count` go to `at`.
    ///
    /// # Errors
    /// If they do not fit, or if the device has failed.
    ///
    /// # Safety
    /// Until the device has been waited for, `source` must be neither dropped nor written.
    pub unsafe fn upload_async(
        &mut self,
        at: usize,
        source: &PinnedBuffer<T>,
        from: usize,
        count: usize,
    ) -> Result<()> {
        range("end of what is uploaded", at, count, self.len)?;
        range("end of what is read", from, count, source.len())?;
        if count == 0 {
            return Ok(());
        }
        self.device.bind()?;
        let (to, from) = (self.pointer_at(at), source.host_pointer(from).cast_const().cast());
        // SAFETY: both ranges are inside their arrays; the caller keeps the source as it is until the copy is done.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, byte_size::<T>(count)?, self.device.stream()) };
        self.device.check("cuMemcpyHtoDAsync", result)
    }

    /// Waits for all work, then returns elements `at..at + count`.
    ///
    /// # Errors
    /// If they lie outside, or if the device has failed.
    pub fn download_range(&self, at: usize, count: usize) -> Result<Vec<T>> {
        range("end of what is downloaded", at, count, self.len)?;
        let mut values = vec![T::zeroed(); count];
        if count > 0 {
            self.device.bind()?;
            let (to, from) = (values.as_mut_ptr().cast(), self.pointer_at(at));
            // SAFETY: both ranges are inside their arrays, and the wait below outlasts the copy.
            let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, byte_size::<T>(count)?, self.device.stream()) };
            self.device.check("cuMemcpyDtoHAsync", result)?;
            self.device.synchronize()?;
        }
        Ok(values)
    }

    /// Waits for all work, then returns all elements.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn download(&self) -> Result<Vec<T>> {
        self.download_range(0, self.len)
    }

    /// Copies elements `from..from + count` of `source`, on the same device, to the elements from `at` on. Does not
    /// wait.
    ///
    /// # Errors
    /// If they do not fit, or if the device has failed.
    pub fn copy_from(&mut self, at: usize, source: &Self, from: usize, count: usize) -> Result<()> {
        range("end of what is copied to", at, count, self.len)?;
        range("end of what is copied", from, count, source.len)?;
        if count == 0 {
            return Ok(());
        }
        self.device.bind()?;
        let (to, from, bytes) = (self.pointer_at(at), source.pointer_at(from), byte_size::<T>(count)?);
        // SAFETY: both ranges are inside their allocations, which differ because one is borrowed for change; freeing
        // either waits for the copy.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.device.stream()) };
        self.device.check("cuMemcpyDtoDAsync", result)
    }

    /// Copies elements `from..from + count` to the elements from `to` on, which must be others. Does not wait.
    ///
    /// # Errors
    /// If a range lies outside, if the ranges overlap, or if the device has failed.
    pub fn copy_within(&mut self, to: usize, from: usize, count: usize) -> Result<()> {
        range("end of what is copied to", to, count, self.len)?;
        range("end of what is copied", from, count, self.len)?;
        if to.abs_diff(from) < count {
            let (value, limit) = (count as u64, to.abs_diff(from) as u64);
            return Err(CudaError::Range { what: "elements copied within a buffer", value, limit });
        }
        if count == 0 {
            return Ok(());
        }
        self.device.bind()?;
        let (to, from, bytes) = (self.pointer_at(to), self.pointer_at(from), byte_size::<T>(count)?);
        // SAFETY: both ranges are inside this allocation and do not overlap.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.device.stream()) };
        self.device.check("cuMemcpyDtoDAsync", result)
    }

    /// The device's address of element `index`; `index` may be the length, which is one past the last.
    ///
    /// # Panics
    /// If `index` is larger than the length.
    #[must_use]
    pub fn pointer_at(&self, index: usize) -> CUdeviceptr {
        assert!(index <= self.len, "element {index} of a buffer of {}", self.len);
        self.pointer + (index * size_of::<T>()) as u64
    }
}

impl<T> DeviceBuffer<T> {
    /// The device's address of the first element, 0 if there is none.
    #[must_use]
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
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

    /// The size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device on which this lies.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.pointer != 0 && self.device.bind().is_ok() {
            // SAFETY: the address is an allocation that is freed once. An error has nowhere to go.
            let _ = unsafe { sys::cuMemFree_v2(self.pointer) };
        }
    }
}

fn out_of_memory(wanted: u64, free: u64) -> CudaError {
    CudaError::OutOfMemory { wanted, free, missing: wanted.saturating_sub(free).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_how_much_is_missing() {
        assert_eq!(
            out_of_memory(1_000, 400).to_string(),
            "GPU memory is short by 600 bytes: 1000 bytes were asked for and 400 are free"
        );
        assert!(matches!(out_of_memory(5, 9), CudaError::OutOfMemory { missing: 1, .. }));
    }
}
