//! GPUs: which of NVIDIA's libraries are there and where the others were looked for, what the devices are, and what
//! they do at best.

use std::fmt::Write as _;

use plancher_cuda::ceilings::{Ceilings, Effort};
use plancher_cuda::libraries::{Environment, Kind, Library};
use plancher_cuda::{Compiler, CudaVersion, Device, Memory, Properties, Telemetry, driver};
use serde::Serialize;

use crate::output::bytes;
use crate::progress::Progress;
use crate::table;

/// NVIDIA's libraries and devices.
#[derive(Serialize)]
pub(super) struct Gpu {
    driver: Part,
    nvrtc: Part,
    cublaslt: Part,
    devices: Vec<Found>,
}

/// A library that was looked for.
#[derive(Serialize)]
struct Part {
    #[serde(flatten)]
    library: Library,
    /// Its version, if it could be loaded.
    version: Option<String>,
    /// Why it cannot be used.
    problem: Option<String>,
}

/// A device.
#[derive(Serialize)]
struct Found {
    properties: Properties,
    memory: Option<Memory>,
    /// Before anything was measured.
    telemetry: Option<Telemetry>,
    ceilings: Option<Ceilings>,
    /// Right after the measurements.
    telemetry_after: Option<Telemetry>,
    /// Why something is missing.
    problem: Option<String>,
}

impl Gpu {
    /// Looks for libraries and devices, and measures the devices if asked to.
    pub(super) fn look(measure: bool) -> Self {
        let environment = Environment::of_process();
        let driver = driver();
        let compiler = Compiler::find();
        let version = |version: CudaVersion| version.to_string();
        let part = |kind, version: Option<String>, problem: Option<String>| Part {
            library: environment.find(kind),
            version,
            problem,
        };
        let problem = |error: &plancher_cuda::CudaError| error.to_string();
        let mut devices = Vec::new();
        if driver.is_ok() {
            for ordinal in 0..Device::count().unwrap_or(0) {
                devices.push(Found::look(ordinal, compiler.as_ref().ok().filter(|_| measure)));
            }
        }
        Self {
            driver: part(
                Kind::Driver,
                driver.as_ref().ok().map(|driver| version(driver.cuda)),
                driver.as_ref().err().map(problem),
            ),
            nvrtc: part(
                Kind::Nvrtc,
                compiler.as_ref().ok().map(|compiler| version(compiler.version())),
                compiler.as_ref().err().map(problem),
            ),
            cublaslt: part(Kind::CublasLt, None, None),
            devices,
        }
    }

    /// The lines for people.
    pub(super) fn describe(&self, field: &mut impl FnMut(&'static str, String)) {
        field("GPU driver", self.driver.describe("supports CUDA "));
        field("NVRTC", self.nvrtc.describe(""));
        field("cuBLASLt", self.cublaslt.describe(""));
        if self.driver.problem.is_none() && self.devices.is_empty() {
            field("GPU", "none".to_owned());
        }
        for device in &self.devices {
            field("GPU", device.describe());
            if let Some(telemetry) = &device.telemetry {
                field("", telemetry.to_string());
            }
            if let Some(problem) = &device.problem {
                field("", format!("not measured: {problem}"));
            }
        }
    }

    /// The measured ceilings.
    pub(super) fn tables(&self) -> String {
        let mut out = String::new();
        for device in &self.devices {
            if let Some(ceilings) = &device.ceilings {
                let _ = writeln!(out, "\nMeasured on GPU {} ({}):", device.properties.ordinal, device.properties.name);
                out.push_str(&ceilings_table(ceilings));
                if let Some(telemetry) = &device.telemetry_after {
                    let _ = writeln!(out, "After that: {telemetry}");
                }
            }
        }
        out
    }
}

impl Part {
    /// One line: where it is, or where it was looked for and what to install.
    fn describe(&self, version_is: &str) -> String {
        let version = self.version.as_ref().map(|version| format!("{version_is}{version}"));
        match (&self.library.found, version, &self.problem) {
            (Some(path), Some(version), _) => format!("{} ({version})", path.display()),
            (None, Some(version), _) => version,
            (_, None, Some(problem)) => problem.clone(),
            (Some(path), None, None) => path.display().to_string(),
            (None, None, None) => {
                format!("not found (looked in {}); {}", self.library.directories(), self.library.kind.advice())
            }
        }
    }
}

impl Found {
    fn look(ordinal: usize, compiler: Option<&Compiler>) -> Self {
        let mut found = Self {
            properties: Properties { ordinal, ..Properties::default() },
            memory: None,
            telemetry: None,
            ceilings: None,
            telemetry_after: None,
            problem: None,
        };
        if let Err(error) = found.measure(ordinal, compiler) {
            found.problem = Some(error.to_string());
        }
        found
    }

