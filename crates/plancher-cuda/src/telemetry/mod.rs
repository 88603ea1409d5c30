//! What a GPU is doing now: clocks, power, temperature. Only read, never set.

mod nvml;
mod smi;

use serde::{Deserialize, Serialize};

use crate::Properties;

/// Clocks, power and temperature at one moment; what the driver does not tell is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power drawn, W.
    pub power_watts: Option<f64>,
    /// The most power that may be drawn, W.
    pub power_limit_watts: Option<f64>,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// The driver's own version, such as `580.159`.
    pub driver: Option<String>,
}

impl Telemetry {
    /// Asks NVML about the device, or else the program `nvidia-smi`; `None` if neither answers. Takes some
    /// milliseconds with NVML; a program that does not answer is given up after some seconds.
    #[must_use]
    pub fn read(device: &Properties) -> Option<Self> {
        nvml::read(&device.pci_bus).or_else(|| smi::read(&device.pci_bus))
    }
}

impl std::fmt::Display for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |value: Option<u32>, unit: &str| value.map(|value| format!("{value} {unit}"));
        let power = self.power_watts.map(|watts| match self.power_limit_watts {
            Some(limit) => format!("{watts:.0} of {limit:.0} W"),
            None => format!("{watts:.0} W"),
        });
        let parts = [
            number(self.sm_clock_mhz, "MHz"),
            number(self.memory_clock_mhz, "MHz (memory)"),
            power,
            number(self.temperature_celsius, "°C"),
            self.driver.as_ref().map(|driver| format!("driver {driver}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_shown() {
        let telemetry = Telemetry {
            sm_clock_mhz: Some(1980),
            power_watts: Some(412.6),
            power_limit_watts: Some(700.0),
            temperature_celsius: Some(41),
            ..Telemetry::default()
        };
        assert_eq!(telemetry.to_string(), "1980 MHz, 413 of 700 W, 41 °C");
    }

    #[test]
    fn a_device_that_nobody_knows_has_no_telemetry() {
        let device = Properties { pci_bus: "ffff:ff:1f.7".into(), ..Properties::default() };
        assert_eq!(Telemetry::read(&device), None);
    }
}
