//! The products of a decode step: `kernels/matvec.cu`, and how its work is cut for a device.

use plancher_model::Activation;

use super::Shape;
use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, DeviceBuffer, DeviceMatrix, Element, Launch, Loader, Result, Source, Specialization,
};

/// The kernel.
pub(crate) static MATVEC: Family = Family {
    source: Source { name: "matvec", text: include_str!("../../kernels/matvec.cu") },
    purpose: "decode: matrix times up to 8 vectors, with norm, bias, activation, residual",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[
        Expectation::new("matvec", 80, "LDGSTS.E.BYPASS"),
        Expectation::new("matvec", 80, "HMMA"),
        Expectation::new("matvec", 90, "ACQBULK"),
    ],
    specializations,
};

/// Most sequences of one launch: the columns of the matrix instruction.
pub(crate) const MOST_SEQUENCES: usize = 8;

/// Warps of a block.
const WARPS: usize = 8;
/// Slices that a warp has still to ask for when its block counts as nearly done.
const LEAD: usize = 1;
/// Of so many blocks out of four, nearly done, the next product starts its own copies.
const NEARLY_DONE: usize = 3;
/// Elements of a row that a warp multiplies at a time.
const SLICE: usize = 64;

/// Where the vectors come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Elements `(batch, stride)`.
    Elements,
    /// RMS norm of f32 `(batch, stride)`.
    Norm,
    /// The same after the normed output of the branch before was added.
    PostNorm,
}

/// Where the products go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// f32.
    Store,
    /// Added to f32.
    Add,
    /// `activation(gate) * up`, elements.
    Gated(Activation),
    /// f32, and the largest one of each block.
    Logits,
}

/// A product to be specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matvec {
    /// Rows that the result has: half of the matrix's for [`Output::Gated`].
    pub(super) rows: usize,
    /// Columns.
    pub(super) columns: usize,
    /// Columns as stored.
    pub(super) stride: usize,
    pub(super) batch: usize,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) bias: bool,
    pub(super) element: Element,
}

/// How the rows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Sub-tiles of 8 rows that a block works on at a time.
    pub(super) subtiles: usize,
    /// Slices of each warp that are under way.
    pub(super) stages: usize,
    pub(super) blocks: usize,
    /// Dynamic shared memory of a block.
    pub(super) shared: usize,
}

impl Matvec {
    /// The product of `matrix` and a vector for each sequence.
    pub(super) fn new(matrix: &DeviceMatrix, element: Element, batch: usize, input: Input, output: Output) -> Self {
        let halves = if matches!(output, Output::Gated(_)) { 2 } else { 1 };
        let (rows, columns, stride) = (matrix.rows / halves, matrix.columns, matrix.stride);
        Self { rows, columns, stride, batch, input, output, bias: false, element }
    }

    fn group_rows(&self, subtiles: usize) -> usize {
        if matches!(self.output, Output::Gated(_)) { subtiles * 4 } else { subtiles * 8 }
    }

    /// The number of sub-tiles that gives the busiest block the fewest rows: the largest such number.
    fn subtiles(&self, shape: Shape) -> usize {
        match self.output {
            Output::Gated(_) | Output::Logits => 2,
            Output::Store | Output::Add => {
                // More sequences fetch more of the input for each group: wider groups then pay.
                let widest = if self.batch <= 2 { 3 } else { 4 };
                let busiest =
                    |subtiles: usize| self.rows.div_ceil(8 * subtiles).div_ceil(shape.multiprocessors) * subtiles;
                (1..=widest).rev().min_by_key(|&subtiles| busiest(subtiles)).unwrap_or(1)
            }
        }
    }

