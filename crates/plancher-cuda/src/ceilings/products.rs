//! Rates of large matrix products by the vendor's library, with random numbers: zeros run faster.

use half::bf16;
use serde::Serialize;

use super::Effort;
use super::statistics::median;
use crate::{
    Compiler, Device, DeviceBuffer, Element, Matmul, MatmulChoice, Output, Product, ProductF32, Result,
    device_milliseconds,
};

/// What is multiplied. Sums are in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    /// bf16, on the tensor cores.
    Bf16,
    /// f32 throughout, without tensor cores.
    F32,
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// A measured rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProductRate {
    /// Of what.
    pub number: Number,
    /// All three sides.
    pub size: usize,
    /// Median, in 1e12 operations a second; a product has `2 * size³`.
    pub tflop_per_s: f64,
    /// The samples.
    pub samples: Vec<f64>,
    /// By which library.
    pub library: String,
}

/// Measures the sizes at which the library is at its best; nothing where there is no library, or with the least effort:
/// tools that look for errors do not cope with that library's kernels.
pub(super) fn measure(device: &Device, compiler: &Compiler, effort: Effort) -> Result<Vec<ProductRate>> {
    if effort == Effort::LEAST {
        return Ok(Vec::new());
    }
    let Ok(mut matmul) = Matmul::new(device, compiler, MatmulChoice::CublasLt) else { return Ok(Vec::new()) };
    let mut rates = Vec::new();
    for (number, size) in [(Number::Bf16, 4096), (Number::Bf16, 8192), (Number::F32, 4096)] {
        rates.push(rate(device, &mut matmul, number, size, effort)?);
    }
    Ok(rates)
}

fn rate(device: &Device, matmul: &mut Matmul, number: Number, size: usize, effort: Effort) -> Result<ProductRate> {
    let bytes = size * size * if number == Number::Bf16 { 2 } else { 4 };
    let (x, weight) = (random(device, number, bytes, 1)?, random(device, number, bytes, 2)?);
    // Not read before it is written: any contents will do, and these are no numbers.
    let mut out = DeviceBuffer::<u8>::uninitialized(device, bytes)?;
    out.fill_bytes(0xff)?;
    let product =
        Product { element: Element::Bf16, rows: size, columns: size, out_stride: size, output: Output::Elements };
    let square = ProductF32 { m: size, rows: size, columns: size, transposed: true };
    let mut once = || {
        let (x, weight, out) = (x.pointer(), weight.pointer(), out.pointer());
        // SAFETY: three square matrices of this size, which live until the end of this function; what is timed is
        // waited for.
        unsafe {
            match number {
                Number::Bf16 => matmul.multiply(&product, size, x, weight, out),
                Number::F32 => matmul.multiply_f32(square, x, weight, out),
            }
        }
    };
    once()?;
    device.synchronize()?;
    // Some tens of milliseconds a sample.
    let times = match number {
        Number::Bf16 => (16_384 / size).pow(2),
        Number::F32 => 8,
    };
    let mut samples = Vec::new();
    for _ in 0..effort.samples.max(1) {
        let milliseconds = device_milliseconds(device, || (0..times).try_for_each(|_| once()))?;
        samples.push(2.0 * (size as f64).powi(3) * times as f64 / milliseconds / 1e9);
    }
    let tflop_per_s = median(samples.clone()).unwrap_or(0.0);
    Ok(ProductRate { number, size, tflop_per_s, samples, library: matmul.name() })
}

/// A matrix of numbers between -1 and 1.
fn random(device: &Device, number: Number, bytes: usize, seed: u32) -> Result<DeviceBuffer<u8>> {
    let mut state = seed;
    // A linear congruential generator's upper bits do for this.
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 16) as u16) / 32_768.0 - 1.0
    };
    let mut buffer = DeviceBuffer::uninitialized(device, bytes)?;
    // 16 MiB of them, as often as it takes.
    let piece: Vec<u8> = match number {
        Number::Bf16 => (0..8 << 20).flat_map(|_| bf16::from_f32(next()).to_le_bytes()).collect(),
        Number::F32 => (0..4 << 20).flat_map(|_| next().to_le_bytes()).collect(),
    };
    for at in (0..bytes).step_by(piece.len()) {
        buffer.upload(at, &piece[..piece.len().min(bytes - at)])?;
    }
    Ok(buffer)
}