    fn measure(&mut self, ordinal: usize, compiler: Option<&Compiler>) -> plancher_cuda::Result<()> {
        let device = Device::open(ordinal)?;
        self.properties = device.properties().clone();
        self.memory = Some(device.memory()?);
        self.telemetry = Telemetry::read(device.properties());
        if let Some(compiler) = compiler {
            let progress = Progress::count("measuring the GPU");
            self.ceilings = Some(Ceilings::measure(&device, compiler, Effort::FULL)?);
            drop(progress);
            self.telemetry_after = Telemetry::read(device.properties());
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let properties = &self.properties;
        let free = self.memory.map_or_else(String::new, |memory| format!(" ({} free)", bytes(memory.free)));
        format!(
            "{}: {}, {}, {} multiprocessors, {}{free}, L2 {}",
            properties.ordinal,
            properties.name,
            properties.architecture(),
            properties.multiprocessors,
            bytes(properties.memory),
            bytes(properties.l2)
        )
    }
}

/// Rates by working set, then the costs.
fn ceilings_table(ceilings: &Ceilings) -> String {
    let rates = ceilings.rates.iter().map(|rate| {
        let bus = ceilings.device.bus_gb_per_s().filter(|_| !rate.traffic.is_of_l2());
        let share = bus.map_or_else(String::new, |bus| format!("{:.1}", 100.0 * rate.gb_per_s / bus));
        vec![rate.traffic.to_string(), bytes(rate.working_set), format!("{:.0}", rate.gb_per_s), share]
    });
    let rates = table::markdown(&["traffic", "working set", "GB/s", "% of bus"], 1, &rates.collect::<Vec<_>>());
    let costs = ceilings.costs.iter().map(|cost| vec![cost.step.to_string(), format!("{:.2}", cost.microseconds)]);
    let costs = table::markdown(&["step", "us"], 1, &costs.collect::<Vec<_>>());
    let products = ceilings.products.iter().map(|product| {
        let shape = format!("{} {}^3, {}", product.number, product.size, product.library);
        vec![shape, format!("{:.0}", product.tflop_per_s)]
    });
    let products: Vec<_> = products.collect();
    let products = if products.is_empty() {
        "Matrix products were not measured: there is no cuBLASLt.\n".to_owned()
    } else {
        table::markdown(&["matrix product", "TFLOP/s"], 1, &products)
    };
    format!("{rates}\n{costs}\n{products}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn part(found: Option<&str>, version: Option<&str>, problem: Option<&str>) -> Part {
        Part {
            library: Library {
                kind: Kind::CublasLt,
                found: found.map(PathBuf::from),
                looked_in: vec!["/one".into(), "/two".into()],
            },
            version: version.map(str::to_owned),
            problem: problem.map(str::to_owned),
        }
    }

    #[test]
    fn a_library_is_described_by_what_is_known_of_it() {
        assert_eq!(part(Some("/a.so"), Some("13.0"), None).describe("CUDA "), "/a.so (CUDA 13.0)");
        assert_eq!(part(None, Some("13.0"), None).describe("supports CUDA "), "supports CUDA 13.0");
        assert_eq!(part(Some("/a.so"), None, Some("too old")).describe(""), "too old");
        assert_eq!(part(Some("/a.so"), None, None).describe(""), "/a.so");
        let missing = part(None, None, None).describe("");
        assert!(missing.starts_with("not found (looked in /one, /two); run `pip install"), "{missing}");
    }
}
