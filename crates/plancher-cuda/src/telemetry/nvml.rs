//! Telemetry from NVML, the driver's management library.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::Telemetry;
use crate::Result;
use crate::libraries::{Kind, Loaded, load};

type Handle = *mut c_void;
type Status = c_int;
type Number = unsafe extern "C" fn(Handle, *mut c_uint) -> Status;
type NumberOf = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status;

/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM` and `NVML_TEMPERATURE_GPU` of NVML's header.
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;
const TEMPERATURE_GPU: c_uint = 0;

/// NVML, started for the life of the process.
#[derive(Debug)]
struct Nvml {
    handle: unsafe extern "C" fn(*const c_char, *mut Handle) -> Status,
    clock: NumberOf,
    power: Number,
    power_limit: Number,
    temperature: NumberOf,
    driver: unsafe extern "C" fn(*mut c_char, c_uint) -> Status,
    /// Keeps the functions in memory.
    _library: Loaded,
}

impl Nvml {
    fn load() -> Result<Option<Self>> {
        let library = load(Kind::Nvml)?;
        // SAFETY: the types in `Nvml`, and the one of `nvmlInit_v2`, are those of NVML's header.
        let (nvml, start) = unsafe {
            let start: unsafe extern "C" fn() -> Status = library.symbol("nvmlInit_v2")?;
            let nvml = Self {
                handle: library.symbol("nvmlDeviceGetHandleByPciBusId_v2")?,
                clock: library.symbol("nvmlDeviceGetClockInfo")?,
                power: library.symbol("nvmlDeviceGetPowerUsage")?,
                power_limit: library.symbol("nvmlDeviceGetEnforcedPowerLimit")?,
                temperature: library.symbol("nvmlDeviceGetTemperature")?,
                driver: library.symbol("nvmlSystemGetDriverVersion")?,
                _library: library,
            };
            (nvml, start)
        };
        // SAFETY: takes nothing and may be called any number of times.
        Ok((unsafe { start() } == 0).then_some(nvml))
    }
}

/// What NVML says of the device on this PCI bus.
pub(super) fn read(pci_bus: &str) -> Option<Telemetry> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    let nvml = NVML.get_or_init(|| Nvml::load().ok().flatten()).as_ref()?;
    let pci_bus = CString::new(pci_bus).ok()?;
    let mut device: Handle = std::ptr::null_mut();
    // SAFETY: the name ends with a zero, and `device` is a place for the handle.
    if unsafe { (nvml.handle)(pci_bus.as_ptr(), &raw mut device) } != 0 {
        return None;
    }
    let number = |ask: &dyn Fn(*mut c_uint) -> Status| {
        let mut value = 0;
        (ask(&raw mut value) == 0).then_some(value)
    };
    // SAFETY: here and below, `device` is NVML's handle and `to` a place for the number.
    let clock = |kind| number(&|to| unsafe { (nvml.clock)(device, kind, to) });
    // SAFETY: as above.
    let watts = |ask: Number| number(&|to| unsafe { ask(device, to) }).map(|milliwatts| f64::from(milliwatts) / 1e3);
    // SAFETY: as above.
    let temperature = number(&|to| unsafe { (nvml.temperature)(device, TEMPERATURE_GPU, to) });
    let mut driver = [0_u8; 96];
    // SAFETY: NVML writes at most the given number of bytes; the last one stays zero.
    let known = unsafe { (nvml.driver)(driver.as_mut_ptr().cast(), 95) } == 0;
    let driver = CStr::from_bytes_until_nul(&driver).ok().filter(|_| known);
    Some(Telemetry {
        sm_clock_mhz: clock(CLOCK_SM),
        memory_clock_mhz: clock(CLOCK_MEMORY),
        power_watts: watts(nvml.power),
        power_limit_watts: watts(nvml.power_limit),
        temperature_celsius: temperature,
        driver: driver.map(|driver| driver.to_string_lossy().into_owned()),
    })
}
