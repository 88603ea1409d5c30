//! Step 6: Fast matrix products.

use crate::step::{Ceiling, Criterion, Point, Test};
use crate::{Dtype, Operation, Shape, Step};

/// The step.
pub(super) static STEP: Step = Step {
    id: "gemm_fast",
    number: 6,
    title: "Fast matrix products",
    question: "What must be added to reach the vendor's library?",
    task: "",
    operation: Some(Operation::Gemm),
    versions: &[],
    points: &[
        Point { dtype: Dtype::F32, shape: Shape::cube(4096), ceiling: Ceiling::Cublas, sweep: false },
        Point { dtype: Dtype::F32, shape: Shape::cube(8192), ceiling: Ceiling::Cublas, sweep: false },
        Point { dtype: Dtype::Bf16, shape: Shape::cube(8192), ceiling: Ceiling::Cublas, sweep: false },
    ],
    plan: Criterion {
        text: "more than 70 % of cuBLAS",
        tests: &[Test {
            version: None,
            dtype: Dtype::F32,
            shape: Shape::cube(4096),
            ceiling: Ceiling::Cublas,
            at_least: 0.70,
            at_most: None,
        }],
    },
    bar: Criterion {
        text: "f32 at least 95 % of cuBLAS at 4096 and 8192, bf16 not below cuBLAS at 8192",
        tests: &[
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::cube(4096),
                ceiling: Ceiling::Cublas,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::F32,
                shape: Shape::cube(8192),
                ceiling: Ceiling::Cublas,
                at_least: 0.95,
                at_most: None,
            },
            Test {
                version: None,
                dtype: Dtype::Bf16,
                shape: Shape::cube(8192),
                ceiling: Ceiling::Cublas,
                at_least: 1.0,
                at_most: None,
            },
        ],
    },
};
