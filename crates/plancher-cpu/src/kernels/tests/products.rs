//! Matrix products.

use plancher_model::DType;
use plancher_program::TileLayout;
use proptest::prelude::*;

use super::random::{Matrix, Random, matrix};
use crate::HugeBuffer;
use crate::kernels::{Input, Isa, Kernels, SharedChunks, TILE_ROWS, layout};

pub(in crate::kernels) fn pack(matrix: &Matrix) -> Vec<u8> {
    let kernels = Kernels::with_isa(Isa::Scalar).unwrap();
    let (dtype, rows, columns) = (matrix.tensor.dtype, matrix.tensor.rows, matrix.tensor.columns);
    let tile_bytes = kernels.tile_bytes(dtype, columns).unwrap();
    let mut tiles = vec![0xAA; rows.div_ceil(TILE_ROWS) * tile_bytes];
    for (i, tile) in tiles.chunks_exact_mut(tile_bytes).enumerate() {
        kernels.pack_tile(&matrix.view(), i * TILE_ROWS, tile);
    }
    tiles
}

/// `(tokens, rows)`, computed into a wider output whose other elements must stay as they were.
pub(super) fn multiply(isa: Isa, matrix: &Matrix, tiles: &[u8], x: &[f32], tokens: usize) -> Vec<f32> {
    multiply_tiles(isa, matrix.tensor.dtype, tiles, matrix.tensor.rows, x, tokens)
}

fn multiply_tiles(isa: Isa, dtype: DType, tiles: &[u8], rows: usize, x: &[f32], tokens: usize) -> Vec<f32> {
    let kernels = Kernels::with_isa(isa).unwrap();
    let columns = x.len() / tokens;
    let mut input = Input::default();
    kernels.prepare(x, tokens, columns, &[dtype], &mut input);
    let stride = rows + 3;
    let mut out = vec![f32::MAX; tokens * stride];
    // SAFETY: `out` has a whole row of `stride` for every token.
    unsafe { kernels.multiply(dtype, tiles, rows, &input, out.as_mut_ptr(), stride) };
    let (values, rest): (Vec<&[f32]>, Vec<&[f32]>) = out.chunks_exact(stride).map(|row| row.split_at(rows)).unzip();
    assert!(rest.concat().iter().all(|value| value.to_bits() == f32::MAX.to_bits()), "wrote beyond the rows");
    values.concat()
}

