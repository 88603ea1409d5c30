//! The stream of weights on the device: `kernels/mega_pack.cu`, and the tiles that it works through.

use bytemuck::{Pod, Zeroable};
use plancher_program::gpu::{Plan, Product, TILE_ROWS};

use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, DeviceBuffer, DeviceMatrix, DeviceWeights, Launch, Loader, Result, Source, Specialization,
};

/// The kernel.
pub(crate) static MEGA_PACK: Family = Family {
    source: Source { name: "mega_pack", text: include_str!("../../kernels/mega_pack.cu") },
    purpose: "the megakernel's stream of weights, from row-major matrices",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[Expectation::new("mega_pack", 80, "STG.E.128")],
    specializations: || vec![("any model", Specialization::new())],
};

/// `struct tile` of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Tile {
    worker: u32,
    /// The first one of the worker's stages.
    stage: u32,
    /// The matrix' row of the tile's row 0, and how many of rows 0 to 7 there are.
    low: u32,
    low_rows: u32,
    /// The same for its rows 8 to 15.
    high: u32,
    high_rows: u32,
    /// 1: 8 rows in the shape of 16.
    half: u32,
    padding: u32,
}

/// The tiles of one matrix.
#[derive(Debug)]
struct Matrix {
    product: Product,
    /// The number of layers for the head.
    layer: usize,
    tiles: Vec<Tile>,
}

/// The tiles of all matrices, those of all workers.
fn tiles(plan: &Plan) -> Vec<Matrix> {
    let of_layer = |layer| Product::OF_LAYER.map(move |product| (product, layer));
    let matrices = (0..plan.shape.layers).flat_map(of_layer).chain([(Product::Head, plan.shape.layers)]);
    let mut all: Vec<Matrix> = matrices.map(|(product, layer)| Matrix { product, layer, tiles: Vec::new() }).collect();
    let (per_layer, rows_of_gate) = (Product::OF_LAYER.len(), plan.shape.feed_forward);
    for (worker, list) in plan.workers.iter().enumerate() {
        for (instruction, &first_stage) in list.instructions.iter().zip(&list.first_stages) {
            let Some(product) = plan.product_of(instruction.operation) else { continue };
            let within = if product.product == Product::Head { 0 } else { product.product as usize };
            let matrix = &mut all[usize::from(instruction.layer) * per_layer + within];
            let (first, count) = (instruction.first as usize, instruction.count as usize);
            let cut = product.tiles(count);
            for index in 0..cut.full + usize::from(cut.half) {
                let pairs = product.product == Product::GateUp;
                let done = index * if pairs { TILE_ROWS / 2 } else { TILE_ROWS };
                let (low, left, half_tile) = (first + done, count - done, TILE_ROWS / 2);
                let high = if pairs { rows_of_gate + low } else { low + half_tile };
                let high_left = if pairs { left } else { left.saturating_sub(half_tile) };
                matrix.tiles.push(Tile {
                    worker: worker as u32,
                    stage: first_stage + (index * product.tile_stages()) as u32,
                    low: low as u32,
                    low_rows: left.min(half_tile) as u32,
                    high: high as u32,
                    high_rows: high_left.min(half_tile) as u32,
                    half: u32::from(index == cut.full),
                    padding: 0,
                });
            }
        }
    }
    all
}

/// The matrix of a product.
fn matrix(weights: &DeviceWeights, product: Product, layer: usize) -> Option<&DeviceMatrix> {
    let layer = weights.layers.get(layer);
    match product {
        Product::QueryKeyValue => layer.map(|layer| &layer.query_key_value),
        Product::Output => layer.map(|layer| &layer.attention_output),
        Product::GateUp => layer.map(|layer| &layer.gate_up),
        Product::Down => layer.map(|layer| &layer.down),
        Product::Head => Some(weights.head()),
    }
}

