//! A profile without a profiler: bytes and operations that must be moved and done, over the time that was measured and what
//! the data sheet promises. It knows the memory and the arithmetic, not the caches, and not what warps wait for.

use std::collections::BTreeMap;

use super::unit;
use plancher_cuda::Architecture;

use crate::record::{Machine, PointRun, ProfileRun, Resources, VersionRun};
use crate::step::OccupancyLimiter;
use crate::verdict::Estimate;
use crate::{Dtype, MOST_THREADS, Target};

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
        shared_passes: None,
        sectors_per_request: None,
        occupancy_percent: None,
        occupancy_limiter: resources.map(|resources| resources.limiter),
        also_limits: resources.map(|resources| also_limits(machine, resources)).unwrap_or_default(),
        source: "counted".to_owned(),
    })
}

/// What else lets a multiprocessor hold as few blocks as the limiter does.
fn also_limits(machine: &Machine, resources: &Resources) -> Vec<OccupancyLimiter> {
    let Ok(architecture) = machine.architecture.parse::<Architecture>() else { return Vec::new() };
    // Nothing a file says is more than a kernel can have.
    let (registers, shared) = (resources.registers.min(1 << 16), resources.shared_bytes.min(1 << 24));
    let limits = Target::without_device(architecture).limits(registers, shared, resources.threads.min(MOST_THREADS));
    let is_tie = |&(blocks, limiter): &(u32, OccupancyLimiter)| {
        blocks == resources.blocks_per_multiprocessor && limiter != resources.limiter
    };
    limits.into_iter().filter(is_tie).map(|(_, limiter)| limiter).collect()
}
