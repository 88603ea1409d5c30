//! A figure: what a record's raw samples amount to, once the record has been held to the rules.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use plancher_lab::verdict::{median, median_interval};

use super::record::{Bar, Record, SCHEMA};
use crate::code_hash;

/// The unit of what is counted, from 0.
const ERRORS: &str = "errors";

/// Samples below this count prove nothing.
const MINIMUM_SAMPLES: usize = 5;

/// How far a rate may lie above the ceiling measured beside it before it is disbelieved: ceilings are noisy too.
const CEILING_TOLERANCE: f64 = 1.15;

/// A recomputed figure.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    /// The median; of errors their number.
    pub(crate) value: f64,
    /// Of the median, at least 95 % where the number of samples allows.
    pub(crate) interval: (f64, f64),
    pub(crate) samples: usize,
    pub(crate) baseline: Option<String>,
    pub(crate) bar: Option<Bar>,
    /// The code has changed since it was measured.
    pub(crate) stale: bool,
    pub(crate) date: String,
}

impl Figure {
    /// Holds `record` to the rules and computes its figure.
    pub(crate) fn compute(record: &Record, root: &Path) -> Result<Self> {
        check_form(record)?;
        let unit = record.sample_unit.as_deref().unwrap_or(&record.unit);
        let deducted = record.deduction.as_ref().map_or(0.0, |deduction| deduction.value);
        let samples = record.samples.iter().map(|sample| sample - deducted);
        let values: Vec<f64> = match &record.baseline_samples {
            Some(baseline) => {
                ensure!(
                    baseline.len() == record.samples.len(),
                    "`baseline_samples` has {} values for {} `samples`",
                    baseline.len(),
                    record.samples.len()
                );
                check_numbers("baseline_samples", baseline, unit)?;
                samples.zip(baseline).map(|(sample, base)| sample / base).collect()
            }
            None => samples.collect(),
        };
        check_floor(record)?;
        // Errors are counted: one in many samples is not none.
        let (value, interval) = if record.unit == ERRORS {
            let all = values.iter().sum();
            (all, (all, all))
        } else {
            (median(&values), median_interval(&values))
        };
        Ok(Self {
            name: record.name.clone(),
            title: record.title.clone(),
            unit: record.unit.clone(),
            value,
            interval,
            samples: values.len(),
            baseline: record.baseline.clone(),
            bar: record.bar,
            stale: is_stale(record, root)?,
            date: record.date.clone(),
        })
    }

    /// Whether the figure reaches its bar, where it has one.
    pub(crate) fn reached(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => self.value >= least,
            Bar::AtMost(most) => self.value <= most,
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, number(self.value), self.unit)?;
        if self.stale { f.write_str(" stale") } else { Ok(()) }
    }
}

/// Three to four significant digits, without an exponent.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn check_form(record: &Record) -> Result<()> {
    ensure!(record.schema == SCHEMA, "`schema` is {}, not {SCHEMA}", record.schema);
    ensure!(
        record.name.split('/').all(|part| !part.is_empty())
            && record.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-_.".contains(c)),
        "`name` is not lower-case parts between `/`"
    );
    ensure!(!record.commit.is_empty() && !record.date.is_empty(), "`commit` or `date` is empty");
    ensure!(!record.argv.is_null() && !record.machine.is_null(), "`argv` or `machine` is null");
    ensure!(
        record.samples.len() >= MINIMUM_SAMPLES,
        "`samples` has {} values, fewer than {MINIMUM_SAMPLES}",
        record.samples.len()
    );
    check_numbers("samples", &record.samples, record.sample_unit.as_deref().unwrap_or(&record.unit))?;
    if let Some(deduction) = &record.deduction {
        let least = record.samples.iter().copied().fold(f64::INFINITY, f64::min);
        ensure!(
            !deduction.what.is_empty() && deduction.value >= 0.0 && deduction.value < least,
            "`deduction` does not say what it is, or is not below every sample"
        );
    }
    let Some(check) = &record.check else { bail!("`check` is missing: nothing says that the output was right") };
    ensure!(!check.against.is_empty(), "`check.against` is empty");
    ensure!(check.error <= check.tolerance, "`check.error` {} is above the tolerance {}", check.error, check.tolerance);
    let has_kernels = record.kernels.as_ref().is_some_and(|kernels| !kernels.is_empty());
    ensure!(record.code.is_some() || has_kernels, "neither `code` nor `kernels` has a hash");
    Ok(())
}

/// Everything measured is positive; only a count of errors may be 0.
fn check_numbers(field: &str, values: &[f64], unit: &str) -> Result<()> {
    let least = if unit == ERRORS { 0.0 } else { f64::MIN_POSITIVE };
    ensure!(
        values.iter().all(|v| v.is_finite() && *v >= least),
        "`{field}` holds a value that is not a positive number"
    );
    Ok(())
}