/// Makes the stream of `plan`, which is one for the model of `weights`.
pub(super) fn pack(loader: &mut Loader, weights: &DeviceWeights, plan: &Plan) -> Result<DeviceBuffer<u64>> {
    let device = loader.device().clone();
    let kernel = loader.kernel(MEGA_PACK.source, &Specialization::new(), "mega_pack")?;
    let stream = DeviceBuffer::uninitialized(&device, plan.stream_bytes() / size_of::<u64>())?;
    let all = tiles(plan);
    let on_device = DeviceBuffer::from_slice(&device, &all.iter().flat_map(|of| of.tiles.clone()).collect::<Vec<_>>())?;
    let mut first = 0;
    for Matrix { product, layer, tiles } in &all {
        let plan_of = plan.product(*product);
        if let Some(matrix) = matrix(weights, *product, *layer).filter(|_| !tiles.is_empty()) {
            let arguments = Arguments::new()
                .buffer(&stream)
                .buffer(&matrix.elements)
                .value(on_device.pointer_at(first))
                .value(matrix.stride as u32)
                .value(plan_of.padded as u32)
                .value(plan.workers.len() as u32);
            // SAFETY: tiles name rows of their matrix and stages of the stream; dropping the tiles waits.
            unsafe { kernel.launch(&Launch::linear(tiles.len() as u32, 256), &arguments)? };
        }
        first += tiles.len();
    }
    device.synchronize()?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use plancher_program::gpu::{RowMajorBits, STAGE_ELEMENTS, Target};

    use super::super::kernel::Sizes;
    use super::*;

    /// What the kernel does with one tile, an element at a time.
    fn pack_tile(stream: &mut [u16], matrix: &[u16], tile: &Tile, stride: usize, padded: usize, workers: usize) {
        let share = padded / 8;
        for thread in 0..256 {
            let (warp, lane) = (thread / 32, thread % 32);
            let (row, first) = (lane / 4, warp * share + lane % 4 * 8);
            let piece = |row: usize, valid: bool, column: usize| -> [u16; 8] {
                let at = row * stride + column;
                if valid && column < stride { std::array::from_fn(|i| matrix[at + i]) } else { [0; 8] }
            };
            for pair in 0..if tile.half == 1 { share / 64 } else { share / 32 } {
                let column = first + pair * 32;
                let (low, high) = (tile.low as usize + row, tile.high as usize + row);
                let a = piece(low, row < tile.low_rows as usize, column);
                let b = if tile.half == 1 {
                    piece(low, row < tile.low_rows as usize, column + share / 2)
                } else {
                    piece(high, row < tile.high_rows as usize, column)
                };
                let stage = (tile.stage as usize + pair / 2) * workers + tile.worker as usize;
                let out = &mut stream[stage * STAGE_ELEMENTS + warp * 1024 + pair % 2 * 512 + lane * 8..];
                for (at, word) in [(0, 0), (4, 2), (256, 4), (260, 6)] {
                    out[at..at + 2].copy_from_slice(&a[word..word + 2]);
                    out[at + 2..at + 4].copy_from_slice(&b[word..word + 2]);
                }
            }
        }
    }

    #[test]
    fn tiles_are_packed_as_the_plan_says() {
        // Half tiles of one product and not of another; a row of gate and up alone; odd ends everywhere.
        let sizes = [
            Sizes { layers: 2, hidden: 72, heads: (8, 1), head_dim: 16, feed_forward: 200, vocab: 515 },
            Sizes { layers: 1, hidden: 1016, heads: (6, 2), head_dim: 24, feed_forward: 1048, vocab: 101 },
        ];
        for sizes in sizes {
            let target = Target { multiprocessors: 7, ..Target::h200(64) };
            let plan = Plan::new(&sizes.config(), target).expect("a plan");
            let workers = plan.workers.len();
            let mut stream = vec![u16::MAX; plan.stream_bytes() / 2];
            let mut matrices = std::collections::HashMap::new();
            for Matrix { product, layer, tiles } in tiles(&plan) {
                let of = plan.product(product);
                let (rows, stride) = (product.matrix_rows(&plan.shape), of.columns.next_multiple_of(64));
                let element =
                    |index: usize| if index % stride < of.columns { (index * 7 + layer) as u16 | 1 } else { 0 };
                let matrix: Vec<u16> = (0..rows * stride).map(element).collect();
                for tile in &tiles {
                    pack_tile(&mut stream, &matrix, tile, stride, of.padded, workers);
                }
                matrices.insert((product, layer), (matrix, stride));
            }
            let mut halves = 0;
            for (worker, list) in plan.workers.iter().enumerate() {
                for stage in 0..list.stages as usize {
                    let location = plan.locate(worker, stage).expect("a stage of the stream");
                    halves += usize::from(location.half);
                    let (elements, stride) = &matrices[&(location.product, location.layer)];
                    let expected = location.pack(RowMajorBits { elements, stride: *stride });
                    let at = plan.stage_offset(worker, stage) / 2;
                    assert!(stream[at..at + STAGE_ELEMENTS] == expected[..], "worker {worker}, {location:?}");
                }
            }
            assert_eq!(halves > 0, sizes.hidden > 512);
        }
    }
}
