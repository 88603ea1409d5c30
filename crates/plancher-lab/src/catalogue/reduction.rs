//! Step 3: Reduction.

use crate::step::{Ceiling, Criterion, Point, Test};
use crate::{Dtype, Operation, Shape, Step};

/// The step.
pub(super) static STEP: Step = Step {
    id: "reduction",
    number: 3,
    title: "Reduction",
    question: "How are many numbers added by many threads without waiting for each other?",
    task: "",
    operation: Some(Operation::Reduction),
    versions: &[],
    points: &[Point { dtype: Dtype::F32, shape: Shape::Vector(1 << 30), ceiling: Ceiling::Read, sweep: false }],
    plan: Criterion {
        text: "more than 85 % of the bandwidth",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::Vector(1 << 30),
            ceiling: Ceiling::DataSheet,
            at_least: 0.85,
            at_most: None,
        }],
    },
    bar: Criterion {
        text: "at least 95 % of the read ceiling at 2^30",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::Vector(1 << 30),
            ceiling: Ceiling::Read,
            at_least: 0.95,
            at_most: None,
        }],
    },
};
