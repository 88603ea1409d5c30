//! A profile without a profiler: bytes and operations that must be moved and done, over the time that was measured and what
//! the data sheet promises. It knows the memory and the arithmetic, not the caches, and not what warps wait for.

use std::collections::BTreeMap;

use super::unit;
use crate::Dtype;
use crate::record::{Machine, PointRun, ProfileRun, VersionRun};
use crate::verdict::Estimate;

/// The profile of `version` at `point`; `None` where it was not timed.
#[must_use]
pub fn counted(machine: &Machine, version: &VersionRun, point: &PointRun) -> Option<ProfileRun> {
    let seconds = Estimate::of(&point.milliseconds)?.value / 1e3;
    let percent = |rate: f64, most: Option<f64>| most.filter(|&most| most > 0.0).map(|most| 100.0 * rate / most);
    let peak = match version.dtype {
        Dtype::F32 => machine.datasheet_tflops.fp32,
        Dtype::Bf16 => machine.datasheet_tflops.bf16,
    };
    let arithmetic = percent(point.flops as f64 / seconds / 1e12, peak);
    let units = [
        (unit::MEMORY, percent(point.bytes as f64 / seconds / 1e9, machine.datasheet_bandwidth_gb_per_s)),
        (unit::COMPUTE, arithmetic),
        (unit::TENSOR, arithmetic.filter(|_| version.dtype == Dtype::Bf16)),
    ];
    let sol: BTreeMap<String, f64> =
        units.into_iter().filter_map(|(name, percent)| Some((name.to_owned(), percent?))).collect();
    let resources = version.resources.as_ref().filter(|resources| resources.blocks_per_multiprocessor > 0);
    Some(ProfileRun {
        version: version.version.clone(),
        dtype: version.dtype,
        shape: Some(point.shape),
        duration_us: 1e6 * seconds,
        dram_bytes_read: None,
        dram_bytes_written: None,
        sol,
        stalls: BTreeMap::new(),
        bank_conflicts: None,
        sectors_per_request: None,
        occupancy_percent: None,
        occupancy_limiter: resources.map(|resources| resources.limiter),
        source: "counted".to_owned(),
    })
}
