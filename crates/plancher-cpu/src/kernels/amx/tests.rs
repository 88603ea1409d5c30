//! Products by the driver with an emulated tile unit: the same blocking, on machines that have no tiles too.

use plancher_model::DType;
use proptest::prelude::*;

use super::unit::{SIDE, STEP_BYTES, Segment, Sums, TOKEN_BYTES, Unit};
use super::{MIN_TOKENS, Precision, avx512, multiply_with};
use crate::kernels::avx512::Parts;
use crate::kernels::input::{CHUNK, Input};
use crate::kernels::scalar;
use crate::kernels::tests::products::{assert_batch_is_right, batches, pack};
use crate::kernels::tests::random::{Matrix, Random, matrix};

/// What the unit does, in plain Rust.
struct Emulated;

type Tile = [[u8; 64]; SIDE];

/// # Safety
/// 16 rows of 64 bytes can be read.
unsafe fn load(start: *const u8, stride: usize) -> Tile {
    // SAFETY: the caller's promise.
    std::array::from_fn(|row| unsafe { start.add(row * stride).cast::<[u8; 64]>().read_unaligned() })
}

fn brain(row: &[u8; 64], element: usize) -> f32 {
    half::bf16::from_le_bytes([row[2 * element], row[2 * element + 1]]).to_f32()
}

impl Unit for Emulated {
    unsafe fn accumulate(&self, segments: &[Segment], token_tiles: usize, row_tiles: usize, sums: Sums) {
        assert!((1..=2).contains(&token_tiles) && (1..=2).contains(&row_tiles));
        for (token_tile, row_tile) in (0..token_tiles).flat_map(|t| (0..row_tiles).map(move |r| (t, r))) {
            let at = |m: usize, n: usize| {
                let index = (token_tile * SIDE + m) * sums.stride + row_tile * SIDE + n;
                // SAFETY: the caller's promise.
                unsafe { &mut *sums.start.add(index) }
            };
            let mut results = [[0.0_f32; SIDE]; SIDE];
            if !sums.fresh {
                results = std::array::from_fn(|m| std::array::from_fn(|n| *at(m, n)));
            }
            for segment in segments {
                assert!(segment.steps > 0);
                for step in 0..segment.steps {
                    // SAFETY: the caller's promise.
                    let (a, b) = unsafe {
                        let first = segment.input.add(token_tile * SIDE * TOKEN_BYTES + 64 * step);
                        (load(first, TOKEN_BYTES), load(segment.panels[row_tile].add(step * STEP_BYTES), 64))
                    };
                    for (m, results) in results.iter_mut().enumerate() {
                        for (n, sum) in results.iter_mut().enumerate() {
                            for (pair, b) in b.iter().enumerate() {
                                *sum += brain(&a[m], 2 * pair) * brain(b, 2 * n);
                                *sum += brain(&a[m], 2 * pair + 1) * brain(b, 2 * n + 1);
                            }
                        }
                    }
                }
            }
            for (m, results) in results.iter().enumerate() {
                for (n, &sum) in results.iter().enumerate() {
                    *at(m, n) = sum;
                }
            }
        }
    }
}

/// The rounded number and the rounded rest.
fn rounded(x: f32) -> [half::bf16; 2] {
    let high = half::bf16::from_f32(x);
    [high, half::bf16::from_f32(x - high.to_f32())]
}

/// As [`super::prepare`].
fn prepare(x: &[f32], tokens: usize, columns: usize, parts: usize) -> Input {
    let padded = tokens.next_multiple_of(SIDE);
    let mut input = Input::default();
    input.reset_parts(tokens, columns, padded, parts);
    for (t, x) in x.chunks_exact(columns).enumerate() {
        for (column, &x) in x.iter().enumerate() {
            for (part, x) in rounded(x).into_iter().take(parts).enumerate() {
                let chunk = (column / CHUNK * parts + part) * padded + t;
                input.parts[chunk].0[column % CHUNK] = x.to_bits();
            }
        }
    }
    input
}

