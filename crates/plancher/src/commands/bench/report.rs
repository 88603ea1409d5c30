//! A benchmark's rows, and how they are printed.

use plancher_cpu::Machine;
use plancher_engine::{BenchCase, BenchSamples, DecodeReport};
use plancher_model::Model;
use serde::Serialize;

use super::Format;
use crate::commands::inspect::parameters_and_bytes;
use crate::{output, table};

/// One result. Keys are llama-bench's where it has them.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    build_version: &'static str,
    cpu_info: String,
    backends: &'static str,
    model_filename: String,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    test: String,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// Bytes that a decode step must read; null for tests with a prompt.
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
    logits_hash: String,
    reproducible: bool,
}

impl Row {
    pub(super) fn new(
        model: &Model,
        case: BenchCase,
        workers: usize,
        samples: &BenchSamples,
        decode: Option<DecodeReport>,
    ) -> Self {
        let (avg_ts, stddev_ts) = samples.tokens_per_s(case);
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        let n = samples.seconds.len() as f64;
        let mean = samples.seconds.iter().sum::<f64>() / n;
        let squares = samples.seconds.iter().map(|seconds| (seconds - mean).powi(2)).sum::<f64>();
        let deviation = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let (model_n_params, model_size) = parameters_and_bytes(model);
        let path = &model.path;
        let samples_ts: Vec<f64> = samples.seconds.iter().map(|seconds| case.tokens() as f64 / seconds).collect();
        let roofline_pct = decode.map(|report| {
            let rates = samples_ts.iter().map(|rate| rate * report.bytes_per_token as f64 / 1e9);
            100.0 * rates.zip(&samples.ceilings).map(|(rate, ceiling)| rate / ceiling).sum::<f64>() / n
        });
        Self {
            build_version: env!("CARGO_PKG_VERSION"),
            cpu_info: Machine::detect().cpu.unwrap_or_default(),
            backends: "CPU",
            model_filename: path.display().to_string(),
            model_type: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            model_size,
            model_n_params,
            n_threads: workers,
            n_prompt: case.n_prompt,
            n_gen: case.n_gen,
            n_depth: case.n_depth,
            test: case.to_string(),
            avg_ns: nanoseconds(mean),
            stddev_ns: nanoseconds(deviation),
            avg_ts,
            stddev_ts,
            samples_ns: samples.seconds.iter().map(|&seconds| nanoseconds(seconds)).collect(),
            samples_ts,
            bytes_per_token: decode.map(|report| report.bytes_per_token),
            gb_per_s: decode.map(|report| report.gb_per_s),
            ceiling_gb_per_s: samples.ceiling(),
            ceiling_samples: samples.ceilings.clone(),
            floor_ms: decode.map(|report| report.floor_ms),
            measured_ms: decode.map(|report| report.measured_ms),
            roofline_pct,
            logits_hash: format!("{:016x}", samples.logits_hash),
            reproducible: samples.reproducible,
        }
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
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let cells = rows.iter().map(|row| {
        vec![
            row.model_type.clone(),
            output::bytes(row.model_size),
            format!("{:.2} M", row.model_n_params as f64 / 1e6),
            row.backends.to_owned(),
            row.n_threads.to_string(),
            row.test.clone(),
            format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
            optional(row.gb_per_s),
            optional(row.roofline_pct),
            row.logits_hash.clone(),
        ]
    });
    let header = ["model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "% of ceiling", "logits"];
    let table = table::markdown(&header, 1, &cells.collect::<Vec<_>>());
    let ceilings = rows.iter().map(|row| format!("{:.1} GB/s with {} threads", row.ceiling_gb_per_s, row.n_threads));
    let mut ceilings: Vec<String> = ceilings.collect();
    ceilings.dedup();
    let ceilings = ceilings.join(", ");
    if rows.is_empty() {
        String::new()
    } else {
        format!("{table}\nceiling: reading the packed weights and nothing else, {ceilings}\n")
    }
}

fn csv(rows: &[Row]) -> anyhow::Result<String> {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let serde_json::Value::Object(fields) = serde_json::to_value(row)? else { continue };
        // Lists of samples have no place in a cell.
        let fields = fields.into_iter().filter(|(_, value)| !value.is_array());
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
