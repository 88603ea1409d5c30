//! A benchmark's rows, and how they are printed.

use plancher_cpu::Machine;
use plancher_engine::{Backend, BenchCase, BenchSamples, DecodeReport, Executor, Telemetry};
use plancher_model::Model;
use serde::Serialize;

use super::Format;
use crate::commands::inspect::parameters_and_bytes;
use crate::{output, table};

/// What a test ran on.
pub(super) struct Device {
    backend: &'static str,
    name: Option<String>,
    /// What every matrix is held as, where it was converted.
    weights: Option<String>,
    before: Option<Telemetry>,
    after: Option<Telemetry>,
}

impl Device {
    /// The device of `backend`, with its state before and after the test.
    pub(super) fn of(backend: &dyn Backend, before: Option<Telemetry>, after: Option<Telemetry>) -> Self {
        let weights = backend.storage().weights.map(|format| format.to_string());
        Self { backend: backend.name(), name: backend.device().map(str::to_owned), weights, before, after }
    }
}

/// One result. Keys are llama-bench's where it has them.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    build_version: &'static str,
    cpu_info: String,
    gpu_info: Option<String>,
    backends: &'static str,
    /// What ran the decode steps, where there is a choice.
    executor: Option<&'static str>,
    model_filename: String,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    /// What the matrices are held as; null: as in the file.
    weights_as: Option<String>,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    /// Sequences decoded together.
    n_batch: usize,
    test: String,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// Milliseconds of a decode step by the device's clock, each repetition's; empty where there is none.
    device_ms_per_token: Vec<f64>,
    /// Bytes that a decode step must read for each sequence; null for tests with a prompt.
    bytes_per_token: Option<u64>,
    gb_per_s: Option<f64>,
    /// Median of the samples.
    ceiling_gb_per_s: f64,
    /// Measured right before and after each repetition.
    ceiling_samples: Vec<f64>,
    floor_ms: Option<f64>,
    measured_ms: Option<f64>,
    /// Percentage of the ceiling reached: the mean over repetitions, each with its own ceiling.
    roofline_pct: Option<f64>,
    /// Of the first sequence.
    logits_hash: String,
    /// Of each sequence of a batch.
    batch_hashes: Vec<String>,
    reproducible: bool,
    /// The executor that was measured in turns with this one, before it.
    ratio_to: Option<&'static str>,
    /// Median of `ratio_samples`.
    ratio: Option<f64>,
    /// Time of each repetition over that of its pair by the other executor.
    ratio_samples: Vec<f64>,
    gpu_before: Option<Telemetry>,
    gpu_after: Option<Telemetry>,
}

impl Row {
    pub(super) fn new(
        model: &Model,
        case: BenchCase,
        workers: usize,
        samples: &BenchSamples,
        decode: Option<DecodeReport>,
        device: Device,
        executor: Option<Executor>,
    ) -> Self {
        let (avg_ts, stddev_ts) = samples.tokens_per_s(case);
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        let n = samples.seconds.len() as f64;
        let mean = samples.seconds.iter().sum::<f64>() / n;
        let squares = samples.seconds.iter().map(|seconds| (seconds - mean).powi(2)).sum::<f64>();
        let deviation = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let (model_n_params, model_size) = parameters_and_bytes(model);
        let hashes: Vec<String> = samples.logits_hashes.iter().map(|hash| format!("{hash:016x}")).collect();
        let path = &model.path;
        let samples_ts: Vec<f64> = samples.seconds.iter().map(|seconds| case.tokens() as f64 / seconds).collect();
        let ms = |seconds: &[f64]| -> Vec<f64> {
            seconds.iter().map(|seconds| 1e3 * seconds / case.n_gen.max(1) as f64).collect()
        };
        let (device_ms, wall_ms) = (ms(&samples.device_seconds), ms(&samples.seconds));
        let roofline_pct = decode.map(|report| {
            let timed = if device_ms.is_empty() { &wall_ms } else { &device_ms };
            let bytes = report.gb_per_s * report.measured_ms;
            let fractions = timed.iter().zip(&samples.ceilings).map(|(ms, ceiling)| bytes / ms / ceiling);
            100.0 * fractions.sum::<f64>() / n
        });
        Self {
            build_version: env!("CARGO_PKG_VERSION"),
            cpu_info: Machine::detect().cpu.unwrap_or_default(),
            gpu_info: device.name,
            backends: device.backend,
            executor: executor.map(Executor::name),
            model_filename: path.display().to_string(),
            model_type: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            model_size,
            model_n_params,
            weights_as: device.weights,
            n_threads: workers,
            n_prompt: case.n_prompt,
            n_gen: case.n_gen,
            n_depth: case.n_depth,
            n_batch: case.batch,
            test: case.to_string(),
            avg_ns: nanoseconds(mean),
            stddev_ns: nanoseconds(deviation),
            avg_ts,
            stddev_ts,
            samples_ns: samples.seconds.iter().map(|&seconds| nanoseconds(seconds)).collect(),
            samples_ts,
            device_ms_per_token: device_ms,
            bytes_per_token: decode.map(|report| report.bytes_per_token),
            gb_per_s: decode.map(|report| report.gb_per_s),
            ceiling_gb_per_s: samples.ceiling(),
            ceiling_samples: samples.ceilings.clone(),
            floor_ms: decode.map(|report| report.floor_ms),
            measured_ms: decode.map(|report| report.measured_ms),
            roofline_pct,
            logits_hash: hashes.first().cloned().unwrap_or_default(),
            batch_hashes: hashes,
            reproducible: samples.reproducible,
            ratio_to: None,
            ratio: None,
            ratio_samples: Vec::new(),
            gpu_before: device.before,
            gpu_after: device.after,
        }
    }

