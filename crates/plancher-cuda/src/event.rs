//! Marks on the device's stream, and the time between them as the device measures it.

use cudarc::driver::sys::{self, CUevent};

use crate::driver::elapsed_milliseconds;
use crate::{Device, Result};

/// A mark on the stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    event: CUevent,
}

// SAFETY: the handle is the driver's, which may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Puts a mark behind all work that is on the stream now.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn record(device: &Device) -> Result<Self> {
        device.bind()?;
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current, and `event` is a place for the handle.
        device.check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
        let mut mark = Self { device: device.clone(), event };
        mark.record_again()?;
        Ok(mark)
    }

    /// Moves the mark behind all work that is on the stream now.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn record_again(&mut self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: event and stream are this device's.
        self.device.check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, self.device.stream()) })
    }

    /// Waits until the work before the mark is done.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn wait(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the event is this device's.
        self.device.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Waits for this mark, then returns the milliseconds since an earlier one, with a resolution of about half a
    /// microsecond.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f64> {
        self.wait()?;
        // SAFETY: both events were recorded.
        let (result, milliseconds) = unsafe { elapsed_milliseconds(earlier.event, self.event) };
        self.device.check("cuEventElapsedTime", result)?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the event was made once and is destroyed once. An error has nowhere to go.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}

/// The milliseconds that the device needs for what `work` puts on the stream.
///
/// # Errors
/// If `work` fails, on the host or on the device.
pub fn device_milliseconds(device: &Device, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Event::record(device)?;
    work()?;
    Event::record(device)?.milliseconds_since(&start)
}
