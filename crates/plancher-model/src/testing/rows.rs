//! Random rows in every stored type: random bits for the elements, sane numbers where scales are.

use half::{bf16, f16};

use crate::DType;

/// A small deterministic generator (`SplitMix64`), so that tests need no crate for it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose sequence depends on `seed` only.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number between `low` and `high`.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// An index below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
}

/// A valid row of `columns` elements of `dtype`, of magnitudes around 1.
///
/// # Panics
/// When `columns` is not a whole number of blocks.
#[must_use]
pub fn random_row(dtype: DType, columns: usize, random: &mut Random) -> Vec<u8> {
    let length = dtype.row_bytes(columns).expect("columns are a whole number of blocks");
    let mut row: Vec<u8> = std::iter::repeat_with(|| random.bits() as u8).take(length).collect();
    for block in row.chunks_exact_mut(dtype.block_bytes()) {
        match dtype {
            DType::F32 => block.copy_from_slice(&random.between(-1.0, 1.0).to_le_bytes()),
            DType::F16 => block.copy_from_slice(&f16::from_f32(random.between(-1.0, 1.0)).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&bf16::from_f32(random.between(-1.0, 1.0)).to_le_bytes()),
            // No code above 1.875: keeps out the not-a-number ones.
            DType::F8_E4M3 => block[0] &= 0xbf,
            // The largest element is about 2 in each: scales are 2 over the largest product of integers.
            DType::Q8_0 => scales(block, &[0], 2.0 / 128.0, random),
            DType::Q4_0 => scales(block, &[0], 2.0 / 8.0, random),
            DType::Q4_1 => scales(block, &[0, 2], 2.0 / 16.0, random),
            DType::Q5_0 => scales(block, &[0], 2.0 / 16.0, random),
            DType::Q5_1 => scales(block, &[0, 2], 2.0 / 32.0, random),
            DType::Q2_K => scales(block, &[80, 82], 2.0 / 48.0, random),
            DType::Q3_K => scales(block, &[108], 2.0 / 128.0, random),
            DType::Q4_K => scales(block, &[0, 2], 2.0 / 1024.0, random),
            DType::Q5_K => scales(block, &[0, 2], 2.0 / 2048.0, random),
            DType::Q6_K => scales(block, &[208], 2.0 / 4096.0, random),
        }
    }
    row
}

/// Puts half-precision numbers of either sign, up to `largest`, at `offsets`.
fn scales(block: &mut [u8], offsets: &[usize], largest: f32, random: &mut Random) {
    for &offset in offsets {
        let scale = f16::from_f32(random.between(-largest, largest));
        block[offset..offset + 2].copy_from_slice(&scale.to_le_bytes());
    }
}

/// `values` as a stored row of `dtype`: F32, F16, BF16 or `Q8_0` (rounded as GGML's `quantize_row_q8_0_ref`).
///
/// # Panics
/// When `dtype` is another type, or `values` are not whole blocks.
#[must_use]
pub fn encode_row(dtype: DType, values: &[f32]) -> Vec<u8> {
    assert!(values.len().is_multiple_of(dtype.block_elements()), "{} elements of {dtype}", values.len());
    match dtype {
        DType::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        DType::Q8_0 => values.chunks_exact(32).flat_map(q8_0_block).collect(),
        other => panic!("no encoder of {other}"),
    }
}

fn q8_0_block(values: &[f32]) -> Vec<u8> {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
    let mut block = f16::from_f32(scale).to_le_bytes().to_vec();
    block.extend(values.iter().map(|value| ((value * inverse).round() as i8).cast_unsigned()));
    block
}
