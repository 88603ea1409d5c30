//! From what a user calls a machine to its figures.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use plancher_cpu::Machine;
use plancher_cpu::bandwidth::{Sweep, Traffic};
use plancher_floor::{Hardware, Link, Measured, Peaks, presets};
use serde::Deserialize;

use super::arguments::{Ceiling, MachineOptions};
use super::refused;
use crate::failure::usage;
use crate::file::read_text;

/// A hardware file, JSON or TOML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    bandwidth: f64,
    #[serde(default)]
    peaks: Rates,
    memory_bytes: Option<f64>,
    link: Option<FileLink>,
    measured: Option<FileMeasured>,
    source: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    f32: Option<f64>,
    bf16: Option<f64>,
    fp8: Option<f64>,
    int8: Option<f64>,
    fp4: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    bandwidth: f64,
    latency: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMeasured {
    bandwidth: f64,
    #[serde(default)]
    peaks: Rates,
}

impl From<Rates> for Peaks {
    fn from(Rates { f32, bf16, fp8, int8, fp4 }: Rates) -> Self {
        Self { f32, bf16, fp8, int8, fp4 }
    }
}

/// The machine that the options name.
pub(super) fn open(options: &MachineOptions) -> anyhow::Result<Hardware> {
    named(&options.on, options.ceiling)
}

/// The machine of that name, at that ceiling.
pub(super) fn named(text: &str, ceiling: Ceiling) -> anyhow::Result<Hardware> {
    let hardware = if text == "this" {
        this()?
    } else if is_file(text) {
        read_file(Path::new(text))?
    } else {
        presets::hardware(text).map_err(|error| refused(format!("{error}, or `this`, or a .json or .toml file")))?
    };
    match ceiling {
        Ceiling::Datasheet => Ok(hardware),
        Ceiling::Measured => hardware.at_measured_ceiling().map_err(refused),
    }
}

/// Whether `text` names a machine rather than a model: a hardware file has a bandwidth.
pub(super) fn is_machine(text: &str) -> bool {
    let has_bandwidth = || {
        let content = read_text(Path::new(text)).unwrap_or_default();
        Path::new(text).extension().is_some_and(|extension| extension == "toml") || content.contains("\"bandwidth\"")
    };
    text == "this" || presets::hardware(text).is_ok() || (is_file(text) && has_bandwidth())
}

fn is_file(text: &str) -> bool {
    let extension = Path::new(text).extension();
    extension.is_some_and(|extension| extension == "json" || extension == "toml")
}

/// ` at line 3`, where the error knows its place.
fn line_of(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map(|before| format!(" at line {}", before.lines().count().max(1))).unwrap_or_default()
}

fn read_file(path: &Path) -> anyhow::Result<Hardware> {
    let shown = path.display();
    let text = read_text(path).map_err(refused)?;
    let file: File = if path.extension().is_some_and(|extension| extension == "toml") {
        toml::from_str(&text)
            .map_err(|error| refused(format!("`{shown}`: {}{}", error.message(), line_of(&text, &error))))?
    } else {
        serde_json::from_str(&text).map_err(|error| refused(format!("`{shown}`: {error}")))?
    };
    for (field, value) in [("name", &file.name), ("source", &file.source)] {
        if let Some(value) = value.as_ref().filter(|value| value.trim().is_empty() || value.contains(char::is_control))
        {
            return Err(usage(format!(
                "`{shown}`: `{field}`: `{}` is empty or not one line of text",
                value.escape_debug()
            )));
        }
    }
    let source = file.source.unwrap_or_else(|| format!("`{shown}`"));
    let memory_bytes = match file.memory_bytes {
        None => None,
        Some(bytes) if (1.0..=1e18).contains(&bytes) => Some(bytes as u64),
        Some(bytes) => return Err(usage(format!("`{shown}`: `memory_bytes`: `{bytes}` is not between 1 and 1e18"))),
    };
    let hardware = Hardware {
        name: file.name.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
        bandwidth: file.bandwidth,
        peaks: file.peaks.into(),
        memory_bytes,
        link: file.link.map(|link| Link { bandwidth: link.bandwidth, latency: link.latency, source: source.clone() }),
        measured: file.measured.map(|measured| Measured {
            bandwidth: measured.bandwidth,
            peaks: measured.peaks.into(),
            source: source.clone(),
        }),
        source,
    };
    hardware.check().map_err(|error| refused(format!("`{shown}`: {error}")))?;
    Ok(hardware)
}

/// This machine's CPU, its read bandwidth measured now as `doctor` measures it.
fn this() -> anyhow::Result<Hardware> {
    let machine = Machine::detect();
    let threads = machine.cores.max(1);
    let mut sweep = Sweep::standard(threads, machine.available_memory);
    let largest = sweep.working_sets.last().copied().unwrap_or(64 << 20);
    sweep.working_sets = vec![largest];
    sweep.threads = vec![threads];
    sweep.traffic = vec![Traffic::Read];
    sweep.budget = Duration::from_secs(2);
    let rates = sweep.run(&mut |_, _| {}).context("cannot measure this machine's bandwidth")?;
    let bandwidth = rates.iter().map(|rate| 1e9 * rate.gb_per_s).fold(0.0, f64::max);
    let source = format!("measured now: {threads} threads read {} MiB again and again, the best pass", largest >> 20);
    let mut hardware = Hardware::from_bandwidth("this CPU", bandwidth, source.clone()).map_err(refused)?;
    hardware.memory_bytes = machine.memory;
    hardware.measured = Some(Measured { bandwidth, peaks: Peaks::default(), source });
    Ok(hardware)
}
