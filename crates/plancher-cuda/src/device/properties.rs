//! What a GPU is, as the driver tells.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute};
use serde::Serialize;

use crate::driver::{CudaVersion, check, driver};
use crate::{Architecture, Result};

/// What a GPU is. Sizes in bytes, clocks in kHz.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Properties {
    /// Its number in the driver's order.
    pub ordinal: usize,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Where it sits, such as `0000:01:00.0`.
    pub pci_bus: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory that the driver manages.
    pub memory: u64,
    /// Second-level cache.
    pub l2: u64,
    /// Shared memory of one multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// The most shared memory that a block may have if it asks for it.
    pub shared_memory_per_block: u32,
    /// Registers of one multiprocessor, 4 bytes each.
    pub registers_per_multiprocessor: u32,
    /// The most threads that one multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// The highest clock of the multiprocessors.
    pub clock_khz: u32,
    /// The highest clock of the memory.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Whether all blocks of a launch can be made to run at once.
    pub cooperative_launch: bool,
    /// The newest CUDA that the driver supports.
    pub driver: Option<CudaVersion>,
}

impl Properties {
    /// What code is compiled for to run here.
    #[must_use]
    pub const fn architecture(&self) -> Architecture {
        Architecture::of_capability(self.compute_capability.0, self.compute_capability.1)
    }

    /// What the memory's bus could carry at its highest clock, two transfers a cycle, in 1e9 bytes a second; `None` where
    /// the driver does not tell.
    #[must_use]
    pub fn bus_gb_per_s(&self) -> Option<f64> {
        let bytes_per_cycle = f64::from(self.memory_bus_bits) / 8.0 * 2.0;
        let rate = f64::from(self.memory_clock_khz) * 1e3 * bytes_per_cycle / 1e9;
        (rate > 0.0).then_some(rate)
    }

    pub(super) fn read(ordinal: usize, device: CUdevice) -> Result<Self> {
        let number = |attribute| attribute_of(device, attribute);
        let mut memory: usize = 0;
        // SAFETY: `memory` is a place for a size, and `device` is a device.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory, device) })?;
        Ok(Self {
            ordinal,
            // SAFETY: the driver writes at most the given number of characters, and a final zero.
            name: text("cuDeviceGetName", |to, length| unsafe { sys::cuDeviceGetName(to, length, device) })?,
            // SAFETY: as above.
            pci_bus: text("cuDeviceGetPCIBusId", |to, length| unsafe { sys::cuDeviceGetPCIBusId(to, length, device) })?,
            compute_capability: (
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            l2: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            shared_memory_per_multiprocessor: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            shared_memory_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            registers_per_multiprocessor: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            threads_per_multiprocessor: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            cooperative_launch: number(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
            driver: Some(driver()?.cuda),
        })
    }
}

fn attribute_of(device: CUdevice, attribute: Attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: `value` is a place for the number, and `device` is a device.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// A string that the driver writes into a place of a given length.
fn text(call: &'static str, ask: impl FnOnce(*mut c_char, c_int) -> sys::CUresult) -> Result<String> {
    let mut place = [0_u8; 256];
    // One less, so that the last byte stays zero whatever is written.
    check(call, ask(place.as_mut_ptr().cast(), 255))?;
    Ok(CStr::from_bytes_until_nul(&place).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_of_an_h200_carries_4814_gb_per_s() {
        let h200 = Properties { memory_clock_khz: 3_201_000, memory_bus_bits: 6016, ..Properties::default() };
        assert!(h200.bus_gb_per_s().is_some_and(|rate| (rate - 4814.3).abs() < 0.1));
        assert_eq!(Properties::default().bus_gb_per_s(), None);
    }
}
