//! The kernels on a device and the memory that they use: one pass of each kind of traffic, checked and timed.

use super::{BANDWIDTH, Rate, Traffic};
use crate::ceilings::Effort;
use crate::ceilings::statistics::median;
use crate::{
    Arguments, Compiler, CudaError, Device, DeviceBuffer, Kernel, Launch, Module, Result, Specialization,
    device_milliseconds,
};

/// Threads of a block.
const THREADS: u32 = 256;
/// 16-byte pieces of a tile, which a block moves at a time.
const TILE: u64 = THREADS as u64 * 8;
/// Bytes of one slot of a warp's ring.
const SLOT_BYTES: u32 = 4096;
/// Slots of a warp's ring where a block may have 227 KiB of shared memory.
pub(super) const SLOTS_OF_HOPPER: u32 = 6;
/// Bytes of all slots with the same number in a block's rings.
const SLOTS_OF_BLOCK: u32 = THREADS / 32 * SLOT_BYTES;
/// Rounds over what lies in the second-level cache; odd, so that the checksum is that of one round.
const ROUNDS_OF_L2: u32 = 101;

/// How the kernels are compiled, with so many slots in a warp's ring.
pub(super) fn constants(slots: u32) -> Specialization {
    let constants = Specialization::new().define("THREADS", THREADS).define("UNROLL", TILE / u64::from(THREADS));
    constants.define("SLOT_BYTES", SLOT_BYTES).define("SLOTS", slots)
}

/// How many blocks share the work. None is the fastest for everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// As many as run at once, each with many tiles.
    Persistent,
    /// One for each tile.
    Tiles,
    /// One for as many 16-byte pieces as it has threads.
    Single,
}

impl Grid {
    /// What there is for a kind of traffic.
    #[must_use]
    pub const fn choices(traffic: Traffic) -> &'static [Self] {
        match traffic {
            Traffic::Read | Traffic::Write => &[Self::Persistent, Self::Tiles],
            Traffic::Copy | Traffic::Triad => &[Self::Persistent, Self::Tiles, Self::Single],
            _ => &[Self::Persistent],
        }
    }
}

/// Memory, filled, and the kernels that go over it.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    write: Kernel,
    read: Kernel,
    /// With its bytes of shared memory.
    bulk: Option<(Kernel, u32)>,
    copy: [Kernel; 2],
    triad: [Kernel; 2],
    memory: DeviceBuffer<u8>,
    checksum: DeviceBuffer<u32>,
}

