//! Where the time between the floor and the measurement went: the critical path by kind of instruction, the average
//! worker, and the memory.

use plancher_program::gpu::{Operation, Plan, STAGE_BYTES};
use serde::Serialize;

use super::path::{Leg, Parts, Stretch};
use super::{Publications, StepTrace, critical_path};
use crate::{CudaError, Result};

/// By how much the critical path of a traced step may differ from the measured time, as a fraction of it.
pub const TOLERANCE: f64 = 0.03;

/// What a traced step is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// The time of a step measured without tracing, in microseconds.
    pub measured_us: f64,
    /// Bytes that the step must read.
    pub floor_bytes: u64,
    /// Those of them that are keys and values.
    pub kv_bytes: u64,
    /// The rate at which memory can be read, GB/s.
    pub ceiling_gb_per_s: f64,
}

impl Reference {
    fn at_ceiling(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.ceiling_gb_per_s * 1e3)
    }
}

/// A line of the critical path's table, in microseconds; the four parts add up to the total.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRow {
    /// Of what.
    pub name: String,
    /// Stretches of the path.
    pub legs: usize,
    /// Its bytes at the read ceiling.
    pub floor: f64,
    /// Waiting for a dependency.
    pub dependency: f64,
    /// Waiting for weights.
    pub weights: f64,
    /// Computing.
    pub computing: f64,
    /// Lag of the slowest worker.
    pub lag: f64,
    /// All of these.
    pub total: f64,
}

/// A line of the average worker's table, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerRow {
    /// Of what.
    pub name: String,
    /// Waiting for a dependency.
    pub dependency: f64,
    /// Waiting for weights.
    pub weights: f64,
    /// Computing.
    pub computing: f64,
    /// How often it looked for its input.
    pub polls: f64,
}

/// The step as the memory sees it, in microseconds; the parts add up to the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryView {
    /// The floor: the bytes that must be read at the read ceiling.
    pub floor: f64,
    /// Bytes of the stream that are padding.
    pub padding: f64,
    /// The average producer could not ask for bytes because its ring was full.
    pub ring_full: f64,
    /// The rest: bytes came more slowly than at the ceiling. Less than nothing where bytes came while rings were full.
    pub slower: f64,
}

/// All tables of a traced step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribution {
    /// What the step is held against.
    pub reference: Reference,
    /// Workers.
    pub workers: usize,
    /// What the clock ticks in, nanoseconds.
    pub tick_ns: u64,
    /// The step's time for the average worker, in microseconds.
    pub step_us: f64,
    /// The critical path, in microseconds.
    pub path_us: f64,
    /// The path by what it went through; floors and totals add up to the floor and to the path.
    pub path: Vec<PathRow>,
    /// The average worker.
    pub average_worker: Vec<WorkerRow>,
    /// The memory.
    pub memory: MemoryView,
}

impl Attribution {
    /// The attribution of a step of a plan's kernel.
    #[must_use]
    pub fn new(trace: &StepTrace, plan: &Plan, reference: Reference) -> Self {
        let publications = Publications::of(trace, plan);
        let legs = critical_path(trace, &publications);
        let path_ns: u64 = legs.iter().map(|leg| leg.to - leg.from).sum();
        let path_us = microseconds(path_ns as f64);
        let path = path_rows(plan, reference, &legs);
        let n = trace.workers.len().max(1) as f64;
        let matrix_bytes: u64 = Operation::ALL.iter().map(|&operation| matrix_bytes(plan, operation)).sum();
        let stages: u64 = trace.instructions().map(|traced| u64::from(traced.instruction.stages)).sum();
        let streamed = stages * STAGE_BYTES as u64;
        let floor = reference.at_ceiling(reference.floor_bytes);
        let padding = reference.at_ceiling(streamed.saturating_sub(matrix_bytes));
        let ring_full = trace.workers.iter().map(|worker| worker.ring_full as f64).sum::<f64>() / n;
        let ring_full = microseconds(ring_full);
        Self {
            reference,
            workers: trace.workers.len(),
            tick_ns: trace.tick,
            step_us: microseconds(trace.duration()),
            path_us,
            path,
            average_worker: average_worker(trace),
            memory: MemoryView { floor, padding, ring_full, slower: path_us - floor - padding - ring_full },
        }
    }

    /// Measured time that the traced step does not explain, in microseconds: less than nothing where the traced step took
    /// longer.
    #[must_use]
    pub fn left_over_us(&self) -> f64 {
        self.reference.measured_us - self.path_us
    }