/// As [`avx512::unpack_pairs`], through whole rows.
///
/// # Safety
/// As there.
unsafe fn unpack(dtype: DType, tile: &[u8], start: usize, steps: usize, panel: Parts) {
    let columns =
        (start + 32 * steps..=start + 1024).find(|&n| crate::kernels::layout::tile_bytes(dtype, n) == Some(tile.len()));
    let mut row = vec![0.0; columns.unwrap()];
    for r in 0..SIDE {
        scalar::unpack_row(dtype, tile, r, &mut row);
        for (column, &x) in row[start..start + 32 * steps].iter().enumerate() {
            let at = column / 2 * 64 + 4 * r + column % 2 * 2;
            let [high, low] = rounded(x).map(half::bf16::to_le_bytes);
            // SAFETY: the caller's promise.
            unsafe {
                panel.high.add(at).cast::<[u8; 2]>().write(high);
                if let Some(panel) = panel.low {
                    panel.add(at).cast::<[u8; 2]>().write(low);
                }
            }
        }
    }
}

fn multiply(matrix: &Matrix, tiles: &[u8], input: &Input, vectors: bool) -> Vec<f32> {
    let (dtype, rows) = (matrix.tensor.dtype, matrix.tensor.rows);
    let stride = rows + 3;
    let mut out = vec![f32::MAX; input.tokens * stride];
    let unpack = if vectors { avx512::unpack_pairs } else { unpack };
    // SAFETY: `out` has a whole row of `stride` for every token; vectors only where the machine has them.
    unsafe { multiply_with(&Emulated, unpack, dtype, tiles, rows, input, out.as_mut_ptr(), stride) };
    for row in out.chunks_exact(stride) {
        assert!(row[rows..].iter().all(|value| value.to_bits() == f32::MAX.to_bits()), "wrote beyond the rows");
    }
    out.chunks_exact(stride).flat_map(|row| row[..rows].to_vec()).collect()
}

fn has_vectors() -> bool {
    avx512::is_available() && avx512::has_bf16()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn emulated_products_are_right((dtype, rows, columns, tokens, seed) in batches()) {
        let mut random = Random(seed);
        let matrix = matrix(dtype, rows, columns, &mut random);
        let tiles = pack(&matrix);
        let x = random.vector(tokens * columns);
        let input = prepare(&x, tokens, columns, Precision::of(dtype).inputs);
        let plain = multiply(&matrix, &tiles, &input, false);
        assert_batch_is_right(&matrix, &tiles, &x, &plain)?;
        // Inputs prepared for other matrices as well have more parts.
        let both = prepare(&x, tokens, columns, 2);
        prop_assert!(plain == multiply(&matrix, &tiles, &both, false));
        if has_vectors() {
            let mut prepared = Input::default();
            // SAFETY: the machine has the instructions.
            unsafe { super::prepare(&x, tokens, columns, &[dtype], &mut prepared) };
            prop_assert!(super::is_prepared(dtype, &prepared));
            prop_assert!(prepared.parts.iter().map(|chunk| chunk.0).eq(input.parts.iter().map(|chunk| chunk.0)));
            assert_batch_is_right(&matrix, &tiles, &x, &multiply(&matrix, &tiles, &prepared, true))?;
        }
    }
}

/// A row's results are the same in any tile, and a token's in any batch.
#[test]
fn results_do_not_depend_on_neighbours() {
    let mut random = Random(1);
    let all = matrix(DType::F32, 48, 300, &mut random);
    let tiles = pack(&all);
    let x = random.vector(40 * 300);
    let whole = multiply(&all, &tiles, &prepare(&x, 40, 300, 2), false);
    let last = matrix(DType::F32, 16, 300, &mut random);
    let few =
        multiply(&last, &tiles[tiles.len() / 3 * 2..], &prepare(&x[..MIN_TOKENS * 300], MIN_TOKENS, 300, 2), false);
    for token in 0..MIN_TOKENS {
        assert_eq!(few[token * 16..][..16], whole[token * 48 + 32..][..16]);
    }
}
