//! Random matrices of every type, with scales of the size that trained weights have.

use half::f16;
use plancher_model::{DType, Scale, Tensor, TensorView};

/// A matrix with its bytes.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) tensor: Tensor,
    bytes: Vec<u8>,
}

impl Matrix {
    pub(crate) fn view(&self) -> TensorView<'_> {
        TensorView { tensor: &self.tensor, bytes: &self.bytes }
    }
}

/// A small generator: tests want speed and repeatability, nothing more.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// -1 … 1.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn vector(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.signed()).collect()
    }
}

/// Random elements: any bits are valid in quantised blocks but for their f16 scales, which are made small.
pub(crate) fn matrix(dtype: DType, rows: usize, columns: usize, random: &mut Random) -> Matrix {
    let row_bytes = dtype.row_bytes(columns).unwrap();
    let mut bytes: Vec<u8> = (0..rows * row_bytes).map(|_| random.bits() as u8).collect();
    let scales: &[usize] = match dtype {
        DType::Q8_0 | DType::Q4_0 | DType::Q5_0 => &[0],
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        _ => &[],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for &at in scales {
            block[at..at + 2].copy_from_slice(&f16::from_f32(0.01 * random.signed()).to_le_bytes());
        }
        match dtype {
            DType::F32 => block.copy_from_slice(&random.signed().to_le_bytes()),
            DType::F16 => block.copy_from_slice(&f16::from_f32(random.signed()).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.signed()).to_le_bytes()),
            // Not a number.
            DType::F8_E4M3 if block[0] & 0x7f == 0x7f => block[0] &= 0xf0,
            _ => {}
        }
    }
    let scale = if dtype == DType::F8_E4M3 {
        match random.bits() % 4 {
            0 => Scale::One,
            1 => Scale::Tensor(0.125 + random.signed().abs()),
            2 => Scale::Row(random.vector(rows)),
            _ => Scale::Block {
                block_rows: 128,
                block_columns: 128,
                values: random.vector(rows.div_ceil(128) * columns.div_ceil(128)),
            },
        }
    } else {
        Scale::One
    };
    let tensor = Tensor { name: "weights".to_owned(), dtype, rows, columns, file: 0, offset: 0, scale };
    Matrix { tensor, bytes }
}
