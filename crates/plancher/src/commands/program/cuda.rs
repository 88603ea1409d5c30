//! The program of a GPU's persistent kernel.

use std::collections::BTreeMap;

use plancher_cuda::libraries::{Environment, Kind};
use plancher_cuda::{CudaError, Properties};
use plancher_model::Model;
use plancher_program::gpu::{Element, H200_STREAM, Plan, Product, ProductSummary, Summary, Target, check};
use serde::Serialize;

use crate::output::{bytes, grouped, note};
use crate::table;

/// What an H200's bus carries by its clock, in 1e9 bytes a second: the rest of the stream is what it loses.
const H200_BUS: f64 = 4814.3;

/// What is planned for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Device {
    name: String,
    multiprocessors: usize,
    shared_memory_per_block: usize,
    #[serde(skip)]
    stream_gb_per_s: f64,
    /// Why it is an H200's and not that of a GPU that is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    assumed: Option<String>,
}

impl Device {
    /// GPU `ordinal`, with what was given in place of what it has. Where there is no GPU, an H200.
    pub(super) fn find(
        ordinal: usize,
        multiprocessors: Option<usize>,
        shared_memory: Option<usize>,
    ) -> anyhow::Result<Self> {
        let found = match (multiprocessors, shared_memory) {
            // Nothing is left to ask a GPU for.
            (Some(_), Some(_)) => Self { name: "a GPU with an H200's memory".to_owned(), ..Self::h200(None) },
            _ => match plancher_cuda::Device::open(ordinal) {
                Ok(device) => Self::of(device.properties()),
                Err(error @ CudaError::NoDevice { count: 1.., .. }) => return Err(error.into()),
                Err(error) => Self::h200(Some(why_missing(&error))),
            },
        };
        // Only one of the two was given: it is no longer that GPU.
        let changed = multiprocessors.is_some() != shared_memory.is_some();
        Ok(Self {
            name: if changed { format!("like {}", found.name) } else { found.name },
            multiprocessors: multiprocessors.unwrap_or(found.multiprocessors),
            shared_memory_per_block: shared_memory.unwrap_or(found.shared_memory_per_block),
            ..found
        })
    }

    fn h200(assumed: Option<String>) -> Self {
        let Target { multiprocessors, shared_memory, .. } = Target::h200(1);
        let name = "NVIDIA H200".to_owned();
        Self { name, multiprocessors, shared_memory_per_block: shared_memory, stream_gb_per_s: H200_STREAM, assumed }
    }

    fn of(properties: &Properties) -> Self {
        Self {
            name: properties.name.clone(),
            multiprocessors: properties.multiprocessors as usize,
            shared_memory_per_block: properties.shared_memory_per_block as usize,
            // Another device's memory is taken to lose as much of its bus as an H200's.
            stream_gb_per_s: properties.bus_gb_per_s().unwrap_or(H200_BUS) * (H200_STREAM / H200_BUS),
            assumed: None,
        }
    }
}

fn why_missing(error: &CudaError) -> String {
    let nothing = match error {
        CudaError::NoDevice { .. } => true,
        CudaError::Driver { name, .. } => name == "CUDA_ERROR_NO_DEVICE",
        _ => Environment::of_process().find(Kind::Driver).found.is_none(),
    };
    if nothing { "no NVIDIA GPU was found".to_owned() } else { error.to_string() }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    device: Device,
    /// A program that is not safe to run is not shown: the checker's finding is the command's error.
    checked: bool,
    program: Summary,
}

