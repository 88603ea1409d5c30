//! Runs that nobody measured, for the tests of what is said of them.

use plancher_lab::record::{
    Case, CaseRun, LabRun, Label, Machine, Peaks, PointRun, Resources, SCHEMA, StepRun, VersionRun,
};
use plancher_lab::step::{Ceiling, OccupancyLimiter};
use plancher_lab::{Dtype, Shape};

/// SAXPY by a kernel at so large a part of the triad ceiling.
pub(super) fn version(id: &str, fraction: f64) -> VersionRun {
    let case = |case| CaseRun { case, shapes: Vec::new(), error: 0.5, limit: 2.0, failure: None, not_taken: None };
    let milliseconds = 1e3 * f64::from(3u32 << 30) / (4.0e12 * fraction);
    // Noise whose median is 1, so that the interval is not empty.
    let times = [1.0, 0.999, 1.001, 1.0, 0.998, 1.002, 1.0].map(|noise| milliseconds * noise);
    VersionRun {
        version: id.to_owned(),
        dtype: Dtype::F32,
        source_sha256: String::new(),
        options: Vec::new(),
        resources: Some(Resources {
            registers: 24,
            spill_bytes: 0,
            shared_bytes: 0,
            threads: 256,
            blocks_per_multiprocessor: 8,
            limiter: OccupancyLimiter::Threads,
        }),
        not_run: None,
        cases: Case::ALL.map(case).into(),
        points: vec![PointRun {
            shape: Shape::Vector(1 << 28),
            elements: 1 << 28,
            bytes: 3 << 30,
            flops: 1 << 29,
            milliseconds: times.into(),
            host_milliseconds: times.into(),
            ceiling: Ceiling::Triad,
            ceiling_samples: vec![4000.0; times.len()],
            label: Label::Memory,
            verified: 2,
            in_flight_bytes: None,
            sweep: false,
            failure: None,
        }],
    }
}

/// A run on something like an H200.
pub(super) fn run(versions: Vec<VersionRun>) -> LabRun {
    let step = StepRun::measured("saxpy", versions, Vec::new());
    LabRun {
        schema: SCHEMA,
        argv: Vec::new(),
        commit: String::new(),
        dirty: false,
        date: String::new(),
        machine: Machine {
            gpu: "NVIDIA H200".to_owned(),
            datasheet_bandwidth_gb_per_s: Some(4800.0),
            datasheet_tflops: Peaks { fp32: Some(66.9), bf16: Some(989.4) },
            ..Machine::default()
        },
        steps: vec![step],
        seconds: 1.0,
    }
}
