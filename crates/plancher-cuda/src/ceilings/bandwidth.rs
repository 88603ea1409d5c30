//! Rates of memory traffic: `kernels/bandwidth.cu` and the driver's own copy.

use serde::Serialize;

use super::statistics::median;
use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, Compiler, CudaError, Device, DeviceBuffer, Kernel, Launch, Module, Result, Source,
    Specialization, device_milliseconds,
};

/// The kernels measured here.
pub static BANDWIDTH: Family = Family {
    source: Source { name: "bandwidth", text: include_str!("../../kernels/bandwidth.cu") },
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

/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes of one slot of a warp's ring.
const SLOT_BYTES: u32 = 4096;
/// Slots of a warp's ring where a block may have 227 KiB of shared memory.
const SLOTS_OF_HOPPER: u32 = 6;
/// Bytes of all slots with the same number in a block's rings.
const SLOTS_OF_BLOCK: u32 = THREADS / 32 * SLOT_BYTES;
/// Samples of each rate.
const SAMPLES: usize = 5;

fn constants(slots: u32) -> Specialization {
    let constants = Specialization::new().define("THREADS", THREADS).define("UNROLL", 8);
    constants.define("SLOT_BYTES", SLOT_BYTES).define("SLOTS", slots)
}

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
    /// Reading what lies in the second-level cache.
    L2Read,
}

/// All of them.
pub(super) const ALL: [Traffic; 7] = [
    Traffic::Read,
    Traffic::BulkRead,
    Traffic::Write,
    Traffic::Copy,
    Traffic::DriverCopy,
    Traffic::Triad,
    Traffic::L2Read,
];

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read, 16-byte loads",
            Self::BulkRead => "read, bulk copies",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::DriverCopy => "copy, driver's",
            Self::Triad => "triad",
            Self::L2Read => "L2 read",
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

/// The kernels on a device, and the memory that they use.
struct Bench<'a> {
    device: &'a Device,
    write: Kernel,
    read: Kernel,
    /// With its bytes of shared memory.
    bulk: Option<(Kernel, u32)>,
    copy: Kernel,
    triad: Kernel,
    memory: DeviceBuffer<u8>,
    checksum: DeviceBuffer<u32>,
}

