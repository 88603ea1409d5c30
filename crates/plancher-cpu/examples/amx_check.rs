//! Whether AMX works on this machine, and what it is worth: products of random weights of every type beside the
//! exact ones, then multiply-adds a second on one thread with AMX and with AVX-512. Fails where a product is wrong.
//!
//! `amx_check [TYPE...]` says for which types speed is measured; without AMX only the available kernels are checked.

use std::hint::black_box;
use std::time::Instant;

use plancher_cpu::kernels::{Input, Isa, Kernels, TILE_ROWS};
use plancher_model::DType;
use plancher_program::TileLayout;

#[path = "../src/kernels/tests/random.rs"]
mod random;
use random::{Matrix, Random, matrix};

const TOKENS: [usize; 3] = [64, 256, 512];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut kernels = Vec::new();
    for isa in [Isa::Avx512, Isa::Amx] {
        println!("{isa}: {}", if isa.is_available() { "available" } else { "not available" });
        kernels.extend(Kernels::with_isa(isa));
    }
    println!("\n103 rows, 1,792 columns; error / sum of |weight * input|, the largest of all results");
    let names: Vec<String> = kernels.iter().map(|kernels| format!("{:>9}", kernels.isa().name())).collect();
    println!("type      tokens  {}", names.concat());
    let mut wrong = 0;
    for dtype in DType::ALL {
        // Rounding of single elements, to 8 bits at the worst, averages out over the columns.
        let limit = if dtype.is_quantized() { 1e-3 } else { 4e-5 };
        for tokens in [1, 15, 16, 33, 64, 77] {
            let matrix = matrix(dtype, 103, 1792, &mut Random(tokens as u64));
            print!("{:9} {tokens:6}  ", dtype.name());
            for &kernels in &kernels {
                let error = error(kernels, &matrix, tokens);
                print!(" {error:8.1e}");
                if error.is_nan() || error > limit {
                    print!(" (wrong)");
                    wrong += 1;
                }
            }
            println!();
        }
    }
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        wanted = [DType::Q4_1, DType::Q8_0, DType::Q6_K, DType::BF16].map(|dtype| dtype.name().to_owned()).to_vec();
    }
    println!("\nGMAC/s on one thread, 256 rows, 1,536 columns; with the preparation of inputs in parentheses");
    for dtype in DType::ALL.into_iter().filter(|dtype| wanted.iter().any(|name| name == dtype.name())) {
        for tokens in TOKENS {
            print!("{:9} {tokens:4} tokens", dtype.name());
            for &kernels in &kernels {
                let [product, both] = rates(kernels, dtype, tokens);
                print!("   {} {product:7.1} ({both:.1})", kernels.isa());
            }
            println!();
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} products are wrong").into());
    }
    println!("\nall products are right");
    Ok(())
}

fn pack(kernels: Kernels, matrix: &Matrix) -> Vec<u8> {
    let (dtype, rows, columns) = (matrix.tensor.dtype, matrix.tensor.rows, matrix.tensor.columns);
    let tile_bytes = kernels.tile_bytes(dtype, columns).expect("whole blocks");
    let mut tiles = vec![0; rows.div_ceil(TILE_ROWS) * tile_bytes];
    for (i, tile) in tiles.chunks_exact_mut(tile_bytes).enumerate() {
        kernels.pack_tile(&matrix.view(), i * TILE_ROWS, tile);
    }
    tiles
}

/// The largest error of a product.
fn error(kernels: Kernels, matrix: &Matrix, tokens: usize) -> f64 {
    let (dtype, rows, columns) = (matrix.tensor.dtype, matrix.tensor.rows, matrix.tensor.columns);
    let tiles = pack(kernels, matrix);
    let x = Random(7).vector(tokens * columns);
    let mut input = Input::default();
    kernels.prepare(&x, tokens, columns, &[dtype], &mut input);
    let mut out = vec![f32::NAN; tokens * rows];
    // SAFETY: `out` holds `rows` values a token.
    unsafe { kernels.multiply(dtype, &tiles, rows, &input, out.as_mut_ptr(), rows) };
    let mut largest = 0.0_f64;
    let mut weights = vec![0.0; columns];
    for row in 0..rows {
        matrix.view().dequantize_row(row, &mut weights);
        for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact(rows)) {
            let products = weights.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (exact, magnitude) = products.fold((0.0, 0.0), |(sum, all), p| (sum + p, all + p.abs()));
            let error = (f64::from(out[row]) - exact).abs() / magnitude;
            if error.is_nan() {
                return f64::NAN;
            }
            largest = largest.max(error);
        }
    }
    largest
}

/// The product's multiply-adds a second, and those with preparing its input, in 10^9.
fn rates(kernels: Kernels, dtype: DType, tokens: usize) -> [f64; 2] {
    let (rows, columns) = (256, 1536);
    let tiles = pack(kernels, &matrix(dtype, rows, columns, &mut Random(3)));
    let x = Random(5).vector(tokens * columns);
    let mut input = Input::default();
    let mut out = vec![0.0_f32; tokens * rows];
    let (mut product, mut both) = (f64::MAX, f64::MAX);
    let began = Instant::now();
    while began.elapsed().as_millis() < 300 {
        let start = Instant::now();
        kernels.prepare(&x, tokens, columns, &[dtype], &mut input);
        let prepared = Instant::now();
        // SAFETY: `out` holds `rows` values a token.
        unsafe { kernels.multiply(dtype, black_box(&tiles), rows, &input, out.as_mut_ptr(), rows) };
        black_box(&out);
        product = product.min(prepared.elapsed().as_secs_f64());
        both = both.min(start.elapsed().as_secs_f64());
    }
    [product, both].map(|time| (rows * columns * tokens) as f64 / time / 1e9)
}