/// Plans `model` for `positions` positions on `device`.
pub(super) fn report(model: &Model, device: Device, positions: usize) -> anyhow::Result<Report> {
    let target = Target {
        multiprocessors: device.multiprocessors,
        shared_memory: device.shared_memory_per_block,
        // Both types have 16 bits: the plan is the same.
        element: Element::F16,
        positions,
    };
    let plan = Plan::new(&model.config, target)?;
    check(&plan)?;
    let program = Summary::new(&plan, device.stream_gb_per_s);
    if let Device { assumed: Some(reason), multiprocessors, shared_memory_per_block, .. } = &device {
        note(&format!(
            "planned for an H200 ({multiprocessors} multiprocessors, {shared_memory_per_block} bytes of shared memory a \
             block): {reason}"
        ));
    }
    Ok(Report { model: model.path.display().to_string(), device, checked: true, program })
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut out = table::fields(&self.fields());
        out.push('\n');
        out += &self.products();
        out.push('\n');
        out += &table::fields(&self.path());
        out.push('\n');
        out += &self.workers();
        out
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { model, device, program, .. } = self;
        let size = |value: usize| bytes(value as u64);
        let shared_memory = grouped(device.shared_memory_per_block as u64);
        let most = program.attention_splits;
        let splits = if most == 1 { "not split by position".to_owned() } else { format!("in up to {most} splits") };
        let padding = program.stream_bytes.saturating_sub(program.matrix_bytes) as f64 / program.stream_bytes as f64;
        let balance = program.balance;
        vec![
            ("model", model.clone()),
            (
                "device",
                format!(
                    "{}: {} multiprocessors, {shared_memory} B of shared memory a block",
                    device.name, device.multiprocessors
                ),
            ),
            ("workers", format!("{} of {} multiprocessors", program.workers, device.multiprocessors)),
            ("weights", format!("{} a token, of which {:.1} % padding", size(program.stream_bytes), 100.0 * padding)),
            (
                "balance",
                format!(
                    "{} least, {} mean, {} most of a worker: {:.3} of the mean",
                    size(balance.min),
                    bytes(balance.mean.round() as u64),
                    size(balance.max),
                    balance.max as f64 / balance.mean
                ),
            ),
            (
                "ring",
                format!(
                    "{} stages of 16 KiB, {:.1} us of streaming; {} beside it",
                    program.ring_stages,
                    program.estimate.ring_us,
                    size(program.fixed_bytes)
                ),
            ),
            ("attention", format!("{} units, {splits}", program.attention_units)),
            (
                "exchange",
                format!(
                    "{} words of 32 bits a token, {} counter, {} copies of {}",
                    grouped(program.exchanged_words as u64),
                    program.counters,
                    program.copies,
                    size(program.exchange_memory / program.copies)
                ),
            ),
            ("checker", "passed".to_owned()),
        ]
    }

    fn products(&self) -> String {
        let estimates = &self.program.estimate.products;
        let rows = self.program.products.iter().zip(estimates).map(|(product, estimate)| {
            vec![
                product.product.to_string(),
                format!("{} x {}", product.rows, product.columns),
                rows_of_a_worker(product),
                estimate.stages.to_string(),
                format!("{:.2} to {:.2}", estimate.wait_us.idle, estimate.wait_us.loaded),
                format!("{:.1}", estimate.compute_us),
                format!("{:.1}", estimate.stream_us),
            ]
        });
        let header = ["product", "matrix", "rows a worker", "stages", "wait us", "compute us", "stream us"];
        table::markdown(&header, 2, &rows.collect::<Vec<_>>())
    }

    /// The critical path.
    fn path(&self) -> Vec<(&'static str, String)> {
        let estimate = &self.program.estimate;
        let decides = if estimate.layer_path_us.idle > estimate.layer_stream_us {
            "the chain of waits decides"
        } else if estimate.layer_path_us.loaded < estimate.layer_stream_us {
            "the stream decides"
        } else {
            "both decide"
        };
        let layer = format!(
            "{:.1} to {:.1} us of waits and computing, {:.1} us of streaming: {decides}",
            estimate.layer_path_us.idle, estimate.layer_path_us.loaded, estimate.layer_stream_us
        );
        let token = format!(
            "{:.3} to {:.3} ms, estimated for {} layers at {:.0} GB/s and a short context",
            estimate.token_us.idle / 1e3,
            estimate.token_us.loaded / 1e3,
            self.program.layers,
            estimate.stream_gb_per_s
        );
        vec![("layer", layer), ("token", token)]
    }

    /// One line for all workers that have the same to do.
    fn workers(&self) -> String {
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        for worker in &self.program.by_worker {
            let order = (std::cmp::Reverse(worker.stream_bytes), worker.instructions, worker.waits);
            *kinds.entry(order).or_default() += 1;
        }
        let rows = kinds.into_iter().map(|((stream_bytes, instructions, waits), workers)| {
            let numbers = [workers, instructions, waits].map(|number| number.to_string());
            numbers.into_iter().chain([grouped(stream_bytes.0 as u64)]).collect()
        });
        table::markdown(&["workers", "instructions", "waits", "stream bytes"], 0, &rows.collect::<Vec<_>>())
    }
}

fn rows_of_a_worker(product: &ProductSummary) -> String {
    let ProductSummary { least, most, .. } = product;
    let rows = if least == most { most.to_string() } else { format!("{least} to {most}") };
    if product.product == Product::GateUp { format!("{rows} pairs") } else { rows }
}
