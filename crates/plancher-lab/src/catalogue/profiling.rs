//! Step 4: profiling. It has no kernels of its own: it asks of every kernel of the other steps whether its explanation is
//! what a profiler sees.

use crate::Step;
use crate::step::Criterion;

/// The step.
pub(super) static STEP: Step = Step {
    id: "profiling",
    number: 4,
    title: "Profiling",
    question: "Is what we say limits each kernel what limits it?",
    task: "Take each kernel that you wrote for steps 1 to 3. Before you profile it, write down which unit will be the busiest, \
           how many bytes will cross the memory's pins, the two reasons one of which its warps will wait for most, and what \
           keeps more of its blocks from a multiprocessor. Then run `plancher lab profile STEP` and correct what you believed, \
           not what you measured. An explanation that has never been wrong has not been tested.",
    operation: None,
    versions: &[],
    points: &[],
    plan: Criterion { text: "a page for each kernel; explanations match measurements", tests: &[] },
    bar: Criterion {
        text: "for every version: declared limiter = busiest unit, bytes within 3 % of the count, the top stall one of the two \
               named, occupancy limiter right",
        tests: &[],
    },
};
