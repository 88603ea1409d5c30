//! Costs of going from one piece of work to the next: `kernels/latency.cu`.

use serde::Serialize;

use super::Effort;
use super::statistics::median;
use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, Compiler, CudaError, Device, DeviceBuffer, Graph, Kernel, Launch, Module, Result, Source,
    Specialization, device_milliseconds,
};

/// The kernels measured here.
pub static LATENCY: Family = Family {
    source: Source { name: "latency", text: include_str!("../../kernels/latency.cu") },
    purpose: "ceilings: graph node, grid barrier, flag between blocks",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[Expectation::new("latency_empty", 90, "ACQBULK")],
    specializations: || vec![("device", Specialization::new())],
};

/// Threads of a block where they do something together.
const THREADS: u32 = 256;

/// A step from one piece of work to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// One more kernel in a graph.
    GraphNode,
    /// The same with programmatic dependent launch (compute capability 9.0).
    DependentGraphNode,
    /// A barrier of one block on every multiprocessor.
    GridBarrier,
    /// From one block to another and back, publishing what was written before (release, acquire).
    FlagRoundTrip,
    /// The same with words that publish only themselves.
    RelaxedFlagRoundTrip,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GraphNode => "graph node",
            Self::DependentGraphNode => "graph node, dependent launch",
            Self::GridBarrier => "grid barrier",
            Self::FlagRoundTrip => "flag round trip, release and acquire",
            Self::RelaxedFlagRoundTrip => "flag round trip, relaxed",
        })
    }
}

/// A measured cost. One way is half of a round trip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// Of what.
    pub step: Step,
    /// Median, in microseconds.
    pub microseconds: f64,
    /// The samples.
    pub samples: Vec<f64>,
}

/// Measures all steps that the device has.
pub(super) fn measure(device: &Device, compiler: &Compiler, effort: Effort) -> Result<Vec<Cost>> {
    compiler.check_driver()?;
    let cubin = compiler.compile(LATENCY.source, &Specialization::new(), device.architecture())?;
    let module = Module::load(device, &cubin)?;
    let empty = module.kernel("latency_empty")?;
    let mut costs = vec![node(device, &empty, false, effort)?];
    if device.architecture().has_bulk_copies() {
        costs.push(node(device, &empty, true, effort)?);
    }
    if device.properties().cooperative_launch {
        costs.push(barrier(device, &module.kernel("latency_grid_barrier")?, effort)?);
    }
    if device.properties().multiprocessors > 1 {
        let flag = module.kernel("latency_flag")?;
        costs.push(round_trip(device, &flag, true, effort)?);
        costs.push(round_trip(device, &flag, false, effort)?);
    }
    Ok(costs)
}

/// A graph that is a chain of empty kernels with a block on each multiprocessor.
fn node(device: &Device, kernel: &Kernel, dependent: bool, effort: Effort) -> Result<Cost> {
    let launch = Launch::linear(device.properties().multiprocessors, THREADS);
    // A quarter: a graph is made of each.
    let nodes = effort.repetitions.div_ceil(4);
    let launch = if dependent { launch.dependent() } else { launch };
    let mut graph = Graph::capture(device, "empty kernels", || {
        for _ in 0..nodes {
            // SAFETY: the kernel touches no memory.
            unsafe { kernel.launch(&launch, &Arguments::new())? };
        }
        Ok(())
    })?;
    let step = if dependent { Step::DependentGraphNode } else { Step::GraphNode };
    // SAFETY: as above.
    let mut replay = || device_milliseconds(device, || unsafe { graph.replay() });
    replay()?;
    cost(step, nodes, effort, replay)
}

fn barrier(device: &Device, kernel: &Kernel, effort: Effort) -> Result<Cost> {
    let (blocks, rounds) = (device.properties().multiprocessors, effort.repetitions);
    let mut counter = DeviceBuffer::<u32>::zeroed(device, 1)?;
    let mut status = DeviceBuffer::<u32>::zeroed(device, 1)?;
    let mut once = || {
        counter.fill_bytes(0)?;
        status.fill_bytes(0)?;
        let arguments = Arguments::new().buffer(&counter).value(rounds).buffer(&status);
        let launch = Launch::linear(blocks, THREADS).cooperative();
        // SAFETY: the kernel uses one word of each array, and the download below waits for it.
        let milliseconds = device_milliseconds(device, || unsafe { kernel.launch(&launch, &arguments) })?;
        expect("barriers", counter.download()?[0], blocks * rounds, status.download()?[0])?;
        Ok(milliseconds)
    };
    once()?;
    cost(Step::GridBarrier, rounds, effort, once)
}

fn round_trip(device: &Device, kernel: &Kernel, ordered: bool, effort: Effort) -> Result<Cost> {
    let rounds = effort.repetitions;
    let mut words = DeviceBuffer::<u32>::zeroed(device, 64)?;
    let mut status = DeviceBuffer::<u32>::zeroed(device, 1)?;
    let mut once = || {
        words.fill_bytes(0)?;
        status.fill_bytes(0)?;
        let arguments = Arguments::new().buffer(&words).value(rounds).value(u32::from(ordered)).buffer(&status);
        let launch = Launch::linear(2, 32).cooperative();
        // SAFETY: the kernel uses words 0 and 32 of one array and one word of the other, and the download below waits.
        let milliseconds = device_milliseconds(device, || unsafe { kernel.launch(&launch, &arguments) })?;
        expect("round trips", words.download()?[32], rounds, status.download()?[0])?;
        Ok(milliseconds)
    };
    once()?;
    cost(if ordered { Step::FlagRoundTrip } else { Step::RelaxedFlagRoundTrip }, rounds, effort, once)
}

/// The cost of one of `count` steps, from samples in milliseconds.
fn cost(step: Step, count: u32, effort: Effort, mut milliseconds: impl FnMut() -> Result<f64>) -> Result<Cost> {
    let mut samples = Vec::new();
    for _ in 0..effort.samples.max(1) {
        samples.push(milliseconds()? * 1e3 / f64::from(count));
    }
    Ok(Cost { step, microseconds: median(samples.clone()).unwrap_or(0.0), samples })
}

/// An error unless all steps happened.
fn expect(what: &str, happened: u32, expected: u32, gave_up: u32) -> Result<()> {
    if happened == expected && gave_up == 0 {
        return Ok(());
    }
    Err(CudaError::Unsupported(format!("latency: a block waited in vain ({what}: {happened} of {expected})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_vain_is_an_error() {
        assert!(expect("round trips", 5, 5, 0).is_ok());
        assert_eq!(
            expect("round trips", 4, 5, 1).expect_err("in vain").to_string(),
            "latency: a block waited in vain (round trips: 4 of 5)"
        );
        assert!(expect("round trips", 5, 5, 1).is_err());
    }

    #[test]
    fn a_cost_is_the_median_of_one_step_in_microseconds() {
        let mut milliseconds = [1.0, 3.0, 2.0, 9.0, 2.0].into_iter();
        let cost = cost(Step::GridBarrier, 1000, Effort::FULL, || Ok(milliseconds.next().expect("five samples")))
            .expect("no error");
        assert!((cost.microseconds - 2.0).abs() < 1e-12);
    }
}