fn shapes() -> impl Strategy<Value = (DType, usize, usize, usize, u64)> {
    (prop::sample::select(DType::ALL.to_vec()), 1_usize..40, 1_usize..4, 1_usize..12, 1_usize..600, any::<u64>())
        .prop_map(|(dtype, rows, blocks, tokens, columns, seed)| {
            let columns = match dtype.block_elements() {
                1 => columns,
                32 => 32 * (columns / 32 + 1),
                block => block * blocks,
            };
            (dtype, rows, columns, tokens, seed)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Packing loses nothing.
    #[test]
    fn unpacked_rows_are_the_stored_rows((dtype, rows, columns, _, seed) in shapes()) {
        let matrix = matrix(dtype, rows, columns, &mut Random(seed));
        let tiles = pack(&matrix);
        let kernels = Kernels::with_isa(Isa::Scalar).unwrap();
        let tile_bytes = kernels.tile_bytes(dtype, columns).unwrap();
        let (mut unpacked, mut stored) = (vec![0.0; columns], vec![0.0; columns]);
        for row in 0..rows.next_multiple_of(TILE_ROWS) {
            let tile = &tiles[row / TILE_ROWS * tile_bytes..][..tile_bytes];
            kernels.unpack_row(dtype, tile, row % TILE_ROWS, &mut unpacked);
            if row < rows {
                matrix.view().dequantize_row(row, &mut stored);
                for (unpacked, stored) in unpacked.iter().zip(&stored) {
                    prop_assert!((unpacked - stored).abs() <= 1e-6 * stored.abs(), "{} {}", unpacked, stored);
                }
            } else {
                prop_assert!(unpacked.iter().all(|&value| value == 0.0));
            }
        }
    }

    /// The scalar product differs from the exact one by no more than rounding the input to 8 bits allows (half a
    /// step of every block of 32), or for plain types than f32 sums allow.
    #[test]
    fn scalar_products_are_right((dtype, rows, columns, tokens, seed) in shapes()) {
        let mut random = Random(seed);
        let matrix = matrix(dtype, rows, columns, &mut random);
        let x = random.vector(tokens * columns);
        let out = multiply(Isa::Scalar, &matrix, &pack(&matrix), &x, tokens);
        let mut weights = vec![0.0; columns];
        for row in 0..rows {
            matrix.view().dequantize_row(row, &mut weights);
            for (token, x) in x.chunks_exact(columns).enumerate() {
                let (mut exact, mut bound) = (0.0, 0.0);
                for (weights, x) in weights.chunks(32).zip(x.chunks(32)) {
                    let half_step = x.iter().fold(0.0_f32, |m, x| m.max(x.abs())) / 254.0;
                    for (&w, &x) in weights.iter().zip(x) {
                        let (w, x) = (f64::from(w), f64::from(x));
                        exact += w * x;
                        bound += 1e-5 * (w * x).abs() + 1e-7;
                        if dtype.is_quantized() {
                            bound += 1.0001 * w.abs() * f64::from(half_step);
                        }
                    }
                }
                let value = f64::from(out[token * rows + row]);
                prop_assert!((value - exact).abs() <= bound, "{} {} {}", value, exact, bound);
            }
        }
    }
}

/// Instruction sets of this machine beside the reference.
pub(super) fn others() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|&isa| isa != Isa::Scalar && isa.is_available()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Inputs that several prepare, each some tokens and columns, give the bits of inputs prepared at once.
    #[test]
    fn shared_inputs_have_the_same_bits(blocks in 1_usize..20, tokens in 1_usize..9, cut in 0_usize..20, seed in any::<u64>()) {
        let mut random = Random(seed);
        let columns = 32 * blocks;
        let matrix = matrix(DType::Q8_0, 40, columns, &mut random);
        let (tiles, x) = (pack(&matrix), random.vector(tokens * columns));
        let cut = 32 * cut.min(blocks);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let kernels = Kernels::with_isa(isa).unwrap();
            let memory = HugeBuffer::new(SharedChunks::bytes(tokens, columns).unwrap()).unwrap();
            let (mut input, mut out) = (Input::default(), vec![0.0; tokens * 40]);
            // SAFETY: the memory is zeroed, aligned and large enough, and touched by nobody else; `out` holds 40
            // rows a token.
            unsafe {
                let chunks = SharedChunks::new(memory.as_ptr(), tokens, columns);
                for (token, x) in x.chunks_exact(columns).enumerate().rev() {
                    kernels.prepare_shared(&x[cut..], chunks, token, cut);
                    kernels.prepare_shared(&x[..cut], chunks, token, 0);
                }
                input.share(chunks);
                kernels.multiply(DType::Q8_0, &tiles, 40, &input, out.as_mut_ptr(), 40);
            }
            prop_assert_eq!(&out, &multiply(Isa::Scalar, &matrix, &tiles, &x, tokens), "{}", isa);
        }
    }

    /// Quantised products have the bits of the reference, alone or in batches; plain ones are as close as the order
    /// of additions allows.
    #[test]
    fn instruction_sets_agree((dtype, rows, columns, tokens, seed) in shapes()) {
        let mut random = Random(seed);
        let matrix = matrix(dtype, rows, columns, &mut random);
        let tiles = pack(&matrix);
        let x = random.vector(tokens * columns);
        let reference = multiply(Isa::Scalar, &matrix, &tiles, &x, tokens);
        for isa in others() {
            let out = multiply(isa, &matrix, &tiles, &x, tokens);
            if dtype.is_quantized() {
                prop_assert_eq!(&out, &reference);
                continue;
            }
            let mut weights = vec![0.0; columns];
            for row in 0..rows {
                Kernels::with_isa(isa).unwrap().unpack_row(
                    dtype,
                    &tiles[row / TILE_ROWS * (tiles.len() / rows.div_ceil(TILE_ROWS))..]
                        [..tiles.len() / rows.div_ceil(TILE_ROWS)],
                    row % TILE_ROWS,
                    &mut weights,
                );
                for token in 0..tokens {
                    let x = &x[token * columns..(token + 1) * columns];
                    let magnitude: f32 = weights.iter().zip(x).map(|(w, x)| (w * x).abs()).sum();
                    let (value, expected) = (out[token * rows + row], reference[token * rows + row]);
                    prop_assert!((value - expected).abs() <= 1e-6 * magnitude, "{} {}", value, expected);
                }
            }
        }
    }
}

