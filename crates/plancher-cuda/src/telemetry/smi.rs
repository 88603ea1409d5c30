//! Telemetry from the program `nvidia-smi`, where NVML cannot be loaded.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Telemetry;

const QUERY: &str = "clocks.sm,clocks.mem,power.draw,enforced.power.limit,temperature.gpu,driver_version";
/// A program that has not answered by then is ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `nvidia-smi` says of the device on this PCI bus.
pub(super) fn read(pci_bus: &str) -> Option<Telemetry> {
    let mut program = Command::new("nvidia-smi")
        .args([format!("--query-gpu={QUERY}"), "--format=csv,noheader,nounits".into(), format!("--id={pci_bus}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = program.try_wait().ok()? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = program.kill();
            let _ = program.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    // The answer is one line, far less than a pipe holds, so that waiting first cannot block the program.
    program.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    status.success().then(|| parse(&text)).flatten()
}

/// Reads the program's line; a value that it does not have reads `[N/A]`.
fn parse(text: &str) -> Option<Telemetry> {
    let fields: Vec<&str> = text.lines().next()?.split(',').map(str::trim).collect();
    let [sm_clock, memory_clock, power, power_limit, temperature, driver] = fields[..] else { return None };
    Some(Telemetry {
        sm_clock_mhz: sm_clock.parse().ok(),
        memory_clock_mhz: memory_clock.parse().ok(),
        power_watts: power.parse().ok(),
        power_limit_watts: power_limit.parse().ok(),
        temperature_celsius: temperature.parse().ok(),
        driver: Some(driver.to_owned()).filter(|driver| driver.starts_with(|first: char| first.is_ascii_digit())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_what_is_missing_is_missing() {
        let telemetry = parse("1980, 3201, 121.43, [N/A], 33, 580.159.03\n").expect("six fields");
        assert_eq!(telemetry.sm_clock_mhz, Some(1980));
        assert_eq!(telemetry.memory_clock_mhz, Some(3201));
        assert_eq!(telemetry.power_watts, Some(121.43));
        assert_eq!(telemetry.power_limit_watts, None);
        assert_eq!(telemetry.temperature_celsius, Some(33));
        assert_eq!(telemetry.driver.as_deref(), Some("580.159.03"));
        assert_eq!(parse("No devices were found"), None);
        assert_eq!(parse(""), None);
    }
}
