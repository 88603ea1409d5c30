//! What no plan can say, since it is the kernel's: other copies, no arrivals, other accesses. Each must be refused, with
//! its own message.

use plancher_model::{Activation, Architecture, FeedForward, LayerConfig, ModelConfig};

use super::accesses::{Edge, Step, edges, unroll};
use super::words::Protocol;
use super::{CheckError, STEPS, order, words};
use crate::gpu::{Element, Operation, Plan, Slot, Target};

/// Two layers of four heads on six workers: up to three splits.
fn plan() -> Plan {
    let layer = LayerConfig {
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 16,
        window: None,
        rope: None,
        attention_scale: 0.25,
        qk_norm: false,
        post_norms: false,
        feed_forward: FeedForward::Dense { size: 96, activation: Activation::Silu },
    };
    let config = ModelConfig {
        architecture: Architecture::Llama,
        vocab_size: 101,
        hidden_size: 96,
        context_length: 4096,
        norm_eps: 1e-5,
        norm_offset: 0.0,
        embedding_scale: 1.0,
        tied_embeddings: true,
        ropes: Vec::new(),
        layers: vec![layer.clone(), layer],
    };
    let target = Target { multiprocessors: 6, shared_memory: 232_448, element: Element::Bf16, positions: 4096 };
    Plan::new(&config, target).expect("a small model")
}

fn edge_number(plan: &Plan, edge: Edge) -> usize {
    edges(plan).position(|other| other == edge).expect("an edge of the plan")
}

/// What is wrong with steps from `start` on, changed by `change`.
fn fault(start: usize, protocol: Protocol, change: impl Fn(&Plan, &mut [Step])) -> Option<String> {
    let plan = plan();
    let mut steps = unroll(&plan, start, STEPS);
    change(&plan, &mut steps);
    let result = words::check(&plan, &steps, protocol).and_then(|()| order::check(&plan, &steps));
    result.err().map(|error| error.to_string())
}

#[test]
fn the_kernel_s_protocol_passes() {
    assert!(plan().attention.splits >= 3);
    for start in [0, 253, 254, 255, 256, 509, 510] {
        assert_eq!(fault(start, Protocol::KERNEL, |_, _| ()), None, "from position {start} on");
    }
}

#[test]
fn what_the_kernel_does_not_do_is_refused() {
    let copies = |copies| Protocol { copies, ..Protocol::KERNEL };
    let waits = Protocol { waits: false, ..Protocol::KERNEL };
    let attended = |plan: &Plan| edge_number(plan, Edge::Slot(1, Slot::Attended));
    let partial = |plan: &Plan| edge_number(plan, Edge::Slot(0, Slot::PartialOutputs));
    let faults = [
        fault(0, copies(2), |_, _| ()),
        fault(0, copies(1), |_, _| ()),
        fault(0, waits, |_, _| ()),
        // Cleared before the arrivals are waited for.
        fault(0, Protocol::KERNEL, |plan, steps| {
            steps[2][attended(plan)].clears[1].late = false;
        }),
        fault(0, Protocol::KERNEL, |plan, steps| {
            steps[2][attended(plan)].clears.remove(1);
        }),
        fault(0, Protocol::KERNEL, |plan, steps| {
            let again = steps[1][attended(plan)].writes[0].clone();
            steps[1][attended(plan)].writes.push(crate::gpu::check::accesses::Access { worker: 5, ..again });
        }),
        // A split that is asleep is waited for: from position 256 on there are two, and three in all.
        fault(256, Protocol::KERNEL, |plan, steps| {
            let read = &mut steps[0][partial(plan)].reads[0];
            let words = plan.shape.query_rows() as u32 / 2;
            read.words = read.words.start + 2 * words..read.words.end + 2 * words;
        }),
    ];
    let faults = faults.map(|fault| fault.expect("it is not safe"));
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn waits_that_wait_for_each_other_are_refused() {
    // Some worker multiplies by the output projection before it has attended.
    let mut plan = plan();
    let list = &mut plan.workers[0].instructions;
    let at = |operation| move |i: &crate::gpu::Instruction| i.operation == operation && i.layer == 1;
    let attend = list.iter().position(at(Operation::Attend)).expect("it attends");
    let output = list.iter().position(at(Operation::Output)).expect("it has rows");
    list.swap(attend, output);
    let steps = unroll(&plan, 0, STEPS);
    assert_eq!(words::check(&plan, &steps, Protocol::KERNEL), Ok(()), "every word has its writer");
    let error = order::check(&plan, &steps).expect_err("a cycle");
    assert!(matches!(error, CheckError::Cycle { step: 0, .. }), "{error}");
}
