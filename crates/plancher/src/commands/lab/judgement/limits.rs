//! What limits a kernel, as far as it was counted, and what a profiler saw where one was asked.

use plancher_lab::profile::counted;
use plancher_lab::record::{Machine, PointRun, ProfileRun, Resources, VersionRun};
use plancher_lab::verdict::{counts, rightness};
use plancher_lab::{Dtype, plural};

use crate::output::significant;

/// All that is known, a line each.
pub(super) fn limits(version: &VersionRun, machine: &Machine, profile: Option<&ProfileRun>) -> Vec<String> {
    let mut lines = Vec::new();
    let point = version.points.iter().find(|point| !point.sweep);
    let valid = point.filter(|point| rightness(version).is_right() && counts(machine, version.dtype, point).is_ok());
    lines.extend(valid.map(|point| work(version, point, machine)));
    lines.extend(
        valid
            .and_then(|point| point.in_flight_bytes)
            .map(|bytes| format!("{} KiB in flight on each multiprocessor.", bytes / 1024)),
    );
    lines.extend(profile.map(profiled));
    lines.extend(version.resources.as_ref().map(resources));
    lines
}

/// What must move and be done, and how busy that makes memory and arithmetic.
fn work(version: &VersionRun, point: &PointRun, machine: &Machine) -> String {
    let scaled = |value: f64, unit: &str| {
        let (scale, prefix) = if value >= 1e12 { (1e12, "T") } else { (1e9, "G") };
        format!("{} {prefix}{unit}", significant(value / scale, 3))
    };
    let numbers = if version.dtype == Dtype::Bf16 { "bf16" } else { "f32" };
    let mut words = format!("it must move {}", scaled(point.bytes as f64, "B"));
    if point.flops > 0 {
        words.push_str(" and do ");
        words.push_str(&scaled(point.flops as f64, "FLOP"));
    }
    let units = counted(machine, version, point).map(|profile| profile.sol).unwrap_or_default();
    let busy: Vec<String> = units.iter().map(|(unit, percent)| format!("{unit} {percent:.0} %")).collect();
    if !busy.is_empty() {
        words.push_str(": of the data sheet's ");
        words.push_str(numbers);
        words.push_str(" rates, ");
        words.push_str(&busy.join(", "));
    }
    words + "."
}

/// What a profiler saw.
fn profiled(profile: &ProfileRun) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut units: Vec<(&String, &f64)> = profile.sol.iter().collect();
    units.sort_by(|a, b| b.1.total_cmp(a.1));
    parts.extend(units.iter().map(|(unit, percent)| format!("{unit} {percent:.0} %")));
    let mut reasons: Vec<(&String, &f64)> = profile.stalls.iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(a.1));
    let reasons: Vec<String> =
        reasons.iter().take(2).map(|(reason, share)| format!("{reason} {:.0} %", 100.0 * *share)).collect();
    if !reasons.is_empty() {
        parts.push(format!("warps wait for {}", reasons.join(" and ")));
    }
    if let Some((read, written)) = profile.dram_bytes_read.zip(profile.dram_bytes_written) {
        parts.push(format!(
            "{} GB read from memory and {} written",
            significant(read / 1e9, 3),
            significant(written / 1e9, 3)
        ));
    }
    parts.extend(profile.sectors_per_request.map(|sectors| format!("{sectors:.1} sectors a request")));
    parts.extend(profile.bank_conflicts.map(|conflicts| format!("{conflicts:.2} bank conflicts a request")));
    parts.extend(profile.occupancy_percent.map(|percent| format!("{percent:.0} % of the warps that fit are there")));
    format!("by {}: {}.", profile.source, parts.join("; "))
}

fn resources(resources: &Resources) -> String {
    let spills = if resources.spill_bytes == 0 {
        "no spills".to_owned()
    } else {
        format!("{} a thread SPILLED", plural(resources.spill_bytes, "byte"))
    };
    format!(
        "{}, {spills}, {} of shared memory a block; {} of {} on a multiprocessor, more kept away by {}.",
        plural(resources.registers, "register"),
        plural(resources.shared_bytes, "byte"),
        plural(resources.blocks_per_multiprocessor, "block"),
        plural(resources.threads, "thread"),
        resources.limiter
    )
}
