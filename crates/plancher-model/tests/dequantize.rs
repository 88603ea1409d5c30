//! Every stored type against the values of the Python `gguf` package, bit for bit, and bounds that hold
//! for any bytes.

use plancher_model::testing::{Random, random_row};
use plancher_model::{DType, Scale, Tensor, TensorView, dequantize};
use proptest::prelude::*;

/// Bytes from hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn values_equal_the_gguf_packages() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("data/dequantize.json")).unwrap();
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::F8_E4M3) {
        let case = &golden[dtype.name()];
        let row = hex(case["bytes"].as_str().unwrap());
        let expected = hex(case["values"].as_str().unwrap());
        let mut out = vec![0.0f32; expected.len() / 4];
        dequantize(dtype, &row, &mut out);
        for (i, (value, expected)) in out.iter().zip(expected.chunks_exact(4)).enumerate() {
            let expected = f32::from_le_bytes(expected.try_into().unwrap());
            assert_eq!(value.to_bits(), expected.to_bits(), "{dtype} element {i}: {value} is not {expected}");
        }
    }
}

/// A tensor of `rows` random rows.
fn tensor(dtype: DType, rows: usize, columns: usize, scale: Scale) -> (Tensor, Vec<u8>) {
    let mut random = Random::new(7);
    let bytes = (0..rows).flat_map(|_| random_row(dtype, columns, &mut random)).collect();
    let name = "weight".to_owned();
    (Tensor { name, dtype, rows, columns, file: 0, offset: 0, scale }, bytes)
}

#[test]
fn scales_multiply_what_they_cover() {
    let (rows, columns) = (5, 7);
    let block = Scale::Block { block_rows: 2, block_columns: 3, values: (1u8..=9).map(f32::from).collect() };
    let factor = |scale: &Scale, row: usize, column: usize| match scale {
        Scale::One => 1.0,
        Scale::Tensor(factor) => *factor,
        Scale::Row(factors) => factors[row],
        Scale::Block { values, .. } => values[row / 2 * 3 + column / 3],
    };
    for scale in [Scale::One, Scale::Tensor(0.5), Scale::Row(vec![1.0, 2.0, 3.0, 4.0, 5.0]), block] {
        let (tensor, bytes) = tensor(DType::F8_E4M3, rows, columns, scale);
        let view = TensorView { tensor: &tensor, bytes: &bytes };
        for row in 0..rows {
            let (mut plain, mut out) = (vec![0.0; columns], vec![0.0; columns]);
            dequantize(tensor.dtype, view.row(row), &mut plain);
            view.dequantize_row(row, &mut out);
            for column in 0..columns {
                let expected = plain[column] * factor(&tensor.scale, row, column);
                assert!((out[column] - expected).abs() <= f32::EPSILON * expected.abs(), "({row}, {column})");
            }
        }
    }
}

#[test]
fn random_rows_are_finite_and_not_constant() {
    for dtype in DType::ALL {
        let mut out = vec![0.0f32; 512];
        dequantize(dtype, &random_row(dtype, 512, &mut Random::new(1)), &mut out);
        assert!(out.iter().all(|value| value.is_finite() && value.abs() < 8.0), "{dtype}");
        let mean_square = out.iter().map(|value| value * value).sum::<f32>() / 512.0;
        assert!(mean_square > 0.01, "{dtype}: {mean_square}");
    }
}

proptest! {
    /// Whatever the bytes, a row comes out whole, and depends on its own block only.
    #[test]
    fn any_bytes_dequantize(dtype in prop::sample::select(&DType::ALL[..]), seed: u64, blocks in 1usize..4) {
        let columns = blocks * dtype.block_elements();
        let mut random = Random::new(seed);
        let bytes: Vec<u8> = (0..blocks * dtype.block_bytes()).map(|_| random.bits() as u8).collect();
        let mut out = vec![f32::MAX; columns];
        dequantize(dtype, &bytes, &mut out);
        for block in 0..blocks {
            let mut alone = vec![0.0; dtype.block_elements()];
            dequantize(dtype, &bytes[block * dtype.block_bytes()..][..dtype.block_bytes()], &mut alone);
            let together = &out[block * dtype.block_elements()..][..dtype.block_elements()];
            for (a, b) in alone.iter().zip(together) {
                prop_assert!(a.to_bits() == b.to_bits());
                prop_assert!(b.to_bits() != f32::MAX.to_bits());
            }
        }
    }
}