/// What a machine cannot exceed.
struct Limits {
    /// GB/s.
    bandwidth: Option<f64>,
    /// TFLOP/s of 16-bit matrix products.
    peak: Option<f64>,
}

impl Limits {
    /// Of the machine that the record's name begins with: its data sheet where there is one, else what the record
    /// measured beside it.
    fn of(record: &Record) -> Self {
        let machine = record.name.split('/').next().unwrap_or_default();
        if let Ok(sheet) = plancher_floor::presets::hardware(machine) {
            return Self { bandwidth: Some(sheet.bandwidth / 1e9), peak: sheet.peaks.bf16.map(|peak| peak / 1e12) };
        }
        let best = record.ceilings.values().flatten().copied().fold(0.0, f64::max);
        Self { bandwidth: (best > 0.0).then_some(best * CEILING_TOLERANCE), peak: None }
    }
}

/// A time below bytes over bandwidth, or below FLOP over peak, is an error of measurement, never a record.
fn check_floor(record: &Record) -> Result<()> {
    let limits = Limits::of(record);
    let unit = record.sample_unit.as_deref().unwrap_or(&record.unit);
    let seconds = |sample: f64| match unit {
        "ms" => Some(sample * 1e-3),
        "us" => Some(sample * 1e-6),
        "s" => Some(sample),
        "tokens/s" => Some(1.0 / sample),
        _ => None,
    };
    if record.bytes.is_some() && limits.bandwidth.is_none() {
        bail!("`bytes` is given but neither the machine's data sheet nor `ceilings` says how fast they may move");
    }
    for &sample in &record.samples {
        let rate = |work: Option<u64>, scale: f64| Some(work? as f64 / seconds(sample)? / scale);
        let gb_per_s = if unit == "GB/s" { Some(sample) } else { rate(record.bytes, 1e9) };
        let tflop_per_s = if unit == "TFLOP/s" { Some(sample) } else { rate(record.flops, 1e12) };
        if let (Some(rate), Some(limit)) = (gb_per_s, limits.bandwidth) {
            ensure!(
                rate <= limit,
                "{sample} {unit} means {rate:.1} GB/s, above what the machine can move ({limit:.1})"
            );
        }
        if let (Some(rate), Some(limit)) = (tflop_per_s, limits.peak) {
            ensure!(
                rate <= limit,
                "{sample} {unit} means {rate:.1} TFLOP/s, above what the machine can do ({limit:.1})"
            );
        }
    }
    Ok(())
}