    /// How to cut it for a device of this shape.
    pub(super) fn tiling(&self, shape: Shape) -> Tiling {
        let subtiles = self.subtiles(shape);
        let with_weights = self.input == Input::Elements;
        let input = if with_weights { 0 } else { self.batch * self.stride * 2 };
        let stage = WARPS * (subtiles * 8 * SLICE * 2 + if with_weights { self.batch * SLICE * 2 } else { 0 });
        // Beside a small input the slices stay within the footprint; a large one exceeds it anyway.
        let within = if 4 * input < shape.footprint { shape.footprint - input } else { shape.ring };
        let ring = shape.ring.min(within);
        let most = (shape.shared_per_block.saturating_sub(input) / stage).max(2);
        let stages = (ring / stage).clamp(2, most.min(12));
        let groups = self.rows.div_ceil(self.group_rows(subtiles));
        let rounds = groups.div_ceil(shape.multiprocessors);
        Tiling {
            subtiles,
            stages,
            blocks: groups.div_ceil(rounds),
            shared: (stages * stage + input).max(shape.footprint),
        }
    }

    fn constants(&self, tiling: Tiling) -> Specialization {
        let input = match self.input {
            Input::Elements => 0,
            Input::Norm => 1,
            Input::PostNorm => 2,
        };
        let output = match self.output {
            Output::Store => 0,
            Output::Add => 1,
            Output::Gated(_) => 2,
            Output::Logits => 3,
        };
        self.element
            .constants()
            .define("K_SIZE", self.stride)
            .define("NORM_SIZE", self.columns)
            .define("ROW_COUNT", self.rows)
            .define("BATCH", self.batch)
            .define("SUBTILES", tiling.subtiles)
            .define("STAGES", tiling.stages)
            .define("LEAD", LEAD)
            .define("WARPS", WARPS)
            .define("INPUT", input)
            .define("OUTPUT", output)
            .define("HAS_BIAS", u8::from(self.bias))
            .define("GELU", u8::from(self.output == Output::Gated(Activation::GeluTanh)))
    }
}

/// What a product reads and writes, as addresses on the device; 0 for what it does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Operands {
    pub(super) out: u64,
    pub(super) out_stride: usize,
    pub(super) x: u64,
    pub(super) norm: u64,
    /// The branch's output, its norm, and where the residual stream goes after it.
    pub(super) delta: u64,
    pub(super) post_norm: u64,
    pub(super) sum: u64,
    pub(super) candidates: u64,
    pub(super) epsilon: f32,
    /// Where nearly done blocks are counted, and where those of the product before are.
    pub(super) progress: u64,
    pub(super) previous: Progress,
}

/// The count of nearly done blocks that a product waits for before it starts to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Its address; 0 to start at once.
    pub(super) count: u64,
    pub(super) enough: u32,
}

impl Progress {
    /// When most blocks of a product that counts them at `count` are nearly done.
    pub(super) fn of(count: u64, tiling: Tiling) -> Self {
        Self { count, enough: (tiling.blocks * NEARLY_DONE / 4) as u32 }
    }
}

/// Prepares the launch of a product.
pub(super) fn prepare(
    loader: &mut Loader,
    shape: Shape,
    mut matvec: Matvec,
    matrix: &DeviceMatrix,
    bias: Option<&DeviceBuffer<f32>>,
    operands: Operands,
) -> Result<super::Prepared> {
    matvec.bias = bias.is_some();
    let tiling = matvec.tiling(shape);
    let kernel = loader.kernel(MATVEC.source, &matvec.constants(tiling), "matvec")?;
    kernel.prefer_shared_memory(100)?;
    kernel.set_dynamic_shared_memory(tiling.shared as u32)?;
    let launch = Launch::linear(tiling.blocks as u32, WARPS as u32 * 32).shared(tiling.shared as u32).dependent();
    let arguments = Arguments::new()
        .value(operands.out)
        .buffer(&matrix.elements)
        .value(bias.map_or(0, DeviceBuffer::pointer))
        .value(operands.x)
        .value(operands.norm)
        .value(operands.delta)
        .value(operands.post_norm)
        .value(operands.sum)
        .value(operands.candidates)
        .value(operands.epsilon)
        .value(operands.out_stride as i32)
        .value(operands.progress)
        .value(operands.previous.count)
        .value(operands.previous.enough);
    Ok(super::Prepared { kernel, launch, arguments })
}