    /// Whether the path's parts add up to the measured time within [`TOLERANCE`].
    ///
    /// # Errors
    /// If they do not: the trace then is not one of what was measured.
    pub fn check(&self) -> Result<()> {
        let (path, measured) = (self.path_us, self.reference.measured_us);
        let parts: f64 = self.path.iter().map(|row| row.dependency + row.weights + row.computing + row.lag).sum();
        if (parts - path).abs() > 1e-6 * path.max(1.0) {
            return Err(CudaError::Unsupported(format!(
                "the parts of the critical path add up to {parts:.3} us, and it takes {path:.3} us"
            )));
        }
        // Written so that a time that is no number does not pass.
        if (path - measured).abs() <= TOLERANCE * measured {
            return Ok(());
        }
        Err(CudaError::Unsupported(format!(
            "the traced step took {path:.1} us, which is not within {:.0} % of the {measured:.1} us measured without \
             tracing: its table does not explain the measurement",
            100.0 * TOLERANCE
        )))
    }
}

fn microseconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1e3
}

/// Bytes of the matrices that one operation reads in all layers of a step, without padding.
fn matrix_bytes(plan: &Plan, operation: Operation) -> u64 {
    let Some(product) = plan.product_of(operation) else { return 0 };
    let times = if operation == Operation::Head { 1 } else { plan.shape.layers };
    // 16-bit elements.
    (2 * product.product.matrix_rows(&plan.shape) * product.columns * times) as u64
}

fn path_rows(plan: &Plan, reference: Reference, legs: &[Leg]) -> Vec<PathRow> {
    let row = |name: String, floor, of: &dyn Fn(&Stretch) -> bool| {
        let mut parts = Parts::default();
        let mut count = 0;
        for leg in legs.iter().filter(|leg| of(&leg.stretch)) {
            parts += leg.parts;
            count += 1;
        }
        let us = |nanoseconds: u64| microseconds(nanoseconds as f64);
        PathRow {
            name,
            legs: count,
            floor,
            dependency: us(parts.dependency),
            weights: us(parts.weights),
            computing: us(parts.computing),
            lag: us(parts.lag),
            total: us(parts.total()),
        }
    };
    let mut rows = vec![row("start".to_owned(), 0.0, &|stretch| *stretch == Stretch::Beginning)];
    let mut vectors = reference.floor_bytes.saturating_sub(reference.kv_bytes);
    for operation in Operation::ALL {
        let matrices = matrix_bytes(plan, operation);
        vectors = vectors.saturating_sub(matrices);
        let bytes = if operation == Operation::Attend { reference.kv_bytes } else { matrices };
        let of_it = |stretch: &Stretch| matches!(stretch, Stretch::Instruction(_, own, _) if *own == operation);
        rows.push(row(operation.to_string(), reference.at_ceiling(bytes), &of_it));
    }
    rows.push(row("token boundary".to_owned(), 0.0, &|stretch| *stretch == Stretch::Boundary));
    rows.push(row("norms, biases".to_owned(), reference.at_ceiling(vectors), &|_| false));
    rows.retain(|row| row.legs > 0 || row.floor > 0.0);
    rows
}

fn average_worker(trace: &StepTrace) -> Vec<WorkerRow> {
    let n = trace.workers.len().max(1) as f64;
    let mut rows = Vec::new();
    let mut accounted = 0.0;
    for operation in Operation::ALL {
        let (mut dependency, mut weights, mut computing, mut polls) = (0, 0, 0, 0);
        for traced in trace.instructions().filter(|traced| traced.instruction.operation == operation) {
            let Some(phases) = traced.times.phases() else { continue };
            dependency += phases.input - phases.fetched;
            weights += (phases.fetched - phases.began) + (phases.landed - phases.input);
            computing += phases.finished - phases.landed;
            polls += traced.times.polls;
        }
        let mean = |total: u64| microseconds(total as f64) / n;
        let row = WorkerRow {
            name: operation.to_string(),
            dependency: mean(dependency),
            weights: mean(weights),
            computing: mean(computing),
            polls: polls as f64 / n,
        };
        let total = row.dependency + row.weights + row.computing;
        accounted += total;
        if total > 0.0 {
            rows.push(row);
        }
    }
    let between = microseconds(trace.duration()) - accounted;
    rows.push(WorkerRow {
        name: "token boundary, between".to_owned(),
        dependency: 0.0,
        weights: 0.0,
        computing: between,
        polls: 0.0,
    });
    rows
}
