//! `doctor`: what this machine is, how fast its memory is, and what Plancher would use of it.

mod gpu;

use clap::Args;
use plancher_cpu::bandwidth::{Rate, Sweep, Traffic};
use plancher_cpu::{Machine, Options};
use serde::Serialize;

use self::gpu::Gpu;
use crate::arguments::worker_count;
use crate::output::bytes;
use crate::placement::Found;
use crate::progress::Progress;
use crate::{output, table};

/// Show this machine, its GPUs, what their memory does at best, and what Plancher would use
///
/// Reading is what decoding does; the table's ceilings by working-set size are what its speed is compared with. Measure
/// on a quiet machine. For GPUs it also says where the driver, NVRTC and cuBLASLt were looked for and what to install.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Most threads to measure with [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = worker_count, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Do not measure
    #[arg(long)]
    no_bandwidth: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    bandwidth: Vec<Rate>,
    gpu: Gpu,
    would_use: WouldUse,
}

/// What a command without options would run on.
#[derive(Serialize)]
struct WouldUse {
    backend: &'static str,
    /// Of the CPU.
    threads: usize,
    kernels: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let machine = Machine::detect();
    let defaults = Options::default();
    let bandwidth = if arguments.no_bandwidth {
        Vec::new()
    } else {
        let sweep = Sweep::standard(arguments.threads.unwrap_or(defaults.threads), machine.available_memory);
        let mut progress = Progress::count("measuring bandwidth");
        sweep.run(&mut |done, total| progress.set(done as u64, total as u64))?
    };
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        machine,
        bandwidth,
        gpu: Gpu::look(!arguments.no_bandwidth),
        would_use: WouldUse {
            backend: if crate::gpu::look(0) == Found::Usable { "cuda" } else { "cpu" },
            threads: defaults.threads,
            kernels: plancher_cpu::kernels::Kernels::detect()?.isa().to_string(),
        },
    };
    if arguments.json { output::json(&report) } else { Ok(output::text(&text(&report))?) }
}

fn text(report: &Report) -> String {
    let mut fields: Vec<(&str, String)> = Vec::new();
    let mut field = |name: &'static str, value: String| fields.push((name, value));
    let machine = &report.machine;
    let unknown = || "unknown".to_owned();
    field("plancher", format!("{} ({} {})", report.version, machine.system, machine.architecture));
    field("CPU", machine.cpu.clone().unwrap_or_else(unknown));
    let clock = machine.mhz.map_or_else(String::new, |mhz| format!(", {:.2} GHz now", f64::from(mhz) / 1000.0));
    field("cores", format!("{} ({} threads){clock}", machine.cores, machine.threads));
    field("instructions", if machine.features.is_empty() { unknown() } else { machine.features.join(" ") });
    for cache in &machine.caches {
        let shared =
            if cache.shared_by > 1 { format!(", shared by {} threads", cache.shared_by) } else { String::new() };
        let kind = cache.kind.to_lowercase();
        field("cache", format!("L{} {kind}, {}{shared}", cache.level, binary(cache.bytes as usize)));
    }
    let memory = |size: Option<u64>| size.map_or_else(unknown, bytes);
    field("memory", format!("{}, {} available", memory(machine.memory), memory(machine.available_memory)));
    field("memory nodes", machine.numa_nodes.to_string());
    field("huge pages", machine.huge_pages.clone().unwrap_or_else(unknown));
    report.gpu.describe(&mut field);
    let use_ = &report.would_use;
    let cpu = format!("{} threads, {} kernels", use_.threads, use_.kernels);
    let would_use = match use_.backend {
        "cuda" => format!("cuda backend, GPU 0; with `--device cpu` {cpu}"),
        backend => format!("{backend} backend, {cpu}"),
    };
    field("would use", would_use);
    let mut out = table::fields(&fields);
    if !report.bandwidth.is_empty() {
        out.push_str("\nMeasured bandwidth, GB/s (1e9 bytes a second):\n");
        out.push_str(&bandwidth_table(&report.bandwidth));
    }
    out + &report.gpu.tables()
}

/// One row a working set, one column a kind of traffic and number of threads.
fn bandwidth_table(rates: &[Rate]) -> String {
    let mut sizes: Vec<usize> =
        rates.iter().filter(|rate| rate.traffic == Traffic::Read).map(|rate| rate.working_set).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut columns: Vec<(usize, Traffic)> = Vec::new();
    for rate in rates {
        if !columns.contains(&(rate.threads, rate.traffic)) {
            columns.push((rate.threads, rate.traffic));
        }
    }
    let header: Vec<String> = columns.iter().map(|(threads, traffic)| format!("{traffic}, {threads} thr.")).collect();
    let header: Vec<&str> = std::iter::once("working set").chain(header.iter().map(String::as_str)).collect();
    let rows = sizes.iter().map(|&size| {
        let mut row = vec![binary(size)];
        row.extend(columns.iter().map(|&(threads, traffic)| {
            // The arrays of copy and triad divide the working set, so that theirs is a few bytes smaller.
            let same = |rate: &&Rate| {
                rate.threads == threads && rate.traffic == traffic && rate.working_set.abs_diff(size) < size / 16 + 1
            };
            rates.iter().find(same).map_or_else(String::new, |rate| format!("{:.1}", rate.gb_per_s))
        }));
        row
    });
    table::markdown(&header, 1, &rows.collect::<Vec<_>>())
}

/// `64 KiB`, `1 MiB`.
fn binary(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}
