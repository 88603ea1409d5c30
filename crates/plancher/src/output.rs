//! Writing results and statistics. Unlike `println!`, a closed pipe is an error that the caller passes on, not a
//! panic.

use std::io::{self, Write};

use serde::Serialize;

use crate::printable::{printable, printable_json};

/// Writes `text` to standard output and shows it at once.
pub(crate) fn text(text: &str) -> io::Result<()> {
    write(&[text])
}

fn write(parts: &[&str]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = parts.iter().try_for_each(|part| stdout.write_all(part.as_bytes())).and_then(|()| stdout.flush());
    // The kind stays: a closed pipe is not a failure.
    written.map_err(|error| io::Error::new(error.kind(), format!("standard output: {error}")))
}

/// Writes text that may have come from elsewhere to standard output, with what a terminal would act on written out.
pub(crate) fn shown(text: &str) -> io::Result<()> {
    write(&[&printable(text)])
}

/// Writes a line to standard output.
pub(crate) fn line(line: &str) -> io::Result<()> {
    write(&[line, "\n"])
}

/// Writes `value` to standard output as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(&printable_json(&serde_json::to_string_pretty(value)?))?)
}

/// Writes a line of statistics to standard error, unless `--quiet`.
pub(crate) fn note(line: &str) {
    if !crate::logging::is_quiet() {
        // Statistics that nobody can read are no reason to fail.
        let _ = writeln!(io::stderr(), "{}", printable(line));
    }
}

/// `98.4 MB`, `1.27 GB`: three significant digits, powers of 1000.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// `value` with `digits` significant digits, never in exponent form.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let decimals = (digits - 1 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.decimals$}")
}

/// `1,234,567`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let cases = [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (98_362_432, "98.4 MB"), (999_900_000, "1.00 GB")];
        for (value, want) in cases {
            assert_eq!(bytes(value), want);
        }
        assert_eq!(bytes(491_400_064), "491 MB");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1000, 1_234_567].map(grouped).each_ref().map(String::as_str)
        );
    }
}
