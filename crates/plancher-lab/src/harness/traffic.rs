//! Ways of moving bytes, of which the fastest is a ceiling: the lab's own kernels (`kernels/ceilings.cu`), those with which
//! decoding is measured, the bulk copy engine, and the driver's copy. None of them is a version of a step.

use plancher_cuda::ceilings::{Bench, Grid, Traffic};
use plancher_cuda::{Arguments, Compiler, Device, Kernel, Launch, Module, Specialization};

use super::launch::launch;
use crate::step::Ceiling;
use crate::{LabError, Result};

/// The lab's own kernels. Each is called `KIND_THREADSxPIECES` (or `KIND_plain_…`): a block of so many threads moves so many
/// 16-byte pieces a thread.
const SOURCE: &str = include_str!("../../kernels/ceilings.cu");

/// One way of moving bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Way {
    /// With the kernels of another crate, or the driver.
    Traffic(Traffic, Grid),
    /// With a kernel of the lab: its number.
    Own(usize),
}

/// A kernel of the lab.
#[derive(Debug)]
struct Own {
    ceiling: Ceiling,
    kernel: Kernel,
    threads: u32,
    pieces: u64,
}

/// Memory, and the ways of moving what lies there.
#[derive(Debug)]
pub(super) struct Memory {
    bench: Bench,
    own: Vec<Own>,
    bulk: bool,
}

/// What a kernel's name says: its kind, threads, pieces a thread.
fn parse(name: &str) -> Option<(Ceiling, u32, u64)> {
    let ceiling = match name.split_once('_')?.0 {
        "copy" => Ceiling::Copy,
        "read" => Ceiling::Read,
        "write" => Ceiling::Write,
        "triad" => Ceiling::Triad,
        _ => return None,
    };
    let (threads, pieces) = name.rsplit_once('_')?.1.split_once('x')?;
    Some((ceiling, threads.parse().ok()?, pieces.parse().ok()?))
}

/// Arrays over which a kind of traffic goes.
const fn arrays(ceiling: Ceiling) -> u64 {
    match ceiling {
        Ceiling::Copy => 2,
        Ceiling::Triad => 3,
        _ => 1,
    }
}

impl Memory {
    pub(super) fn new(device: &Device, compiler: &Compiler, bytes: u64) -> Result<Self> {
        let bench = Bench::new(device, compiler, bytes.max(1 << 20).next_multiple_of(48))?;
        let cubin = compiler.compile_text("ceilings", SOURCE, &Specialization::new(), device.architecture())?;
        let module = Module::load(device, &cubin)?;
        let mut own = Vec::new();
        for kernel in &cubin.kernels {
            if let Some((ceiling, threads, pieces)) = parse(&kernel.name) {
                own.push(Own { ceiling, kernel: module.kernel(&kernel.name)?, threads, pieces });
            }
        }
        Ok(Self { bench, own, bulk: device.architecture().has_bulk_copies() })
    }

    /// The size nearest to `bytes` that every way can do: whole 16-byte pieces of up to three arrays.
    pub(super) fn size(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(48).min(self.bench.bytes())
    }

    /// The ways of a ceiling.
    pub(super) fn ways(&self, ceiling: Ceiling) -> Vec<Way> {
        let kinds: &[Traffic] = match ceiling {
            Ceiling::Copy => &[Traffic::Copy, Traffic::DriverCopy],
            Ceiling::Read => &[Traffic::Read, Traffic::BulkRead],
            Ceiling::Write => &[Traffic::Write],
            Ceiling::Triad => &[Traffic::Triad],
            Ceiling::L2 => &[Traffic::L2Read, Traffic::L2BulkRead],
            Ceiling::DataSheet | Ceiling::Cublas => &[],
        };
        let is_bulk = |traffic| matches!(traffic, Traffic::BulkRead | Traffic::L2BulkRead);
        let kinds = kinds.iter().filter(|&&traffic| self.bulk || !is_bulk(traffic));
        let others =
            kinds.flat_map(|&traffic| Grid::choices(traffic).iter().map(move |&grid| Way::Traffic(traffic, grid)));
        let own = (0..self.own.len()).filter(|&index| self.own[index].ceiling == ceiling).map(Way::Own);
        others.chain(own).collect()
    }

    /// In words.
    pub(super) fn name(&self, way: &Way) -> String {
        match way {
            Way::Traffic(Traffic::DriverCopy, _) => "the driver's copy".to_owned(),
            Way::Traffic(traffic, grid) => format!("{traffic}, {grid:?} grid"),
            Way::Own(index) => self.own.get(*index).map(|own| own.kernel.name().to_owned()).unwrap_or_default(),
        }
    }

    /// How often a pass goes over its bytes.
    pub(super) fn rounds(way: &Way) -> u64 {
        match way {
            Way::Traffic(traffic, _) => Bench::rounds(*traffic).into(),
            Way::Own(_) => 1,
        }
    }

    /// Puts one pass over so many bytes (a [`size`](Self::size)), read and written together, on the stream.
    pub(super) fn pass(&mut self, way: &Way, bytes: u64) -> Result<()> {
        let index = match way {
            Way::Traffic(traffic, grid) => return Ok(self.bench.pass(*traffic, bytes, *grid)?),
            Way::Own(index) => *index,
        };
        let own = self.own.get(index).ok_or_else(|| LabError::Unsupported("there is no such kernel".to_owned()))?;
        let arrays = arrays(own.ceiling);
        let array = bytes.min(self.bench.bytes()) / (16 * arrays) * 16;
        let count = array / 16;
        let blocks = count.div_ceil(u64::from(own.threads) * own.pieces).max(1);
        // The first array is written, the others are read; one that is only read is the first.
        let to = self.bench.pointer();
        let from = if arrays == 1 { to } else { to + array };
        let other = to + (arrays - 1) * array;
        let blocks = u32::try_from(blocks).map_err(|_| LabError::Unsupported(format!("{bytes} bytes are too many")))?;
        let arguments = Arguments::new().value(to).value(from).value(other).value(count);
        launch(&own.kernel, &Launch::linear(blocks, own.threads), &arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_a_kernel_is_launched() {
        assert_eq!(parse("copy_128x1"), Some((Ceiling::Copy, 128, 1)));
        assert_eq!(parse("triad_plain_1024x1"), Some((Ceiling::Triad, 1024, 1)));
        assert_eq!(parse("read_512x8"), Some((Ceiling::Read, 512, 8)));
        assert_eq!((parse("read"), parse("sum_128x1"), parse("copy_128")), (None, None, None));
        for kind in ["copy_", "read_", "write_", "triad_"] {
            assert!(SOURCE.contains(&format!(" {kind}")), "there is no {kind}");
        }
    }
}
