//! Our own kernel, `matmul.cu`: tiles by the number of rows.

use cudarc::driver::sys::CUdeviceptr;

use super::{Output, Plans, Product};
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Arguments, Element, Kernel, Launch, Loader, Result, Source, Specialization};

/// What both kernels share stands in front of each.
macro_rules! with_tile {
    ($file:literal) => {
        concat!(
            include_str!("../../kernels/matmul_tile.cuh"),
            "\n#line 1 \"",
            $file,
            "\"\n",
            include_str!(concat!("../../kernels/", $file))
        )
    };
}

/// Matrix products on the tensor cores of any card.
pub(crate) static FAMILY: Family = Family {
    source: Source { name: "matmul", text: with_tile!("matmul.cu") },
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

/// The same by Hopper's own instructions.
pub(crate) static HOPPER_FAMILY: Family = Family {
    source: Source { name: "matmul_hopper", text: with_tile!("matmul_hopper.cu") },
    purpose: "matrix products of many rows by Hopper's own instructions, where cuBLASLt is missing",
    architectures: &[HOPPER],
    spill_budget: 0,
    expected: &[Expectation::new("matmul_hopper", 90, "HGMMA.64x256x16")],
    specializations: || constants(Tile::HOPPER, &EVERY_OUTPUT),
};

/// The only architecture with `wgmma`.
const HOPPER: Architecture = Architecture::of_capability(9, 0);

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
    /// Two warpgroups of 64 x 256.
    const HOPPER: Self = Self { m: 128, n: 256, warp_m: 16, warp_n: 256, stages: 4 };
    /// The others stay below the 99 KiB of shared memory that every card since Ampere has.
    const LARGE: Self = Self { m: 128, n: 128, warp_m: 64, warp_n: 64, stages: 3 };
    const MIDDLE: Self = Self { m: 64, n: 64, warp_m: 32, warp_n: 32, stages: 4 };
    const SMALL: Self = Self { m: 32, n: 64, warp_m: 16, warp_n: 32, stages: 4 };
    const SMALLEST: Self = Self { m: 16, n: 32, warp_m: 16, warp_n: 16, stages: 6 };

    /// The one that any card has for `m` rows and outputs without end.
    fn of(m: usize) -> Self {
        match m {
            0..=16 => Self::SMALLEST,
            17..=32 => Self::SMALL,
            33..=64 => Self::MIDDLE,
            _ => Self::LARGE,
        }
    }

    /// The best one for this product: many rows are a matter of keeping the tensor cores fed, so of large tiles, as long
    /// as there are enough for all multiprocessors; few rows of reading the weights once.
    fn choose(m: usize, product: &Product, architecture: Architecture, multiprocessors: usize) -> Self {
        let enough = |tile: &Self| m.div_ceil(tile.m) * product.rows.div_ceil(tile.n) >= multiprocessors;
        let mut candidates = vec![Self::of(m)];
        if m > 64 {
            candidates.push(Self::MIDDLE);
        }
        if m > 64 && architecture == HOPPER {
            candidates.insert(0, Self::HOPPER);
        }
        let last = candidates[candidates.len() - 1];
        candidates.into_iter().find(enough).unwrap_or(last)
    }

    /// The kernel's file and name.
    fn kernel(self) -> (Source, &'static str) {
        if self == Self::HOPPER { (HOPPER_FAMILY.source, "matmul_hopper") } else { (FAMILY.source, "matmul") }
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

/// Representative constants: the shape of an 8B model, every kind of output.
fn constants(tile: Tile, outputs: &[(&'static str, Element, Output)]) -> Vec<(&'static str, Specialization)> {
    let product = |element, output| Product { element, rows: 6144, columns: 4096, out_stride: 6144, output };
    outputs.iter().map(|&(label, element, output)| (label, tile.constants(&product(element, output)))).collect()
}

fn specializations() -> Vec<(&'static str, Specialization)> {
    let mut all = constants(Tile::SMALLEST, &[("rows16", Element::F16, Output::Elements)]);
    all.extend(constants(Tile::SMALL, &[("rows32", Element::F16, Output::F32)]));
    all.extend(constants(Tile::MIDDLE, &[("rows64", Element::Bf16, Output::AddF32)]));
    all.extend(constants(Tile::LARGE, &EVERY_OUTPUT));
    all
}

/// Every kind of output, and both types.
const EVERY_OUTPUT: [(&str, Element, Output); 4] = [
    ("f16", Element::F16, Output::Elements),
    ("bf16", Element::Bf16, Output::Elements),
    ("f32", Element::F16, Output::F32),
    ("add", Element::F16, Output::AddF32),
];

/// The kernels made so far.
#[derive(Debug)]
pub(super) struct TensorCore {
    loader: Loader,
    /// By shape and the tile's size.
    kernels: Plans<(Product, usize), Kernel>,
    architecture: Architecture,
    multiprocessors: usize,
}

impl TensorCore {
    pub(super) fn new(loader: Loader) -> Self {
        let properties = loader.device().properties();
        let (architecture, multiprocessors) = (properties.architecture(), properties.multiprocessors as usize);
        Self { loader, kernels: Plans::new(), architecture, multiprocessors }
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
        let (loader, architecture) = (&mut self.loader, self.architecture);
        let tile = Tile::choose(m, product, architecture, self.multiprocessors);
        let kernel = self.kernels.get_or_make((*product, tile.m * tile.n), || {
            let (source, name) = tile.kernel();
            let kernel = loader.kernel(source, &tile.constants(product), name)?;
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
    fn every_tile_is_whole_warps_and_fits_its_cards() {
        let tiles = [Tile::LARGE, Tile::MIDDLE, Tile::SMALL, Tile::SMALLEST, Tile::HOPPER];
        let sizes: std::collections::HashSet<usize> = tiles.iter().map(|tile| tile.m * tile.n).collect();
        assert_eq!(sizes.len(), tiles.len(), "the size names the tile");
        for tile in tiles {
            assert!(tile.m.is_multiple_of(tile.warp_m) && tile.n.is_multiple_of(tile.warp_n));
            assert!(tile.warp_m.is_multiple_of(16) && tile.warp_n.is_multiple_of(16));
            let limit = if tile == Tile::HOPPER { 227 } else { 99 };
            assert!(tile.shared() <= limit * 1024 && tile.threads() <= 1024);
        }
    }

    #[test]
    fn large_tiles_are_for_large_products_and_hopper_has_its_own() {
        let product =
            Product { element: Element::F16, rows: 4096, columns: 4096, out_stride: 4096, output: Output::F32 };
        let choose = |m, architecture| Tile::choose(m, &product, architecture, 132);
        let ampere = Architecture::of_capability(8, 0);
        assert_eq!(choose(2048, HOPPER), Tile::HOPPER);
        assert_eq!(choose(2048, ampere), Tile::LARGE);
        assert_eq!(choose(200, HOPPER), Tile::MIDDLE);
        assert_eq!(choose(200, ampere), Tile::MIDDLE);
        assert_eq!(choose(40, HOPPER), Tile::MIDDLE);
        assert_eq!(choose(9, ampere), Tile::SMALLEST);
    }
}