impl Bench {
    /// Compiles the kernels and fills `bytes` of memory.
    ///
    /// # Errors
    /// If a kernel does not compile, or there is not so much memory.
    pub fn new(device: &Device, compiler: &Compiler, bytes: u64) -> Result<Self> {
        compiler.check_driver()?;
        // A block's own few hundred bytes come on top of its rings.
        let shared = device.properties().shared_memory_per_block.saturating_sub(1024);
        let slots = (shared / SLOTS_OF_BLOCK).min(SLOTS_OF_HOPPER);
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
            device: device.clone(),
            write: module.kernel("bandwidth_write")?,
            read: module.kernel("bandwidth_read")?,
            bulk,
            copy: [module.kernel("bandwidth_copy")?, module.kernel("bandwidth_copy_single")?],
            triad: [module.kernel("bandwidth_triad")?, module.kernel("bandwidth_triad_single")?],
            memory: DeviceBuffer::uninitialized(device, size)?,
            checksum: DeviceBuffer::zeroed(device, 1)?,
        };
        bench.pass(Traffic::Write, size as u64, Grid::Persistent)?;
        device.synchronize()?;
        Ok(bench)
    }

    /// The sizes at which a kind of traffic is measured: reading at many, since models come in many sizes.
    pub(super) fn working_sets(&self, traffic: Traffic) -> Vec<u64> {
        let most = self.memory.len() as u64;
        if traffic.is_of_l2() {
            // A tile for each block that runs at once, as often as fits into a third of the cache: no block idles.
            let properties = self.device.properties();
            let tiles = 4 * u64::from(properties.multiprocessors) * TILE * 16;
            return vec![(tiles * (properties.l2 / 3 / tiles).max(1)).min(most)];
        }
        if matches!(traffic, Traffic::Read | Traffic::BulkRead) {
            let mut sizes: Vec<u64> = (27..33).map(|power| 1_u64 << power).filter(|&size| size < most).collect();
            sizes.push(most);
            return sizes;
        }
        vec![most]
    }

    /// Median rate of several samples, each of as many passes as it takes to move as many bytes as the memory used has:
    /// with some GiB, starting does not count. The fastest grid is taken.
    pub(super) fn rate(&mut self, traffic: Traffic, working_set: u64, effort: Effort) -> Result<Rate> {
        let launches = match traffic {
            Traffic::L2Read | Traffic::L2BulkRead => 1,
            _ => (self.memory.len() as u64).div_ceil(working_set.max(1)),
        };
        let mut sample = |grid: Grid| -> Result<f64> {
            let milliseconds = device_milliseconds(&self.device.clone(), || {
                (0..launches).try_for_each(|_| self.pass(traffic, working_set, grid))
            })?;
            Ok((launches * u64::from(Self::rounds(traffic)) * working_set) as f64 / milliseconds / 1e6)
        };
        let (mut grid, mut best) = (Grid::Persistent, 0.0);
        for &choice in Grid::choices(traffic) {
            // The first one warms up.
            let rate = sample(choice)?.max(sample(choice)?);
            if rate > best {
                (grid, best) = (choice, rate);
            }
        }
        let samples = (0..effort.samples.max(1)).map(|_| sample(grid)).collect::<Result<Vec<f64>>>()?;
        let gb_per_s = median(samples.clone()).unwrap_or(0.0);
        Ok(Rate { traffic, working_set, gb_per_s, samples })
    }

    /// The memory's size in bytes, a multiple of 48.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Where the memory begins on the device.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.memory.pointer()
    }

    /// Puts one pass over the first `working_set` bytes, a multiple of 16, on the stream (for what lies in the
    /// second-level cache, [`rounds`](Self::rounds) of them). Bytes read and bytes written together are `working_set`.
    ///
    /// # Errors
    /// If there is not so much memory, the device does not have such traffic, or it has failed.
    pub fn pass(&mut self, traffic: Traffic, working_set: u64, grid: Grid) -> Result<()> {
        if working_set > self.bytes() {
            let (value, limit) = (working_set, self.bytes());
            return Err(CudaError::Range { what: "bytes of a pass over memory", value, limit });
        }
        let start = self.memory.pointer();
        let (half, third) = (working_set / 32 * 16, working_set / 48 * 16);
        let rounds = Self::rounds(traffic);
        match traffic {
            Traffic::Read | Traffic::L2Read => {
                let arguments = Arguments::new().value(start).value(working_set / 16).value(rounds);
                self.run(&self.read, working_set / 16, grid, &arguments.buffer(&self.checksum))
            }
            Traffic::BulkRead | Traffic::L2BulkRead => {
                let Some((kernel, shared)) = &self.bulk else {
                    return Err(CudaError::Unsupported("this device has no bulk copies".to_owned()));
                };
                let launch = Launch::linear(self.device.properties().multiprocessors, THREADS).shared(*shared);
                let arguments = Arguments::new().value(start).value(working_set).value(rounds).buffer(&self.checksum);
                // SAFETY: as in `run`.
                unsafe { kernel.launch(&launch, &arguments) }
            }
            Traffic::Write => {
                let arguments = Arguments::new().value(start).value(working_set / 16);
                self.run(&self.write, working_set / 16, grid, &arguments)
            }
            Traffic::Copy => {
                let arguments = Arguments::new().value(start).value(start + half).value(half / 16);
                self.run(&self.copy[usize::from(grid == Grid::Single)], half / 16, grid, &arguments)
            }
            Traffic::DriverCopy => self.memory.copy_within(0, half as usize, half as usize),
            Traffic::Triad => {
                let arguments = Arguments::new().value(start).value(start + third).value(start + 2 * third);
                self.run(
                    &self.triad[usize::from(grid == Grid::Single)],
                    third / 16,
                    grid,
                    &arguments.value(0.5_f32).value(third / 16),
                )
            }
        }
    }

    /// How often one pass goes over its working set.
    #[must_use]
    pub const fn rounds(traffic: Traffic) -> u32 {
        if traffic.is_of_l2() { ROUNDS_OF_L2 } else { 1 }
    }

    /// Launches a kernel that moves `pieces` pieces.
    fn run(&self, kernel: &Kernel, pieces: u64, grid: Grid, arguments: &Arguments) -> Result<()> {
        let at_once = kernel.blocks_per_multiprocessor(THREADS, 0)?.max(1) * self.device.properties().multiprocessors;
        let blocks = match grid {
            Grid::Persistent => at_once,
            Grid::Tiles => blocks_for(pieces, TILE),
            Grid::Single => blocks_for(pieces, THREADS.into()),
        };
        // SAFETY: every range that `pass` names lies within `memory`, which lives as long as `self`; what the host reads
        // of it, it reads after waiting.
        unsafe { kernel.launch(&Launch::linear(blocks, THREADS), arguments) }
    }

    /// Holds what the readers read against what the host knows was written: every byte counts.
    pub(super) fn check_reading(&mut self) -> Result<()> {
        // Not a multiple of anything that the kernels step by.
        let size = (self.memory.len() as u64).min((33 << 20) + 16 * 12_345);
        let expected = (0..size / 16).fold(0, |sum, index| sum ^ fold_of(index));
        for traffic in [Traffic::Read, Traffic::L2Read, Traffic::BulkRead, Traffic::L2BulkRead] {
            if traffic.is_bulk() && self.bulk.is_none() {
                continue;
            }
            self.checksum.fill_bytes(0)?;
            self.pass(traffic, size, Grid::Persistent)?;
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

/// As many blocks as it takes, at least one. (A GiB has 262,144 at most: far from a grid's limit.)
fn blocks_for(pieces: u64, pieces_of_block: u64) -> u32 {
    u32::try_from(pieces.div_ceil(pieces_of_block)).unwrap_or(u32::MAX).clamp(1, i32::MAX as u32)
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

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first outputs of SplitMix64 from seed 0.
        assert_eq!(scramble(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(scramble(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }
}
