//! Counts, times and sizes as users write them and as they are shown.

use std::path::Path;

use serde_json::Value;

use super::refused;
use crate::failure::usage;
use crate::file::read_text;
pub(super) use crate::output::significant;

/// A count from 1: `8`, `8k` (8192), `1m` (1048576), `15e12`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1024),
        (_, Some(digits)) => (digits, 1024 * 1024),
        _ => (lower.as_str(), 1),
    };
    let value = match digits.parse::<u64>() {
        Ok(value) => value.checked_mul(unit),
        // `15e12`: exact as long as it is a whole number below 2^53.
        Err(_) if unit == 1 && digits.contains('e') => digits
            .parse::<f64>()
            .ok()
            .filter(|value| value.fract() == 0.0 && (0.0..9.007e15).contains(value))
            .map(|value| value as u64),
        Err(_) => None,
    };
    match value {
        Some(0) => Err("must be 1 or more".to_owned()),
        Some(value) => Ok(value),
        None => Err("is not a whole number from 1 (128, 8k, 15e12)".to_owned()),
    }
}

/// No step takes longer.
const MOST_SECONDS: f64 = 1e9;

/// A time with its unit, or the time of a bench JSON file.
pub(super) fn measured_time(text: &str) -> anyhow::Result<f64> {
    if let Some(seconds) = time(text) {
        return checked_time(text, seconds);
    }
    let path = Path::new(text);
    if !path.exists() {
        return Err(usage(format!("`--measured {text}` is neither a time (760us, 4.5ms, 1.2s) nor a file")));
    }
    let content = read_text(path).map_err(refused)?;
    let json: Value = serde_json::from_str(&content).map_err(|error| refused(format!("`{text}`: {error}")))?;
    let seconds = bench_time(&json).ok_or_else(|| {
        usage(format!("`{text}`: found neither `samples` with a `unit` of time nor a test with `n_gen` and `avg_ns`"))
    })?;
    checked_time(text, seconds)
}

/// Refuses what no step takes: 0, less, and more than thirty years.
fn checked_time(text: &str, seconds: f64) -> anyhow::Result<f64> {
    if seconds > 0.0 && seconds <= MOST_SECONDS {
        return Ok(seconds);
    }
    Err(usage(format!("`--measured {text}`: `{seconds:e}` s is not a time above 0 and at most {MOST_SECONDS:e} s")))
}

/// `760us`, `4.5ms`, `1.2s`, `300ns`, in seconds; whether they can be is not asked.
fn time(text: &str) -> Option<f64> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    units.into_iter().find_map(|(unit, seconds)| {
        let value: f64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        Some(value * seconds)
    })
}

/// Seconds a decoded token: the median of an evidence record's samples, or the first generation test of a bench report.
fn bench_time(json: &Value) -> Option<f64> {
    if let (Some(unit), Some(samples)) = (json["unit"].as_str(), json["samples"].as_array()) {
        let mut samples: Vec<f64> = samples.iter().map(Value::as_f64).collect::<Option<_>>()?;
        samples.sort_by(f64::total_cmp);
        let middle = *samples.get(samples.len() / 2)?;
        return time(&format!("{middle}{unit}"));
    }
    let list = json.as_array().or_else(|| json["results"].as_array())?;
    list.iter().find_map(|test| {
        let tokens = test["n_gen"].as_f64().filter(|&tokens| tokens > 0.0)?;
        if test["n_prompt"].as_f64().unwrap_or(0.0) > 0.0 {
            return None;
        }
        Some(test["avg_ns"].as_f64()? * 1e-9 / tokens)
    })
}

/// Seconds with a fitting unit and four significant digits.
pub(super) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 2.0 * 86400.0 => (s / 86400.0, "days"),
        s if s >= 2.0 * 3600.0 => (s / 3600.0, "h"),
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (1e3 * s, "ms"),
        s => (1e6 * s, "us"),
    };
    format!("{} {unit}", significant(value, 4))
}

/// Milliseconds, four significant digits but no more than four decimals.
pub(super) fn milliseconds(seconds: f64) -> String {
    let value = 1e3 * seconds;
    let decimals = if value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else if value >= 10.0 {
        2
    } else if value >= 0.1 {
        3
    } else {
        4
    };
    format!("{value:.decimals$}")
}

/// A count with a decimal prefix and four significant digits: `15.01 GB`, `989.4 TFLOP`.
pub(super) fn scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 9] = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut value = value;
    let mut prefix = 0;
    while value >= 999.95 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    if prefix == 0 {
        return format!("{value:.0} {unit}");
    }
    format!("{} {}{unit}", significant(value, 4), PREFIXES[prefix])
}

/// `1,234,567`.
pub(super) fn grouped(value: u128) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate a second: whole numbers from 100 on.
pub(super) fn rate(value: f64) -> String {
    if value >= 100.0 { grouped(value.round() as u128) } else { significant(value, 3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_have_a_suffix_or_an_exponent() {
        let cases = [("8", 8), ("1k", 1024), ("128K", 131_072), ("1m", 1_048_576), ("15e12", 15_000_000_000_000)];
        for (text, value) in cases {
            assert_eq!(count(text), Ok(value));
        }
        for text in ["0", "-1", "", "k", "1.5", "1e30", "99999999999999999999", "1g", "nan", "0k"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        let cases = [("760us", 760e-6), ("4.5ms", 4.5e-3), ("1.2 s", 1.2), ("300ns", 300e-9), ("5µs", 5e-6)];
        for (text, seconds) in cases {
            assert!((time(text).unwrap() - seconds).abs() < 1e-15, "{text}");
        }
        for text in ["760", "us", "xms", ""] {
            assert_eq!(time(text), None);
        }
    }

    #[test]
    fn bench_reports_give_the_time_of_a_token() {
        let evidence = serde_json::json!({"unit": "ms", "samples": [0.58, 0.56, 0.57]});
        assert!((bench_time(&evidence).unwrap() - 0.57e-3).abs() < 1e-15);
        let bench = serde_json::json!([
            {"n_prompt": 512, "n_gen": 0, "avg_ns": 1e9},
            {"n_prompt": 0, "n_gen": 128, "avg_ns": 128e6},
        ]);
        assert!((bench_time(&bench).unwrap() - 1e-3).abs() < 1e-15);
        assert_eq!(bench_time(&serde_json::json!({"samples": ["x"], "unit": "ms"})), None);
        assert_eq!(bench_time(&serde_json::json!(3)), None);
    }

    #[test]
    fn quantities_have_four_digits() {
        assert_eq!(scaled(15_009_849_344.0, "B"), "15.01 GB");
        assert_eq!(scaled(999.0, "B"), "999 B");
        assert_eq!(scaled(989.4e12, "FLOP"), "989.4 TFLOP");
        assert_eq!(
            [0.5e-6, 760e-6, 4.4806e-3, 3.0, 8e4, 2e6].map(duration).join(", "),
            "0.5000 us, 760.0 us, 4.481 ms, 3.000 s, 22.22 h, 23.15 days"
        );
        assert_eq!(
            [4.4806e-3, 0.2, 12.5e-3, 5.0, 2e-8].map(milliseconds).join(", "),
            "4.481, 200.0, 12.50, 5000, 0.0000"
        );
        assert_eq!([1354.6, 33.2, 0.5].map(rate).join(", "), "1,355, 33.2, 0.500");
    }
}
