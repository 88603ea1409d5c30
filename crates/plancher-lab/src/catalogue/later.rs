//! Steps 7 to 12: what the plan goes on to, and what we want of it. They are not here yet, and the commands say so.

/// A step that cannot be run yet.
#[derive(Debug)]
pub struct Later {
    /// What the commands will call it.
    pub id: &'static str,
    /// Its number in the plan.
    pub number: u32,
    /// A heading.
    pub title: &'static str,
    /// What one will want to know from it.
    pub question: &'static str,
    /// The plan's criterion.
    pub plan: &'static str,
    /// Ours, on an H200.
    pub bar: &'static str,
}

/// The steps that are not here yet, in the plan's order.
pub static LATER: &[Later] = &[
    Later {
        id: "triton",
        number: 7,
        title: "Triton",
        question: "What does a compiler for tiles give, and what does it take away?",
        plan: "the Triton product beats the CUDA one of step 6 in the same precision",
        bar: "softmax and RMSNorm at least 92 % of the copy ceiling, the product at least 95 % of cuBLAS in bf16",
    },
    Later {
        id: "integration",
        number: 8,
        title: "Integration",
        question: "What must a kernel bring with it to be an operator that a framework can trust?",
        plan: "torch.compile takes the operator without a graph break",
        bar: "opcheck, gradient in fp64, replay in a CUDA graph equal to the bit, at most 7 us of host time",
    },
    Later {
        id: "attention",
        number: 9,
        title: "Attention",
        question: "How can a softmax be taken over keys that are never all there?",
        plan: "within 1e-2 in bf16, less than 3 times slower than the framework's",
        bar: "error at most twice the framework's own, at least 0.75 of its fastest backend from length 4096 on",
    },
    Later {
        id: "quantization",
        number: 10,
        title: "Quantisation and fusion",
        question: "Do a quarter of the bytes take a quarter of the time?",
        plan: "traffic to memory divided by about 4",
        bar: "bytes within 3 % of the format's, one row at least 3.3 times faster than bf16, the fusion at least 90 % of copy",
    },
    Later {
        id: "persistent",
        number: 11,
        title: "The persistent kernel",
        question: "What does a barrier of our own cost, and what does it save?",
        plan: "two operations in one launch, correct, and racecheck is clean",
        bar: "faster than the same two as a graph with dependent launches, below 16 MB; mutants of the protocol are caught",
    },
    Later {
        id: "megakernel",
        number: 12,
        title: "The small megakernel",
        question: "Where does the time between kernels go when there is only one?",
        plan: "a transformer layer in one launch, correct token by token, its gain or loss explained",
        bar: "at least 80 % of the read ceiling on a layer of a 1B model, faster than the graph of kernels",
    },
];
