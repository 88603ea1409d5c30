//! Step 1: SAXPY.

use crate::step::{Ceiling, Criterion, InFlight, Limiter, OccupancyLimiter, Point, Prediction, Test};
use crate::{Dtype, Operation, Shape, Step, Version};

/// The step.
pub(super) static STEP: Step = Step {
    id: "saxpy",
    number: 1,
    title: "SAXPY",
    question: "How close to the memory's bandwidth does the simplest loop come, and what does it take?",
    task: "",
    operation: Some(Operation::Saxpy),
    versions: &[Version {
        id: "scalar",
        title: "One element a thread",
        file: "saxpy/1_scalar.cu",
        source: include_str!("../../kernels/saxpy/1_scalar.cu"),
        dtypes: &[Dtype::F32],
        change: "The start: a thread for each element.",
        prediction: Prediction {
            text: "12 bytes an element, nothing reused: memory bandwidth.",
            limiter: Limiter::Memory,
            fraction: (0.85, 1.0),
            fraction_bf16: None,
            bank_conflicts_per_request: None,
            sectors_per_request: Some(4.0),
            top_stalls: ["long_scoreboard", "lg_throttle"],
            occupancy_limiter: OccupancyLimiter::Threads,
        },
        outcome: "",
        in_flight: InFlight::PerThread(8),
        spill_budget: 0,
        instructions: &[],
        deterministic: true,
    }],
    points: &[
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 28), ceiling: Ceiling::Triad, sweep: false },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 12), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 14), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 16), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 18), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 20), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 22), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 24), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 26), ceiling: Ceiling::Triad, sweep: true },
        Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 30), ceiling: Ceiling::Triad, sweep: true },
    ],
    plan: Criterion {
        text: "more than 80 % of the bandwidth",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::Vector(1 << 28),
            ceiling: Ceiling::DataSheet,
            at_least: 0.80,
            at_most: None,
        }],
    },
    bar: Criterion {
        text: "at least 95 % of the triad ceiling at 2^28",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::Vector(1 << 28),
            ceiling: Ceiling::Triad,
            at_least: 0.95,
            at_most: None,
        }],
    },
};
