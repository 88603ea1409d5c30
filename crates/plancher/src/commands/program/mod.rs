//! `program`: the step of a model as a program, for the CPU's workers or for a GPU's; nothing is run.

mod cpu;
mod cuda;

use clap::Args;
use plancher_program::gpu::{MOST_MULTIPROCESSORS, MOST_SHARED_MEMORY};

use crate::arguments::{DEFAULT_MODEL, count, worker_count};
use crate::failure::usage;
use crate::placement::{DeviceChoice, Found, LoadFormat, Placement, device};
use crate::session::{self, Session};
use crate::{gpu, output};

/// Show the program of a model: instructions, streams and their balance, critical path; needs no GPU
///
/// A program is one step laid out for workers: the cores of a CPU, or the multiprocessors of a GPU in one persistent
/// kernel. Without a GPU, `--device cuda` plans for an H200 or for what `--multiprocessors` and `--shared-memory` say.
/// Times are estimates from the plan and from what was measured on an H200 once; nothing is run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The model: a path, also of a `config.json` alone, a preset, or org/name[@revision]
    #[arg(value_name = "MODEL", default_value = DEFAULT_MODEL)]
    model: String,
    /// For which device: `cuda` or `cuda:N` (an NVIDIA GPU), `cpu`, or `auto`, which takes the first GPU if it is usable
    /// [default: auto]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<DeviceChoice>,
    /// Where the weights come from; they are not read
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    load_format: LoadFormat,
    /// Positions of the context [default: the model's, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Multiprocessors of the GPU [default: the GPU's; without one, an H200's 132]
    #[arg(long, value_name = "N", value_parser = at_most::<MOST_MULTIPROCESSORS>, allow_negative_numbers = true)]
    multiprocessors: Option<usize>,
    /// The most shared memory of a block, in bytes [default: the GPU's; without one, an H200's 232448]
    #[arg(long, value_name = "BYTES", value_parser = at_most::<MOST_SHARED_MEMORY>, allow_negative_numbers = true)]
    shared_memory: Option<usize>,
    /// Workers on the CPU [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = worker_count, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A number from 1 to `MOST`.
fn at_most<const MOST: usize>(text: &str) -> Result<usize, String> {
    count(text).and_then(|value| if value <= MOST { Ok(value) } else { Err(format!("must be at most {MOST}")) })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ordinal = gpu_ordinal(arguments)?;
    let session = open(arguments)?;
    let context = session::context(&session.model, arguments.context)?;
    let text = match (ordinal, arguments.json) {
        (None, false) => cpu::report(&session.model, arguments.threads)?.text(),
        (None, true) => return output::json(&cpu::report(&session.model, arguments.threads)?),
        (Some(ordinal), json) => {
            let device = cuda::Device::find(ordinal, arguments.multiprocessors, arguments.shared_memory)?;
            let report = cuda::report(&session.model, device, context)?;
            if json {
                return output::json(&report);
            }
            report.text()
        }
    };
    Ok(output::text(&text)?)
}

/// The model. No weights are read: where they are not here, their shapes will do.
fn open(arguments: &Arguments) -> anyhow::Result<Session> {
    let open = |format| Session::open_on(&arguments.model, format, Placement::Cpu);
    match arguments.load_format {
        LoadFormat::Auto => open(LoadFormat::Auto).or_else(|error| open(LoadFormat::Dummy).map_err(|_| error)),
        LoadFormat::Dummy => open(LoadFormat::Dummy),
    }
}

/// The GPU to plan for; nothing for the CPU.
fn gpu_ordinal(arguments: &Arguments) -> anyhow::Result<Option<usize>> {
    let of_cpu = arguments.threads.map(|_| "--threads");
    let of_gpu =
        (arguments.multiprocessors.map(|_| "--multiprocessors")).or(arguments.shared_memory.map(|_| "--shared-memory"));
    match (arguments.device, of_cpu, of_gpu) {
        (_, Some(cpu), Some(gpu)) => Err(usage(format!("`{cpu}` is for the CPU and `{gpu}` for a GPU"))),
        (Some(DeviceChoice::Cuda(_)), Some(option), _) => {
            Err(usage(format!("`{option}` has no meaning with `--device cuda`")))
        }
        (Some(DeviceChoice::Cpu), _, Some(option)) => {
            Err(usage(format!("`{option}` has no meaning with `--device cpu`")))
        }
        (Some(DeviceChoice::Cuda(ordinal)), None, _) => Ok(Some(ordinal)),
        (Some(DeviceChoice::Cpu), _, None) | (_, Some(_), None) => Ok(None),
        (None | Some(DeviceChoice::Auto), None, Some(_)) => Ok(Some(0)),
        (None | Some(DeviceChoice::Auto), None, None) => Ok((gpu::look(0) == Found::Usable).then_some(0)),
    }
}