/// Whether the crates or the kernels that were timed have changed.
fn is_stale(record: &Record, root: &Path) -> Result<bool> {
    if let Some(code) = &record.code
        && code_hash::of_crates(root, &code.crates)? != code.sha256
    {
        return Ok(true);
    }
    for kernel in record.kernels.iter().flatten() {
        let path = root.join(&kernel.source);
        if !path.exists() || code_hash::of_file(&path)? != kernel.source_sha256 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(change: impl FnOnce(&mut serde_json::Value)) -> Result<Figure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut value = json!({
            "schema": 1, "name": "cpu/model/q4_1/decode_ratio", "unit": "x", "title": "decode", "argv": ["plancher"],
            "commit": "abc", "date": "2026-11-29", "machine": {"cpu": "test"}, "ceilings": {"read": [20.0, 21.0]},
            "samples": [110.0, 120.0, 130.0, 100.0, 90.0], "sample_unit": "tokens/s", "baseline": "other",
            "baseline_samples": [100.0, 100.0, 100.0, 100.0, 100.0], "bytes": 100_000_000_u64,
            "check": {"against": "reference", "error": 1e-3, "tolerance": 1e-2},
            "code": {"crates": ["plancher-floor"], "sha256": code_hash::of_crates(&root, &["plancher-floor"])?},
            "bar": {"at_least": 1.05}
        });
        change(&mut value);
        Figure::compute(&serde_json::from_value(value)?, &root)
    }

    #[test]
    fn figure_is_the_median_of_paired_ratios() {
        let figure = record(|_| {}).unwrap();
        assert!((figure.value - 1.1).abs() < 1e-12);
        assert_eq!(figure.reached(), Some(true));
        assert_eq!(figure.to_string(), "cpu/model/q4_1/decode_ratio 1.10 x");
    }

    #[test]
    fn what_is_deducted_counts_in_no_sample_and_must_be_a_part_of_each() {
        let figure = |value: f64| {
            record(|r| {
                r["deduction"] = json!({"what": "the cache", "value": value});
                (r["unit"], r["sample_unit"]) = (json!("x"), json!("bytes"));
            })
        };
        assert!((figure(10.0).unwrap().value - 1.0).abs() < 1e-12);
        assert!(figure(90.0).unwrap_err().to_string().contains("`deduction`"));
    }

    #[test]
    fn changed_code_makes_it_stale() {
        let figure = record(|r| r["code"]["sha256"] = json!("0")).unwrap();
        assert_eq!(figure.to_string(), "cpu/model/q4_1/decode_ratio 1.10 x stale");
    }

    #[test]
    fn a_changed_kernel_makes_a_gpu_figure_stale() {
        let kernels = |hash: &str| json!([{"source": "clippy.toml", "source_sha256": hash}]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let hash = code_hash::of_file(&root.join("clippy.toml")).unwrap();
        let figure = |kernels: serde_json::Value| {
            record(|r| {
                r["code"] = json!(null);
                r["kernels"] = kernels;
            })
        };
        assert!(!figure(kernels(&hash)).unwrap().stale);
        assert!(figure(kernels("0")).unwrap().stale);
        assert!(figure(json!([])).unwrap_err().to_string().contains("neither `code` nor `kernels`"));
    }

    #[test]
    fn no_time_is_below_the_data_sheets_floor() {
        let gpu = |change: fn(&mut serde_json::Value)| {
            record(|r| {
                r["name"] = json!("h200/llama-3.2-1b/bf16/b1/ctx32/graph/ms_per_token");
                r["ceilings"] = json!({"read": [9000.0]});
                r["samples"] = json!([0.6, 0.6, 0.61, 0.6, 0.62]);
                r["baseline_samples"] = json!(null);
                (r["unit"], r["sample_unit"], r["bytes"]) = (json!("ms"), json!(null), json!(2_471_600_000_u64));
                r["bar"] = json!({"at_most": 0.795});
                change(r);
            })
        };
        assert_eq!(gpu(|_| {}).unwrap().reached(), Some(true));
        // 2.47 GB at 4800 GB/s take 0.515 ms, whatever ceiling the record claims to have measured.
        let error = gpu(|r| r["samples"][0] = json!(0.5)).unwrap_err().to_string();
        assert!(error.contains("above what the machine can move (4800.0)"), "{error}");
        let error = gpu(|r| (r["flops"], r["bytes"]) = (json!(1_000_000_000_000_u64), json!(null))).unwrap_err();
        assert!(error.to_string().contains("above what the machine can do (989.4)"), "{error}");
        let error = gpu(|r| (r["unit"], r["samples"][0]) = (json!("GB/s"), json!(4900.0))).unwrap_err().to_string();
        assert!(error.contains("above what the machine can move"), "{error}");
        // Only errors are counted from 0.
        let count = |unit: &str| {
            record(|r| {
                (r["unit"], r["sample_unit"]) = (json!(unit), json!(null));
                (r["samples"], r["bar"], r["bytes"]) =
                    (json!([0.0, 0.0, 0.0, 0.0, 0.0]), json!({"at_most": 0.0}), json!(null));
                r["baseline_samples"] = json!(null);
            })
        };
        assert_eq!(count("errors").unwrap().reached(), Some(true));
        assert!(count("ms").unwrap_err().to_string().contains("not a positive number"));
        // One error in five samples is an error, though the median has none.
        let one = record(|r| {
            (r["unit"], r["sample_unit"], r["bytes"]) = (json!("errors"), json!(null), json!(null));
            (r["samples"], r["baseline_samples"]) = (json!([0.0, 0.0, 1.0, 0.0, 0.0]), json!(null));
            r["bar"] = json!({"at_most": 0.0});
        });
        assert_eq!(one.unwrap().reached(), Some(false));
    }

    #[test]
    fn every_rule_rejects_what_it_is_for() {
        type Change = fn(&mut serde_json::Value);
        let cases: [(&str, Change); 8] = [
            ("fewer than 5", |r| r["samples"] = json!([1.0, 2.0])),
            ("not a positive number", |r| r["samples"][1] = json!(-3.0)),
            ("`check` is missing", |r| r["check"] = json!(null)),
            ("above the tolerance", |r| r["check"]["error"] = json!(0.5)),
            ("neither `code` nor `kernels`", |r| r["code"] = json!(null)),
            ("above what the machine can move", |r| r["bytes"] = json!(1_000_000_000_u64)),
            ("4 values for 5", |r| r["baseline_samples"] = json!([1.0, 1.0, 1.0, 1.0])),
            ("`schema` is 2", |r| r["schema"] = json!(2)),
        ];
        for (expected, change) in cases {
            let error = record(change).unwrap_err().to_string();
            assert!(error.contains(expected), "expected `{expected}` in `{error}`");
        }
    }
}