/// Measures the given kinds of traffic, with half of the free memory, at most `most_memory` bytes.
pub(super) fn measure(
    device: &Device,
    compiler: &Compiler,
    traffic: &[Traffic],
    most_memory: u64,
) -> Result<Vec<Rate>> {
    let free = device.memory()?.free;
    let mut bench = Bench::new(device, compiler, (free / 2).min(most_memory))?;
    bench.check_reading()?;
    let mut rates = Vec::new();
    for &traffic in traffic {
        if traffic == Traffic::BulkRead && bench.bulk.is_none() {
            continue;
        }
        for working_set in bench.working_sets(traffic) {
            rates.push(bench.rate(traffic, working_set)?);
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

impl<'a> Bench<'a> {
    fn new(device: &'a Device, compiler: &Compiler, bytes: u64) -> Result<Self> {
        compiler.check_driver()?;
        // A block's own few hundred bytes come on top of its rings.
        let slots =
            (device.properties().shared_memory_per_block.saturating_sub(1024) / SLOTS_OF_BLOCK).min(SLOTS_OF_HOPPER);
        let cubin = compiler.compile(BANDWIDTH.source, &constants(slots.max(1)), device.architecture())?;
        let module = Module::load(device, &cubin)?;
        let bulk = if device.architecture().has_bulk_copies() && slots > 0 {
            let kernel = module.kernel("bandwidth_read_bulk")?;
            kernel.set_dynamic_shared_memory(slots * SLOTS_OF_BLOCK)?;
            Some((kernel, slots * SLOTS_OF_BLOCK))
        } else {
            None
        };
        let size = usize::try_from(bytes / 48 * 48).unwrap_or(0);
        let mut bench = Self {
            device,
            write: module.kernel("bandwidth_write")?,
            read: module.kernel("bandwidth_read")?,
            bulk,
            copy: module.kernel("bandwidth_copy")?,
            triad: module.kernel("bandwidth_triad")?,
            memory: DeviceBuffer::uninitialized(device, size)?,
            checksum: DeviceBuffer::zeroed(device, 1)?,
        };
        bench.pass(Traffic::Write, size as u64, 1)?;
        device.synchronize()?;
        Ok(bench)
    }

    /// The sizes at which a kind of traffic is measured: reading at many, since models come in many sizes.
    fn working_sets(&self, traffic: Traffic) -> Vec<u64> {
        let most = self.memory.len() as u64;
        match traffic {
            Traffic::Read | Traffic::BulkRead => {
                let mut sizes: Vec<u64> = (27..33).map(|power| 1_u64 << power).filter(|&size| size < most).collect();
                sizes.push(most);
                sizes
            }
            Traffic::L2Read => vec![(self.device.properties().l2 / 4).clamp((1 << 20).min(most), most) / 16 * 16],
            _ => vec![most],
        }
    }

    /// Median rate of several samples, each of as many passes as it takes to move as many bytes as the memory used has:
    /// with some GiB, starting does not count.
    fn rate(&mut self, traffic: Traffic, working_set: u64) -> Result<Rate> {
        let (launches, rounds) = match traffic {
            Traffic::L2Read => (1, 101),
            _ => ((self.memory.len() as u64).div_ceil(working_set.max(1)), 1),
        };
        self.pass(traffic, working_set, rounds)?;
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            let milliseconds = device_milliseconds(self.device, || {
                for _ in 0..launches {
                    self.pass(traffic, working_set, rounds)?;
                }
                Ok(())
            })?;
            let bytes = (launches * u64::from(rounds) * working_set) as f64;
            samples.push(bytes / milliseconds / 1e6);
        }
        let gb_per_s = median(samples.clone()).unwrap_or(0.0);
        Ok(Rate { traffic, working_set, gb_per_s, samples })
    }

    /// One pass over the first `working_set` bytes, a multiple of 48 or of 16 for reading.
    fn pass(&mut self, traffic: Traffic, working_set: u64, rounds: u32) -> Result<()> {
        let start = self.memory.pointer();
        let (half, third) = (working_set / 32 * 16, working_set / 48 * 16);
        match traffic {
            Traffic::Read | Traffic::L2Read => {
                let arguments = Arguments::new().value(start).value(working_set / 16).value(rounds);
                self.run(&self.read, 0, &arguments.buffer(&self.checksum))
            }
            Traffic::BulkRead => match &self.bulk {
                Some((kernel, shared)) => {
                    let arguments = Arguments::new().value(start).value(working_set).buffer(&self.checksum);
                    self.run(kernel, *shared, &arguments)
                }
                None => Err(CudaError::Unsupported("this device has no bulk copies".to_owned())),
            },
            Traffic::Write => self.run(&self.write, 0, &Arguments::new().value(start).value(working_set / 16)),
            Traffic::Copy => {
                self.run(&self.copy, 0, &Arguments::new().value(start).value(start + half).value(half / 16))
            }
            Traffic::DriverCopy => self.memory.copy_within(0, half as usize, half as usize),
            Traffic::Triad => {
                let arguments = Arguments::new().value(start).value(start + third).value(start + 2 * third);
                self.run(&self.triad, 0, &arguments.value(0.5_f32).value(third / 16))
            }
        }
    }

    /// Launches as many blocks as run at once.
    fn run(&self, kernel: &Kernel, shared: u32, arguments: &Arguments) -> Result<()> {
        let blocks = kernel.blocks_per_multiprocessor(THREADS, shared)?.max(1);
        let launch = Launch::linear(blocks * self.device.properties().multiprocessors, THREADS).shared(shared);
        // SAFETY: every range above lies within `memory`, which lives as long as `self`; what the host reads of it, it
        // reads after waiting.
        unsafe { kernel.launch(&launch, arguments) }
    }

    /// Holds what the readers read against what the host knows was written: every byte counts.
    fn check_reading(&mut self) -> Result<()> {
        // Not a multiple of anything that the kernels step by.
        let size = (self.memory.len() as u64).min((33 << 20) + 16 * 12_345);
        let expected = (0..size / 16).fold(0, |sum, index| sum ^ fold_of(index));
        for traffic in [Traffic::Read, Traffic::BulkRead] {
            if traffic == Traffic::BulkRead && self.bulk.is_none() {
                continue;
            }
            self.checksum.fill_bytes(0)?;
            self.pass(traffic, size, 1)?;
            let read = self.checksum.download()?[0];
            if read != expected {
                return Err(CudaError::Unsupported(format!(
                    "{traffic}: the checksum of {size} bytes is {read:#010x} and should be {expected:#010x}"
                )));
            }
        }
        Ok(())
    }
}

/// What `bandwidth_write` puts at an index, folded to 32 bits.
fn fold_of(index: u64) -> u32 {
    let both = scramble(2 * index) ^ scramble(2 * index + 1);
    both as u32 ^ (both >> 32) as u32
}

/// The finalizer of `SplitMix64`, as in the kernel.
fn scramble(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first outputs of SplitMix64 from seed 0.
        assert_eq!(scramble(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(scramble(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }
}
