//! Rates of memory traffic: `kernels/bandwidth.cu` and the driver's own copy.

mod bench;

use serde::Serialize;

pub use self::bench::{Bench, Grid};
use self::bench::{SLOTS_OF_HOPPER, constants};
use super::Effort;
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Compiler, Device, Result, Source};

/// The kernels measured here.
pub static BANDWIDTH: Family = Family {
    source: Source { name: "bandwidth", text: include_str!("../../../kernels/bandwidth.cu") },
    purpose: "ceilings: read, bulk read, write, copy, triad",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[
        Expectation::new("bandwidth_read", 80, "LDG.E.NA.128"),
        Expectation::new("bandwidth_copy", 80, "STG.E.128"),
        Expectation::new("bandwidth_read_bulk", 90, "UBLKCP"),
        Expectation::new("bandwidth_read_bulk", 90, "SYNCS"),
    ],
    specializations: || vec![("device", constants(SLOTS_OF_HOPPER))],
};

/// A kind of memory traffic. Rates count the bytes read and the bytes written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Reading by 16-byte loads.
    Read,
    /// Reading by bulk copies into shared memory (compute capability 9.0).
    BulkRead,
    /// Writing.
    Write,
    /// Copying by a kernel.
    Copy,
    /// Copying by the driver.
    DriverCopy,
    /// `a = b + s * c`.
    Triad,
    /// Reading by 16-byte loads what lies in the second-level cache.
    L2Read,
    /// Reading by bulk copies what lies in the second-level cache.
    L2BulkRead,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::BulkRead,
        Self::Write,
        Self::Copy,
        Self::DriverCopy,
        Self::Triad,
        Self::L2Read,
        Self::L2BulkRead,
    ];

    /// Whether this needs the bulk copy engine.
    const fn is_bulk(self) -> bool {
        matches!(self, Self::BulkRead | Self::L2BulkRead)
    }

    /// Whether this stays in the second-level cache.
    #[must_use]
    pub const fn is_of_l2(self) -> bool {
        matches!(self, Self::L2Read | Self::L2BulkRead)
    }
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read, 16-byte loads",
            Self::BulkRead => "read, bulk copies",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::DriverCopy => "copy, driver's",
            Self::Triad => "triad",
            Self::L2Read => "L2 read, 16-byte loads",
            Self::L2BulkRead => "L2 read, bulk copies",
        })
    }
}

/// A measured rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// Of what.
    pub traffic: Traffic,
    /// Bytes of all arrays together.
    pub working_set: u64,
    /// Median, in 1e9 bytes a second, of bytes read and written.
    pub gb_per_s: f64,
    /// The samples.
    pub samples: Vec<f64>,
}

/// Measures the given kinds of traffic, with half of the free memory, at most `effort.memory` bytes.
pub(super) fn measure(device: &Device, compiler: &Compiler, traffic: &[Traffic], effort: Effort) -> Result<Vec<Rate>> {
    let free = device.memory()?.free;
    let mut bench = Bench::new(device, compiler, (free / 2).min(effort.memory))?;
    bench.check_reading()?;
    let mut rates = Vec::new();
    for &traffic in traffic.iter().filter(|traffic| !traffic.is_bulk() || device.architecture().has_bulk_copies()) {
        for working_set in bench.working_sets(traffic) {
            rates.push(bench.rate(traffic, working_set, effort)?);
        }
    }
    Ok(rates)
}

/// The best reading rate at `working_set`, between the sizes measured.
pub(super) fn read_ceiling(rates: &[Rate], working_set: u64) -> Option<f64> {
    let mut best: Vec<(u64, f64)> = Vec::new();
    for rate in rates.iter().filter(|rate| matches!(rate.traffic, Traffic::Read | Traffic::BulkRead)) {
        match best.iter_mut().find(|(size, _)| *size == rate.working_set) {
            Some((_, gb_per_s)) => *gb_per_s = gb_per_s.max(rate.gb_per_s),
            None => best.push((rate.working_set, rate.gb_per_s)),
        }
    }
    best.sort_by_key(|(size, _)| *size);
    let after = best.iter().position(|(size, _)| *size >= working_set);
    match after {
        None => best.last().map(|(_, rate)| *rate),
        Some(0) => best.first().map(|(_, rate)| *rate),
        Some(index) => {
            let ((small, low), (large, high)) = (best[index - 1], best[index]);
            let position = (working_set as f64 / small as f64).ln() / (large as f64 / small as f64).ln();
            Some(low + (high - low) * position)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(traffic: Traffic, working_set: u64, gb_per_s: f64) -> Rate {
        Rate { traffic, working_set, gb_per_s, samples: Vec::new() }
    }

    #[test]
    fn the_ceiling_is_the_best_reader_between_sizes_and_the_end_beyond_them() {
        let rates = [
            rate(Traffic::Read, 1 << 30, 4000.0),
            rate(Traffic::BulkRead, 1 << 30, 4800.0),
            rate(Traffic::Read, 1 << 32, 4600.0),
            rate(Traffic::BulkRead, 1 << 32, 4500.0),
            rate(Traffic::L2Read, 1 << 20, 9000.0),
        ];
        let at = |working_set| read_ceiling(&rates, working_set).expect("measured");
        assert!((at(1 << 10) - 4800.0).abs() < 1e-9);
        assert!((at(1 << 30) - 4800.0).abs() < 1e-9);
        assert!((at(1 << 31) - 4700.0).abs() < 1e-9);
        assert!((at(1 << 40) - 4600.0).abs() < 1e-9);
        assert_eq!(read_ceiling(&[], 1), None);
    }
}
