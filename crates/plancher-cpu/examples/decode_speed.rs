//! How fast a model decodes beside what its workers can read: tokens/s, GB/s and the fraction of the read ceiling, at
//! one or more depths, with prefill on the way; and where the time of one token and of one chunk of the prompt goes.
//!
//! `decode_speed MODEL [threads] [tokens] [depth,depth,…]`

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plancher_cpu::{Executor, LogitsOf, Options, StepTrace};
use plancher_model::Model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        return Err("usage: decode_speed MODEL [threads] [tokens] [depths]".into());
    };
    let mut options = Options::default();
    if let Some(threads) = arguments.get(2) {
        options.threads = threads.parse()?;
    }
    let tokens: usize = arguments.get(3).map_or(Ok(64), |n| n.parse())?;
    let depths = arguments.get(4).map_or("0", String::as_str).split(',').map(str::parse);
    let depths = depths.collect::<Result<Vec<usize>, _>>()?;

    let began = Instant::now();
    let model = Arc::new(Model::open(Path::new(path))?);
    let opened = began.elapsed();
    let mut executor = Executor::new(&model, &options, &|_, _| ())?;
    let loaded = began.elapsed();
    println!(
        "{path}: opened {opened:.2?}, packed {:.2?}, {} workers, {}",
        loaded.saturating_sub(opened),
        executor.workers(),
        executor.kernels().isa()
    );
    let vocab = executor.vocab_size() as u32;
    let token = |i: usize| (i as u32).wrapping_mul(7919) % vocab;
    for depth in depths {
        executor.truncate(0);
        let prompt: Vec<u32> = (0..depth).map(token).collect();
        if !prompt.is_empty() {
            let began = Instant::now();
            executor.prefill(&prompt, LogitsOf::Last, &mut |_| true)?;
            println!("  prefill {depth}: {:.1} tokens/s", depth as f64 / began.elapsed().as_secs_f64());
            executor.truncate(0);
            let chunk = &prompt[..depth.min(executor.prefill_chunk())];
            if chunk.len() > 1 {
                let mut fastest = executor.prefill_traced(chunk)?.1;
                for _ in 0..4 {
                    executor.truncate(0);
                    let trace = executor.prefill_traced(chunk)?.1;
                    fastest = if trace.duration < fastest.duration { trace } else { fastest };
                }
                summarize(&fastest);
            }
            executor.truncate(0);
            let began = Instant::now();
            executor.prefill(&prompt, LogitsOf::Last, &mut |_| true)?;
            println!("  prefill {depth} again: {:.1} tokens/s", depth as f64 / began.elapsed().as_secs_f64());
        }
        for i in 0..4 {
            executor.decode(token(i))?;
        }
        let before = executor.read_ceiling()?;
        let mut times = Vec::with_capacity(tokens);
        for i in 0..tokens {
            let began = Instant::now();
            executor.decode(token(i))?;
            times.push(began.elapsed());
        }
        let after = executor.read_ceiling()?;
        report(&executor, depth, times, before.max(after));
        let (_, trace) = executor.decode_traced(token(1))?;
        summarize(&trace);
    }
    Ok(())
}

fn report(executor: &Executor, depth: usize, mut times: Vec<Duration>, ceiling: f64) {
    let mean = times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64;
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64();
    let bytes = (executor.weight_bytes() + executor.kv_bytes(executor.position())) as f64;
    let rate = bytes / median / 1e9;
    println!(
        "  decode @ {depth}: {:.1} tokens/s (median {:.1}), {:.1} MB a token, {rate:.2} GB/s, ceiling {ceiling:.2} GB/s: {:.1} %",
        1.0 / mean,
        1.0 / median,
        bytes / 1e6,
        100.0 * rate / ceiling
    );
}

fn summarize(trace: &StepTrace) {
    let workers = trace.events.iter().map(|event| event.worker).max().map_or(0, |last| last + 1);
    println!(
        "  one traced step: {:.0} us; microseconds a worker, and GB/s while computing:",
        trace.duration.as_secs_f64() * 1e6
    );
    let mut classes = BTreeMap::<String, (f64, f64, usize)>::new();
    for event in &trace.events {
        let name = event.operation.to_string();
        let name =
            name.trim_start_matches("layer ").trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned();
        let class = classes.entry(name).or_default();
        class.0 += event.end.saturating_sub(event.start).as_secs_f64() * 1e6;
        class.1 +=
            event.waited.as_ref().map_or(0.0, |(_, since)| event.start.saturating_sub(*since).as_secs_f64() * 1e6);
        class.2 += event.weight_bytes;
    }
    for (name, (compute, wait, bytes)) in classes {
        let n = workers as f64;
        println!(
            "    {name:<20} compute {:>8.1}  wait {:>7.1}  {:>6.2} GB/s",
            compute / n,
            wait / n,
            bytes as f64 * n / compute / 1e3
        );
    }
}
