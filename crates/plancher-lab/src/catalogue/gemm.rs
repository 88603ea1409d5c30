//! Step 5: Matrix product in f32.

use crate::step::{Ceiling, Criterion, Point};
use crate::{Dtype, Operation, Shape, Step};

/// The step.
pub(super) static STEP: Step = Step {
    id: "gemm",
    number: 5,
    title: "Matrix product in f32",
    question: "Why is the textbook tile far from the machine's arithmetic?",
    task: "",
    operation: Some(Operation::Gemm),
    versions: &[],
    points: &[Point { dtype: Dtype::F32, shape: Shape::cube(4096), ceiling: Ceiling::Cublas, sweep: false }],
    plan: Criterion { text: "tiled: 25 to 35 % of cuBLAS", tests: &[] },
    bar: Criterion { text: "the same, explained by the roofline of shared memory", tests: &[] },
};
