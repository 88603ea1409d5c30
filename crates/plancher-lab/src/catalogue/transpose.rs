//! Step 2: Transpose.

use crate::step::{Ceiling, Criterion, Point, Test};
use crate::{Dtype, Operation, Shape, Step};

/// The step.
pub(super) static STEP: Step = Step {
    id: "transpose",
    number: 2,
    title: "Transpose",
    question: "What does it cost to read one way and write the other, and how does shared memory help?",
    task: "",
    operation: Some(Operation::Transpose),
    versions: &[],
    points: &[
        Point { dtype: Dtype::F32, shape: Shape::square(16_384), ceiling: Ceiling::Copy, sweep: false },
        Point { dtype: Dtype::Bf16, shape: Shape::square(16_384), ceiling: Ceiling::Copy, sweep: false },
        Point {
            dtype: Dtype::F32,
            shape: Shape::Matrix { rows: 16_381, columns: 8_191 },
            ceiling: Ceiling::Copy,
            sweep: false,
        },
        Point {
            dtype: Dtype::Bf16,
            shape: Shape::Matrix { rows: 16_381, columns: 8_191 },
            ceiling: Ceiling::Copy,
            sweep: false,
        },
    ],
    plan: Criterion {
        text: "1x, 4x, 5x from naive to shared memory to padded; the ratio belongs to older cards and is printed",
        tests: &[],
    },
    bar: Criterion {
        text: "at least 95 % of the copy ceiling in f32 and bf16, 90 % on odd shapes",
        tests: &[
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::square(16_384),
                ceiling: Ceiling::Copy,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::Bf16,
                shape: Shape::square(16_384),
                ceiling: Ceiling::Copy,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::Matrix { rows: 16_381, columns: 8_191 },
                ceiling: Ceiling::Copy,
                at_least: 0.90,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::Bf16,
                shape: Shape::Matrix { rows: 16_381, columns: 8_191 },
                ceiling: Ceiling::Copy,
                at_least: 0.90,
                at_most: None,
            },
        ],
    },
};
