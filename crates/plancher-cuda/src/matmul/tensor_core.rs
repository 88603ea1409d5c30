//! Our own kernel, `matmul.cu`: tiles by the number of rows.

use cudarc::driver::sys::CUdeviceptr;

use super::{Output, Plans, Product};
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Arguments, Element, Kernel, Launch, Loader, Result, Source, Specialization};

/// Matrix products on the tensor cores.
pub(crate) static FAMILY: Family = Family {
    source: Source { name: "matmul", text: include_str!("../../kernels/matmul.cu") },
    purpose: "matrix products of many rows, where cuBLASLt is missing",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[
        Expectation::new("matmul", 80, "HMMA.16816"),
        Expectation::new("matmul", 80, "LDSM.16"),
        Expectation::new("matmul", 80, "LDGSTS.E.BYPASS"),
    ],
    specializations,
};

/// Elements of K in a slice.
const SLICE: usize = 64;

/// How a block and its warps cut the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tile {
    m: usize,
    n: usize,
    warp_m: usize,
    warp_n: usize,
    stages: usize,
}

impl Tile {
    /// The one for `m` rows: few rows are a matter of reading the weights once by as many blocks as possible, many of
    /// keeping the tensor cores fed. Shared memory stays below the 99 KiB that every card since Ampere has.
    fn of(m: usize) -> Self {
        match m {
            0..=16 => Self { m: 16, n: 32, warp_m: 16, warp_n: 16, stages: 6 },
            17..=32 => Self { m: 32, n: 64, warp_m: 16, warp_n: 32, stages: 4 },
            33..=64 => Self { m: 64, n: 64, warp_m: 32, warp_n: 32, stages: 4 },
            _ => Self { m: 128, n: 128, warp_m: 64, warp_n: 64, stages: 3 },
        }
    }

    fn threads(self) -> u32 {
        (32 * (self.m / self.warp_m) * (self.n / self.warp_n)) as u32
    }

    fn shared(self) -> u32 {
        (self.stages * (self.m + self.n) * SLICE * 2) as u32
    }

    fn constants(self, product: &Product) -> Specialization {
        product
            .element
            .constants()
            .define("K_SIZE", product.columns)
            .define("X_STRIDE", product.columns)
            .define("WEIGHT_STRIDE", product.columns)
            .define("N_SIZE", product.rows)
            .define("OUT_STRIDE", product.out_stride)
            .define("OUT_F32", u8::from(product.output != Output::Elements))
            .define("ACCUMULATE", u8::from(product.output == Output::AddF32))
            .define("TILE_M", self.m)
            .define("TILE_N", self.n)
            .define("TILE_K", SLICE)
            .define("WARP_M", self.warp_m)
            .define("WARP_N", self.warp_n)
            .define("STAGES", self.stages)
    }
}

/// Representative constants: every tile, every kind of output.
fn specializations() -> Vec<(&'static str, Specialization)> {
    let product = |output| Product { element: Element::F16, rows: 6144, columns: 4096, out_stride: 6144, output };
    vec![
        ("rows16", Tile::of(16).constants(&product(Output::Elements))),
        ("rows32", Tile::of(32).constants(&product(Output::Elements))),
        ("rows64", Tile::of(64).constants(&product(Output::F32))),
        ("rows2048", Tile::of(2048).constants(&product(Output::Elements))),
        ("rows2048-f32", Tile::of(2048).constants(&product(Output::F32))),
        ("rows2048-add", Tile::of(2048).constants(&product(Output::AddF32))),
        ("rows2048-bf16", Tile::of(2048).constants(&Product { element: Element::Bf16, ..product(Output::Elements) })),
    ]
}

/// The kernels made so far.
#[derive(Debug)]
pub(super) struct TensorCore {
    loader: Loader,
    /// By shape and the tile's rows.
    kernels: Plans<Kernel>,
}

impl TensorCore {
    pub(super) fn new(loader: Loader) -> Self {
        Self { loader, kernels: Plans::new() }
    }

    /// # Safety
    /// As [`super::Matmul::multiply`].
    pub(super) unsafe fn multiply(
        &mut self,
        product: &Product,
        m: usize,
        x: CUdeviceptr,
        weight: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<()> {
        let tile = Tile::of(m);
        let loader = &mut self.loader;
        let kernel = self.kernels.get_or_make((*product, tile.m), || {
            let kernel = loader.kernel(FAMILY.source, &tile.constants(product), "matmul")?;
            kernel.set_dynamic_shared_memory(tile.shared())?;
            Ok(kernel)
        })?;
        let grid = [m.div_ceil(tile.m) as u32, product.out_stride.div_ceil(tile.n) as u32, 1];
        let arguments = Arguments::new().value(out).value(x).value(weight).value(m as i32);
        let launch = Launch::new(grid, [tile.threads(), 1, 1]).shared(tile.shared());
        // SAFETY: the kernel stays inside the sizes it is compiled for and `m` rows, as the caller promises.
        unsafe { kernel.launch(&launch, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_whole_warps_and_fits_any_card() {
        for m in [1, 16, 17, 32, 33, 64, 65, 5000] {
            let tile = Tile::of(m);
            assert!(tile.m >= m.min(128) && tile.m.is_multiple_of(tile.warp_m) && tile.n.is_multiple_of(tile.warp_n));
            assert!(tile.warp_m.is_multiple_of(16) && tile.warp_n.is_multiple_of(16));
            assert!(tile.shared() <= 99 * 1024 && tile.threads() <= 1024);
        }
    }
}