fn specializations() -> Vec<(&'static str, Specialization)> {
    let one = |label, rows, columns, batch, input, output, bias, element| {
        let matvec = Matvec { rows, columns, stride: crate::padded(columns), batch, input, output, bias, element };
        (label, matvec.constants(matvec.tiling(Shape::SMALL)))
    };
    let silu = Output::Gated(Activation::Silu);
    let gelu = Output::Gated(Activation::GeluTanh);
    vec![
        one("query, key, value of Llama-3.2-1B", 3072, 2048, 1, Input::Norm, Output::Store, false, Element::F16),
        one("output of Llama-3.2-1B", 2048, 2048, 1, Input::Elements, Output::Add, false, Element::F16),
        one("gate and up of Llama-3.2-1B", 8192, 2048, 1, Input::Norm, silu, false, Element::F16),
        one("head of Llama-3.2-1B", 128_256, 2048, 1, Input::Norm, Output::Logits, false, Element::F16),
        one("gate and up of Llama-3.1-8B, 8 sequences", 14_336, 4096, 8, Input::Norm, silu, false, Element::Bf16),
        one("down of Llama-3.1-8B, 8 sequences", 4096, 14_336, 8, Input::Elements, Output::Add, false, Element::F16),
        one("query, key, value with a bias", 1152, 896, 3, Input::Norm, Output::Store, true, Element::Bf16),
        one("gate and up of Gemma 3", 6912, 1152, 1, Input::PostNorm, gelu, false, Element::Bf16),
        one("output of Gemma 3", 1152, 1024, 2, Input::Elements, Output::Store, false, Element::Bf16),
        one("an uneven head", 32_001, 72, 1, Input::PostNorm, Output::Logits, false, Element::F16),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Shape = Shape {
        multiprocessors: 132,
        shared_per_block: 227 << 10,
        ring: 64 << 10,
        footprint: 80 << 10,
        clusters: true,
    };

    fn matvec(rows: usize, columns: usize, batch: usize, output: Output) -> Matvec {
        let input = if output == Output::Add { Input::Elements } else { Input::Norm };
        Matvec { rows, columns, stride: columns, batch, input, output, bias: false, element: Element::F16 }
    }

    #[test]
    fn the_busiest_block_has_as_few_rows_as_possible() {
        let blocks = |rows, output| {
            let tiling = matvec(rows, 2048, 1, output).tiling(H200);
            (tiling.subtiles, tiling.blocks)
        };
        assert_eq!(blocks(3072, Output::Store), (3, 128));
        assert_eq!(blocks(2048, Output::Add), (2, 128));
        assert_eq!(blocks(1024, Output::Add), (1, 128));
        assert_eq!(blocks(8192, Output::Gated(Activation::Silu)), (2, 128));
        assert_eq!(blocks(8, Output::Store), (1, 1));
    }

    #[test]
    fn shared_memory_is_never_exceeded() {
        for shape in [H200, Shape::SMALL] {
            for batch in 1..=MOST_SEQUENCES {
                for (rows, columns) in [(64, 64), (6144, 4096), (10_240, 8192)] {
                    for output in [Output::Store, Output::Add, Output::Gated(Activation::Silu), Output::Logits] {
                        let matvec = matvec(rows, columns, batch, output);
                        let tiling = matvec.tiling(shape);
                        let least = matvec.batch * matvec.stride * 2 + (64 << 10);
                        let fits = tiling.shared <= shape.shared_per_block;
                        assert!(fits || least > shape.shared_per_block, "{matvec:?}: {tiling:?}");
                    }
                }
            }
        }
    }
}