/// The largest and smallest quants times the largest inputs: no intermediate sum may overflow or saturate.
#[test]
fn extreme_quants_agree() {
    let columns = 512;
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_quantized()) {
        let tile_bytes = layout::tile_bytes(dtype, columns).unwrap();
        for byte in [0x00, 0x7F, 0x80, 0xFF] {
            let mut tile = vec![byte; tile_bytes];
            for block in 0..columns / dtype.block_elements() {
                // Scales that are numbers.
                tile[layout::block_offsets(dtype, block).0..][..layout::header_bytes(dtype)].fill(0x11);
            }
            for x in [vec![1.0; 5 * columns], vec![-1.0; 5 * columns]] {
                for tokens in [1, 5] {
                    let product = |isa| multiply_tiles(isa, dtype, &tile, TILE_ROWS, &x[..tokens * columns], tokens);
                    let reference = product(Isa::Scalar);
                    for isa in others() {
                        assert_eq!(product(isa), reference, "{isa} {dtype} {byte:#x}");
                    }
                }
            }
        }
    }
}

/// Shapes with many tokens.
pub(in crate::kernels) fn batches() -> impl Strategy<Value = (DType, usize, usize, usize, u64)> {
    (shapes(), 16_usize..80).prop_map(|((dtype, rows, columns, _, seed), tokens)| (dtype, rows, columns, tokens, seed))
}

/// Asserts that `(tokens, rows)` products are as close to the exact ones as bf16 parts of inputs and weights allow.
/// One part has eight bits, so that rounding is off by one 512th at most; two parts have sixteen.
pub(in crate::kernels) fn assert_batch_is_right(
    matrix: &Matrix,
    tiles: &[u8],
    x: &[f32],
    out: &[f32],
) -> Result<(), TestCaseError> {
    let (dtype, rows, columns) = (matrix.tensor.dtype, matrix.tensor.rows, matrix.tensor.columns);
    let relative = match dtype {
        dtype if dtype.is_quantized() => 2.0 / 500.0,
        _ => 4e-5,
    };
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    let mut weights = vec![0.0; columns];
    for row in 0..rows {
        let tile = &tiles[row / TILE_ROWS * tile_bytes..][..tile_bytes];
        Kernels::with_isa(Isa::Scalar).unwrap().unpack_row(dtype, tile, row % TILE_ROWS, &mut weights);
        for (token, x) in x.chunks_exact(columns).enumerate() {
            let products = weights.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (exact, magnitude) = products.fold((0.0, 0.0), |(sum, all), p| (sum + p, all + p.abs()));
            let value = f64::from(out[token * rows + row]);
            prop_assert!((value - exact).abs() <= relative * magnitude + 1e-9, "{} {} {}", dtype, value, exact);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many tokens at once, where the tile unit has its own kernels.
    #[test]
    fn batches_are_right((dtype, rows, columns, tokens, seed) in batches()) {
        if !Isa::Amx.is_available() {
            return Ok(());
        }
        let mut random = Random(seed);
        let matrix = matrix(dtype, rows, columns, &mut random);
        let tiles = pack(&matrix);
        let x = random.vector(tokens * columns);
        assert_batch_is_right(&matrix, &tiles, &x, &multiply(Isa::Amx, &matrix, &tiles, &x, tokens))?;
    }
}
