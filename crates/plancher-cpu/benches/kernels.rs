//! How fast the kernels of this machine's instruction set stream weights (one token) and multiply (many tokens), a
//! type a line, on one thread: `cargo bench -p plancher-cpu --bench kernels [-- TYPE...]`.
//!
//! Weights are read from the second-level cache (512 KiB) and from memory (192 MiB); beside the latter stands a
//! plain read of the same bytes in the same run. Rates count packed bytes.

use std::hint::black_box;
use std::time::Instant;

use plancher_cpu::kernels::{Input, Kernels, TILE_ROWS};
use plancher_model::DType;
use plancher_program::TileLayout;

const COLUMNS: usize = 1536;
const CACHED: usize = 512 << 10;
const STREAMED: usize = 192 << 20;
const HUGE_PAGE: usize = 2 << 20;

fn main() {
    let kernels = match Kernels::detect() {
        Ok(kernels) => kernels,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut memory = vec![0_u8; STREAMED + HUGE_PAGE];
    let bytes = in_huge_pages(&mut memory);
    println!("{}, {COLUMNS} columns, one thread", kernels.isa());
    println!("type       cache GB/s  memory GB/s  plain read  fraction  8 tokens  64 tokens  256 tokens (GMAC/s)");
    for dtype in DType::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == dtype.name()) {
            continue;
        }
        let cached = decode_rate(kernels, dtype, &bytes[..CACHED]);
        // Interleaved, so that other load on the machine hits both.
        let (mut streamed, mut plain) = (0.0_f64, 0.0_f64);
        for _ in 0..3 {
            streamed = streamed.max(decode_rate(kernels, dtype, bytes));
            plain = plain.max(read_rate(bytes));
        }
        let products = [8, 64, 256].map(|tokens| multiply_rate(kernels, dtype, &bytes[..CACHED], tokens));
        println!(
            "{:9} {cached:11.1} {streamed:12.2} {plain:11.2} {:8.0}% {:9.1} {:10.1} {:11.1}",
            dtype.name(),
            100.0 * streamed / plain,
            products[0],
            products[1],
            products[2],
        );
    }
}

/// The aligned part of `memory`, filled, in huge pages where the system has them: as the runtime's weight streams.
fn in_huge_pages(memory: &mut [u8]) -> &[u8] {
    let start = memory.as_ptr().align_offset(HUGE_PAGE);
    let bytes = &mut memory[start..start + STREAMED];
    #[cfg(target_os = "linux")]
    // SAFETY: advice on memory that is ours.
    unsafe {
        libc::madvise(bytes.as_mut_ptr().cast(), bytes.len(), libc::MADV_HUGEPAGE);
    }
    bytes.fill(0x11);
    bytes
}

/// Calls `work` until 30 ms are over, at least twice; the time of the fastest call in seconds.
fn fastest(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::MAX;
    for round in 0.. {
        let before = Instant::now();
        work();
        best = best.min(before.elapsed().as_secs_f64());
        if round > 0 && start.elapsed().as_millis() > 30 {
            break;
        }
    }
    best
}

/// Whole tiles of `bytes`, and their rows.
fn tiles(kernels: Kernels, dtype: DType, bytes: &[u8]) -> (&[u8], usize) {
    let tile_bytes = kernels.tile_bytes(dtype, COLUMNS).expect("1536 is a multiple of 256");
    let n = bytes.len() / tile_bytes;
    (&bytes[..n * tile_bytes], n * TILE_ROWS)
}

fn prepared(kernels: Kernels, dtype: DType, tokens: usize) -> Input {
    let x: Vec<f32> = (0..tokens * COLUMNS).map(|i| (i % 251) as f32 / 125.0 - 1.0).collect();
    let mut input = Input::default();
    kernels.prepare(&x, tokens, COLUMNS, &[dtype], &mut input);
    input
}

fn product_time(kernels: Kernels, dtype: DType, bytes: &[u8], tokens: usize) -> (f64, usize) {
    let (tiles, rows) = tiles(kernels, dtype, bytes);
    let input = prepared(kernels, dtype, tokens);
    let mut out = vec![0.0_f32; tokens * rows];
    let time = fastest(|| {
        // SAFETY: `out` holds `rows` values a token.
        unsafe { kernels.multiply(dtype, black_box(tiles), rows, &input, out.as_mut_ptr(), rows) };
        black_box(&out);
    });
    (time, rows)
}

fn decode_rate(kernels: Kernels, dtype: DType, bytes: &[u8]) -> f64 {
    tiles(kernels, dtype, bytes).0.len() as f64 / product_time(kernels, dtype, bytes, 1).0 / 1e9
}

fn multiply_rate(kernels: Kernels, dtype: DType, bytes: &[u8], tokens: usize) -> f64 {
    let (time, rows) = product_time(kernels, dtype, bytes, tokens);
    (rows * COLUMNS * tokens) as f64 / time / 1e9
}

/// Reads all of `bytes` with as little arithmetic as the compiler allows.
fn read_rate(bytes: &[u8]) -> f64 {
    let (words, _) = bytes.as_chunks::<8>();
    let time = fastest(|| {
        let mut sums = [0_u64; 32];
        for group in black_box(words).chunks_exact(32) {
            for (sum, word) in sums.iter_mut().zip(group) {
                *sum ^= u64::from_le_bytes(*word);
            }
        }
        black_box(sums);
    });
    bytes.len() as f64 / time / 1e9
}
