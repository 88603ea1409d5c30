//! Where weights lie: each in one stream once, and in the order in which the kernel reads them.

use std::collections::HashMap;

use plancher_program::gpu::{Operation, Plan, Product, RowMajorBits, STAGE_ELEMENTS};
use proptest::prelude::*;

use crate::common::Recipe;
use crate::{plans, recipe, target};

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_in_one_stream_once(plan in plans()) {
        let mut seen: HashMap<(Product, usize), Vec<u8>> = HashMap::new();
        for (worker, list) in plan.workers.iter().enumerate() {
            for stage in 0..list.stages as usize {
                let location = plan.locate(worker, stage).expect("a stage of the stream");
                let (_, columns) = location.product.size(&plan.shape);
                let rows = location.product.matrix_rows(&plan.shape);
                let elements = seen.entry((location.product, location.layer)).or_insert_with(|| vec![0; rows * columns]);
                for source in (0..STAGE_ELEMENTS).filter_map(|index| location.source(index)) {
                    prop_assert!(source.row < rows && source.column < columns);
                    elements[source.row * columns + source.column] += 1;
                }
            }
            prop_assert_eq!(plan.locate(worker, list.stages as usize), None);
        }
        prop_assert_eq!(seen.len(), 4 * plan.shape.layers + 1);
        for ((product, layer), elements) in seen {
            prop_assert!(elements.iter().all(|&times| times == 1), "{} of layer {}", product, layer);
        }
    }
}

/// The bytes of a tile as the kernel's author wrote them down: fragment by fragment.
fn written_out(row: impl Fn(usize, usize) -> u16, half: bool, padded: usize) -> Vec<u16> {
    let k8 = padded / 8;
    let fragments = if half { k8 / 32 } else { k8 / 16 };
    let mut tile = vec![0; 8 * fragments * 256];
    for warp in 0..8 {
        for pair in 0..fragments / 2 {
            for lane in 0..32 {
                let (g, j) = (lane >> 2, lane & 3);
                for odd in 0..2 {
                    let at = 8 * j + 4 * odd;
                    let c = warp * k8 + 32 * pair + at;
                    let words = if half {
                        [(g, c), (g, c + k8 / 2), (g, c + 2), (g, c + k8 / 2 + 2)]
                    } else {
                        [(g, c), (g + 8, c), (g, c + 2), (g + 8, c + 2)]
                    };
                    // Stages of four fragments a warp.
                    let fragment = 2 * pair + odd;
                    let start = fragment / 4 * STAGE_ELEMENTS + warp * 1024 + fragment % 4 * 256 + lane * 8;
                    for (word, (r, column)) in words.into_iter().enumerate() {
                        tile[start + 2 * word] = row(r, column);
                        tile[start + 2 * word + 1] = row(r, column + 1);
                    }
                }
            }
        }
    }
    tile
}

#[test]
fn a_packed_tile_is_what_the_kernel_reads() {
    // 24 rows of 1000 columns for one worker: a full tile, a half tile, and columns beyond the end.
    let config = Recipe { vocab: 24, ..recipe(1, 1, 1, 8, 1000, 40) }.config();
    let plan = Plan::new(&config, target(1)).expect("planned");
    let element = |row: usize, column: usize| (row * 1009 + column + 1) as u16;
    let matrix = |rows: usize, columns: usize, stride: usize| -> Vec<u16> {
        (0..rows * stride)
            .map(|i| if i % stride < columns { element(i / stride, i % stride) } else { 0xdead })
            .collect()
    };
    let packed = |operation: Operation, product: Product, stride: usize| -> Vec<u16> {
        let (_, columns) = product.size(&plan.shape);
        let elements = matrix(product.matrix_rows(&plan.shape), columns, stride);
        let list = &plan.workers[0];
        let index = list.instructions.iter().position(|i| i.operation == operation).expect("an instruction");
        let first = list.first_stages[index] as usize;
        let stages = first..first + list.instructions[index].stages as usize;
        let matrix = RowMajorBits { elements: &elements, stride };
        stages.flat_map(|stage| plan.locate(0, stage).expect("a stage").pack(matrix)).collect()
    };
    let head =
        |first: usize| move |row: usize, column: usize| if column < 1000 { element(first + row, column) } else { 0 };
    let expected = [written_out(head(0), false, 1024), written_out(head(16), true, 1024)].concat();
    assert_eq!(packed(Operation::Head, Product::Head, 1024), expected);

    // Gate rows and the same up rows share a tile.
    let pairs = |first: usize| {
        move |row: usize, column: usize| match (row, column) {
            (_, 1000..) => 0,
            (0..8, _) => element(first + row, column),
            _ => element(40 + first + row - 8, column),
        }
    };
    let expected: Vec<_> = (0..5).flat_map(|tile| written_out(pairs(8 * tile), false, 1024)).collect();
    assert_eq!(packed(Operation::GateUp, Product::GateUp, 1000), expected);

    // 1000 rows in units of 16 (40 columns are no whole stages of half tiles): the last tile is cut short.
    let down = |tile: usize| {
        move |row: usize, column: usize| {
            if column < 40 && 16 * tile + row < 1000 { element(16 * tile + row, column) } else { 0 }
        }
    };
    let expected: Vec<_> = (0..63).flat_map(|tile| written_out(down(tile), false, 512)).collect();
    assert_eq!(packed(Operation::Down, Product::Down, 40), expected);
}
