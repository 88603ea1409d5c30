//! How fast prefill runs on this GPU, with dummy weights:
//! `prefill_speed [SHAPE] [TOKENS] [CHUNK] [auto|own]`, by default `llama-3.1-8b 2048 2048 auto`.
//!
//! Beside the whole, each product of the first layer is timed alone, and a large product as the ceiling.

use std::sync::Arc;
use std::time::Instant;

use plancher_cuda::{
    Compiler, Device, DeviceBuffer, DeviceWeights, Element, KvCache, LoadOptions, Matmul, MatmulChoice, Output,
    Prefill, PrefillLogits, Product, Result, device_milliseconds, padded,
};
use plancher_model::{DummyFill, Model, ModelConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or_else(|| default.to_owned());
    let shape = argument(0, "llama-3.1-8b");
    let tokens: usize = argument(1, "2048").parse()?;
    let chunk: usize = argument(2, "2048").parse()?;
    let choice = if argument(3, "auto") == "own" { MatmulChoice::Own } else { MatmulChoice::Auto };

    let device = Device::open(0)?;
    let compiler = Compiler::find()?;
    let model = Model::dummy(&shape, DummyFill::Vectors)?;
    let start = Instant::now();
    let options = LoadOptions { positions: Some(tokens), ..LoadOptions::default() };
    let weights = DeviceWeights::load(&device, &compiler, &model, options, &mut |_, _| {})?;
    println!(
        "load {shape}: {:.2} s, {} bytes of {}",
        start.elapsed().as_secs_f64(),
        weights.bytes(),
        weights.element()
    );
    let weights = Arc::new(weights);
    let start = Instant::now();
    let mut prefill = Prefill::new(&device, &compiler, Arc::clone(&weights), chunk, choice)?;
    let (seconds, bytes, name) = (start.elapsed().as_secs_f64(), prefill.bytes(), prefill.matmul().name());
    println!("kernels and {bytes} bytes of buffers: {seconds:.2} s; products by {name}");

    let mut cache = KvCache::new(&device, weights.config(), 1, tokens, None)?;
    let vocab = weights.config().vocab_size as u64;
    let prompt: Vec<u32> = (0..tokens as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % vocab) as u32).collect();
    let mut run = |prefill: &mut Prefill| -> Result<(f64, f64, f32)> {
        let start = Instant::now();
        let mut logits = Vec::new();
        let device_time = device_milliseconds(&device, || {
            logits = prefill.run(&mut cache, 0, 0, &prompt, PrefillLogits::Last, &mut |_| true)?.logits;
            Ok(())
        })?;
        let sum = logits.iter().sum::<f32>();
        Ok((device_time, start.elapsed().as_secs_f64() * 1e3, sum))
    };
    let (first, ..) = run(&mut prefill)?;
    let mut times = Vec::new();
    for _ in 0..7 {
        times.push(run(&mut prefill)?);
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (device_ms, wall_ms, sum) = times[times.len() / 2];
    let flop = flop(weights.config(), tokens);
    let rate = flop / device_ms / 1e9;
    println!(
        "prefill {tokens}: device {device_ms:.2} ms (first {first:.2}), wall {wall_ms:.2} ms, {rate:.0} TFLOP/s, sum of logits {sum}"
    );

    let ceiling = product(&device, prefill.matmul(), 8192, 8192, 8192, Output::Elements, Element::Bf16)?;
    println!("8192^3 bf16: {ceiling:.0} TFLOP/s; prefill is {:.1} % of it", 100.0 * rate / ceiling);
    for (name, rows, columns, output) in products(weights.config()) {
        let (m, columns) = (chunk.min(tokens), padded(columns));
        let rate = product(&device, prefill.matmul(), m, rows, columns, output, weights.element())?;
        println!("{name} ({m}, {rows}, {columns}): {rate:.0} TFLOP/s");
    }
    Ok(())
}

/// The products of the first layer: name, outputs, inputs.
fn products(config: &ModelConfig) -> [(&'static str, usize, usize, Output); 4] {
    let (hidden, layer) = (config.hidden_size, &config.layers[0]);
    let feed_forward = layer.feed_forward_rows();
    [
        ("query_key_value", layer.query_rows() + 2 * layer.kv_rows(), hidden, Output::Elements),
        ("attention_output", hidden, layer.query_rows(), Output::AddF32),
        ("gate_up", 2 * feed_forward, hidden, Output::Elements),
        ("down", hidden, feed_forward, Output::AddF32),
    ]
}

/// Multiplications and additions of all products and of causal attention.
fn flop(config: &ModelConfig, tokens: usize) -> f64 {
    let tokens = tokens as f64;
    let layer = |layer: &plancher_model::LayerConfig| {
        let rows = 2 * (layer.query_rows() + layer.kv_rows()) + 3 * layer.feed_forward_rows();
        2.0 * tokens * (rows * config.hidden_size) as f64 + 2.0 * tokens * tokens * layer.query_rows() as f64
    };
    2.0 * (config.vocab_size * config.hidden_size) as f64 + config.layers.iter().map(layer).sum::<f64>()
}

/// TFLOP/s of one product on random numbers, the median of several timings.
fn product(
    device: &Device,
    matmul: &mut Matmul,
    m: usize,
    rows: usize,
    columns: usize,
    output: Output,
    element: Element,
) -> Result<f64> {
    // Small numbers of either type: sign, exponent near 1, random significand.
    let random = |n: usize| -> Vec<u16> {
        let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let base = if element == Element::F16 { 0x3400 } else { 0x3e80 };
        (0..n).map(|i| base ^ (bits(i) as u16 & 0x80ff)).collect()
    };
    let x = DeviceBuffer::from_slice(device, &random(m * columns))?;
    let weight = DeviceBuffer::from_slice(device, &random(rows * columns))?;
    let out: DeviceBuffer<f32> = DeviceBuffer::zeroed(device, m * rows)?;
    let product = Product { element, rows, columns, out_stride: rows, output };
    let mut times = Vec::new();
    for _ in 0..6 {
        times.push(device_milliseconds(device, || {
            for _ in 0..5 {
                // SAFETY: the buffers have these shapes.
                unsafe { matmul.multiply(&product, m, x.pointer(), weight.pointer(), out.pointer())? };
            }
            Ok(())
        })?);
    }
    times.sort_by(f64::total_cmp);
    Ok(5.0 * 2.0 * (m * rows) as f64 * columns as f64 / times[times.len() / 2] / 1e9)
}