    /// Adds how its times compare with those of `base`, pair by pair.
    pub(super) fn compare(&mut self, base: Executor, ratios: Vec<f64>) {
        let mut sorted = ratios.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        self.ratio = match sorted.len() {
            0 => None,
            even if even % 2 == 0 => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
            _ => Some(sorted[middle]),
        };
        self.ratio_to = Some(base.name());
        self.ratio_samples = ratios;
    }

    /// The comparison in a line.
    fn comparison(&self) -> Option<String> {
        let (Some(executor), Some(base), Some(ratio)) = (self.executor, self.ratio_to, self.ratio) else { return None };
        let (least, most) = (self.ratio_samples.iter()).fold((ratio, ratio), |(a, b), x| (x.min(a), x.max(b)));
        Some(format!(
            "{}: {executor} takes {ratio:.3} times as long as {base} (median of {} pairs, {least:.3} to {most:.3})\n",
            self.test,
            self.ratio_samples.len(),
        ))
    }
}

/// Prints all rows; those of `jsonl` were printed as they came.
pub(super) fn print(rows: &[Row], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Md => Ok(output::text(&markdown(rows))?),
        Format::Csv => Ok(output::text(&csv(rows)?)?),
        Format::Json => output::json(&rows),
        Format::Jsonl => Ok(()),
    }
}

fn markdown(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let on_gpu = rows.iter().any(|row| row.gpu_info.is_some());
    let step = |row: &Row| row.measured_ms.map_or_else(String::new, |ms| format!("{ms:.4}"));
    let cells = rows.iter().map(|row| {
        vec![
            row.model_type.clone(),
            output::bytes(row.model_size),
            format!("{:.2} M", row.model_n_params as f64 / 1e6),
            row.executor.map_or_else(|| row.backends.to_owned(), |executor| format!("{} {executor}", row.backends)),
            if on_gpu { step(row) } else { row.n_threads.to_string() },
            row.test.clone(),
            format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
            optional(row.gb_per_s),
            optional(row.roofline_pct),
            row.logits_hash.clone(),
        ]
    });
    let fifth = if on_gpu { "ms a step" } else { "threads" };
    let header = ["model", "size", "params", "backend", fifth, "test", "t/s", "GB/s", "% of ceiling", "logits"];
    let table = table::markdown(&header, 1, &cells.collect::<Vec<_>>());
    let ceilings = rows.iter().map(|row| match &row.gpu_info {
        None => format!("{:.1} GB/s with {} threads", row.ceiling_gb_per_s, row.n_threads),
        Some(gpu) => format!("{:.1} GB/s on {gpu}", row.ceiling_gb_per_s),
    });
    let mut ceilings: Vec<String> = ceilings.collect();
    ceilings.dedup();
    let what = if on_gpu { "memory" } else { "the packed weights" };
    let comparisons: String = rows.iter().filter_map(Row::comparison).collect();
    format!("{table}\n{comparisons}ceiling: reading {what} and nothing else, {}\n", ceilings.join(", "))
}

fn csv(rows: &[Row]) -> anyhow::Result<String> {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let serde_json::Value::Object(fields) = serde_json::to_value(row)? else { continue };
        // Lists of samples and a device's states have no place in a cell.
        let is_cell = |(name, value): &(String, serde_json::Value)| !value.is_array() && !name.starts_with("gpu_");
        let fields = fields.into_iter().filter(is_cell);
        let (names, values): (Vec<String>, Vec<serde_json::Value>) = fields.unzip();
        if index == 0 {
            out.push_str(&names.join(","));
            out.push('\n');
        }
        out.push_str(&values.iter().map(cell).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    Ok(out)
}

/// A CSV cell: text is quoted.
fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    }
}
