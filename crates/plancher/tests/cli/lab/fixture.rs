//! A run of the lab that nobody measured: every version of every step, with times that follow from their places, so that
//! what is printed of it is known beforehand.

use plancher_lab::catalogue::STEPS;
use plancher_lab::harness::Problem;
use plancher_lab::record::{
    Case, CaseRun, CeilingRun, LabRun, Label, Machine, Peaks, PointRun, Resources, SCHEMA, StepRun, VersionRun,
};
use plancher_lab::step::{Ceiling, Point};
use plancher_lab::{Dtype, Operation, Shape, Step, Version};

/// A run of all steps on something like an H200.
pub(super) fn run() -> LabRun {
    LabRun {
        schema: SCHEMA,
        argv: vec!["lab".to_owned(), "run".to_owned(), "all".to_owned()],
        commit: "0123456789abcdef".to_owned(),
        dirty: false,
        date: "2026-11-30T02:00:00Z".to_owned(),
        machine: machine(),
        steps: STEPS.iter().filter_map(|step| Some(of_step(step, step.operation?))).collect(),
        seconds: 400.0,
    }
}

fn machine() -> Machine {
    Machine {
        gpu: "NVIDIA H200".to_owned(),
        architecture: "sm_90a".to_owned(),
        multiprocessors: 132,
        l2_bytes: 60 << 20,
        memory_bytes: 141_000_000_000,
        datasheet_bandwidth_gb_per_s: Some(4800.0),
        datasheet_tflops: Peaks { fp32: Some(66.9), bf16: Some(989.4) },
        driver: "580.1".to_owned(),
        cuda: "13.0".to_owned(),
        nvrtc: "13.0".to_owned(),
        ..Machine::default()
    }
}

/// A rate of the ceiling that the data sheet allows.
fn ceiling(dtype: Dtype, operation: Operation) -> f64 {
    match (operation, dtype) {
        (Operation::Gemm, Dtype::F32) => 51.0,
        (Operation::Gemm, Dtype::Bf16) => 700.0,
        _ => 4200.0,
    }
}

fn of_step(step: &'static Step, operation: Operation) -> StepRun {
    let versions = step
        .versions
        .iter()
        .flat_map(|version| version.dtypes.iter().map(move |&dtype| of_version(step, version, dtype, operation)));
    let of_memory = |name, rate| CeilingRun {
        name,
        dtype: Dtype::F32,
        shape: Shape::Vector(1 << 22),
        unit: "GB/s".to_owned(),
        how: "read".to_owned(),
        samples: vec![rate; 9],
    };
    let memory = ceiling(Dtype::F32, Operation::Saxpy);
    let ceilings = [Ceiling::Copy, Ceiling::Read, Ceiling::Triad].map(|name| of_memory(name, memory));
    StepRun {
        step: step.id.to_owned(),
        versions: versions.collect(),
        ceilings: ceilings.into_iter().chain([of_memory(Ceiling::L2, 8000.0)]).collect(),
        profile: Vec::new(),
        sanitizer: Vec::new(),
        failure: None,
    }
}

fn of_version(step: &'static Step, version: &'static Version, dtype: Dtype, operation: Operation) -> VersionRun {
    let limit = Problem { operation, dtype, shape: Shape::Vector(0) }.limit();
    let shapes = vec![Shape::Vector(1)];
    let error = 0.25 * limit;
    let case = |case| CaseRun { case, shapes: shapes.clone(), error, limit, failure: None, not_taken: None };
    // From where it was predicted to be at the least, a little more for each place in the list.
    let (low, high) =
        version.prediction.fraction_bf16.filter(|_| dtype == Dtype::Bf16).unwrap_or(version.prediction.fraction);
    let fraction = f64::midpoint(low, high).min(1.0);
    VersionRun {
        version: version.id.to_owned(),
        dtype,
        source_sha256: version.sha256(),
        options: vec!["--gpu-architecture=sm_90a".to_owned()],
        resources: Some(Resources {
            registers: 32,
            spill_bytes: 0,
            shared_bytes: 0,
            threads: 256,
            blocks_per_multiprocessor: 8,
            limiter: version.prediction.occupancy_limiter,
        }),
        not_run: None,
        cases: Case::ALL.map(case).into(),
        points: step.points_of(dtype).map(|point| of_point(point, operation, fraction)).collect(),
    }
}

fn of_point(point: &Point, operation: Operation, fraction: f64) -> PointRun {
    let (bytes, flops) = (operation.bytes(point.dtype, point.shape), operation.flops(point.shape));
    let ceiling = ceiling(point.dtype, operation);
    let work = if operation == Operation::Gemm { flops as f64 / 1e12 } else { bytes as f64 / 1e9 };
    let problem = Problem { operation, dtype: point.dtype, shape: point.shape };
    let touched: u64 = problem.arrays().iter().map(|array| array.elements * point.dtype.bytes()).sum();
    // Up to eight instances rotate.
    let small = 8 * touched < 4 * machine().l2_bytes;
    // Small sizes take at least some microseconds.
    let seconds = work / (fraction * ceiling) + if small { 2e-6 } else { 0.0 };
    // Some noise of which the median is 1.
    let noise = [1.0, 1.002, 0.998, 1.001, 0.999, 1.003, 0.997, 1.0, 1.0];
    PointRun {
        shape: point.shape,
        elements: point.shape.elements(),
        bytes,
        flops,
        milliseconds: noise.map(|noise| 1e3 * seconds * noise).into(),
        host_milliseconds: noise.map(|noise| 1e3 * seconds * noise + 0.02).into(),
        ceiling: point.ceiling,
        ceiling_samples: vec![ceiling; noise.len()],
        label: if small { Label::L2 } else { Label::Memory },
        verified: 3,
        in_flight_bytes: (point.shape.elements() > 0).then_some(65_536),
        sweep: point.sweep,
        failure: None,
    }
}
