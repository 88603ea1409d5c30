//! `kernels`: the GPU kernels that Plancher has, compiled for any architecture and shown as machine code. Works without
//! a GPU; the gate in CI is `kernels compile`.

use clap::{Args, Subcommand};
use plancher_cuda::catalogue::{CATALOGUE, Disassembler, Family, Report, check, family};
use plancher_cuda::{Architecture, Compiler};
use serde::Serialize;

use crate::failure::usage;
use crate::{output, table};

/// List, compile and disassemble the GPU kernels; needs no GPU
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Compile(Compile),
    Sass(Sass),
}

/// List the kernel files with what is promised of each
#[derive(Debug, Args)]
struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Compile kernel files with NVRTC, and fail if one breaks a promise
///
/// Each file is compiled at representative shapes for every architecture that it is for. It fails on spilled registers
/// beyond the file's budget, on warnings, and (where `nvdisasm` is found) on missing instructions.
#[derive(Debug, Args)]
struct Compile {
    /// Files, by name [default: all]
    #[arg(value_name = "NAME", value_parser = family_name)]
    names: Vec<&'static Family>,
    /// Architectures, such as `sm_90a` [default: all that a file is for]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Architecture>,
    /// Most threads to compile with [default: one per logical core]
    #[arg(short, long, value_name = "N", value_parser = crate::arguments::worker_count, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show the machine code of a kernel file
#[derive(Debug, Args)]
struct Sass {
    /// The file, by name
    #[arg(value_name = "NAME", value_parser = family_name)]
    name: &'static Family,
    /// The architecture
    #[arg(long, value_name = "ARCH", default_value = "sm_90a")]
    arch: Architecture,
    /// Which of the file's representative shapes [default: the first]
    #[arg(long, value_name = "LABEL")]
    shape: Option<String>,
}

fn family_name(name: &str) -> Result<&'static Family, String> {
    family(name).ok_or_else(|| {
        let names: Vec<&str> = CATALOGUE.iter().map(|family| family.source.name).collect();
        format!("there is no such kernel file; there are {}", names.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::List(list) => run_list(list),
        Command::Compile(compile) => run_compile(compile),
        Command::Sass(sass) => run_sass(sass),
    }
}

/// What `list` shows of a file.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    purpose: &'static str,
    kernels: Vec<&'static str>,
    architectures: &'static [Architecture],
    shapes: Vec<&'static str>,
    spill_budget: u32,
    source_sha256: String,
}

fn run_list(list: &List) -> anyhow::Result<()> {
    let entries = CATALOGUE.iter().map(|family| Entry {
        name: family.source.name,
        purpose: family.purpose,
        kernels: family.source.kernels(),
        architectures: family.architectures,
        shapes: (family.specializations)().into_iter().map(|(label, _)| label).collect(),
        spill_budget: family.spill_budget,
        source_sha256: family.source.sha256(),
    });
    let entries: Vec<Entry> = entries.collect();
    if list.json {
        return output::json(&entries);
    }
    let rows = entries.iter().map(|entry| {
        let architectures: Vec<String> = entry.architectures.iter().map(ToString::to_string).collect();
        let hash = entry.source_sha256[..12].to_owned();
        vec![entry.name.into(), entry.purpose.into(), entry.kernels.join(" "), architectures.join(" "), hash]
    });
    let header = ["file", "for", "kernels", "architectures", "source"];
    Ok(output::text(&table::markdown(&header, 5, &rows.collect::<Vec<_>>()))?)
}

fn run_compile(compile: &Compile) -> anyhow::Result<()> {
    let compiler = Compiler::find()?;
    let disassembler = Disassembler::find();
    if let Err(error) = &disassembler {
        output::note(&format!("instructions are not looked at: {error}"));
    }
    let families = if compile.names.is_empty() { CATALOGUE } else { &compile.names };
    let architectures = if compile.arch.is_empty() { &Architecture::ALL[..] } else { &compile.arch };
    let threads = compile.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let report = check(&compiler, disassembler.as_ref().ok(), families, architectures, threads)?;
    if report.rows.is_empty() && report.findings.is_empty() {
        let list = architectures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let names = families.iter().map(|family| family.source.name).collect::<Vec<_>>().join(", ");
        return Err(usage(format!("`--arch` is {list}, but nothing of {names} is for it")));
    }
    if compile.json {
        output::json(&report)?;
    } else {
        output::text(&rows(&report))?;
    }
    let compiled = report.rows.len();
    let cached = report.rows.iter().filter(|row| row.cached).count();
    output::note(&format!("NVRTC {}: {compiled} compiled, {cached} of them before", compiler.version()));
    match report.findings.as_slice() {
        [] => Ok(()),
        findings => {
            let lines = findings.iter().map(|finding| {
                format!(
                    "{} ({}) for {}: {}",
                    finding.family, finding.specialization, finding.architecture, finding.problem
                )
            });
            anyhow::bail!("{} promises are broken: {}", findings.len(), lines.collect::<Vec<_>>().join("; "))
        }
    }
}

/// One line a kernel, shape and architecture.
fn rows(report: &Report) -> String {
    let rows = report.rows.iter().flat_map(|row| {
        row.kernels.iter().map(|kernel| {
            let spilled = kernel.spill_stores + kernel.spill_loads;
            let numbers = [kernel.registers, spilled, kernel.stack, kernel.shared_memory];
            let names = [kernel.name.clone(), row.specialization.to_owned(), row.architecture.to_string()];
            let numbers = numbers.iter().map(ToString::to_string).chain([row.cubin_bytes.to_string()]);
            names.into_iter().chain(numbers).collect::<Vec<_>>()
        })
    });
    let header = ["kernel", "shape", "architecture", "registers", "spilled", "stack", "shared", "code bytes"];
    table::markdown(&header, 3, &rows.collect::<Vec<_>>())
}

fn run_sass(sass: &Sass) -> anyhow::Result<()> {
    let shapes = (sass.name.specializations)();
    let shape = match &sass.shape {
        None => shapes.first(),
        Some(wanted) => shapes.iter().find(|(label, _)| label == wanted),
    };
    let (_, constants) = shape.ok_or_else(|| {
        // Labels have commas in them.
        let labels = shapes.iter().map(|(label, _)| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let (name, shape) = (sass.name.source.name, sass.shape.as_deref().unwrap_or_default());
        usage(format!("`--shape` is `{shape}`, but `{name}` has {labels}"))
    })?;
    let cubin = Compiler::find()?.compile(sass.name.source, constants, sass.arch)?;
    Ok(output::text(&Disassembler::find()?.disassemble(cubin.code())?)?)
}
