//! Traces with known answers.

use plancher_model::{DummyFill, Model};
use plancher_program::gpu::{Operation, Plan, Target};

use super::layout::{WORDS, WORKER_WORDS};
use super::simulate::{Late, Step};
use super::*;

/// Llama-3.2-1B on 128 workers.
fn llama() -> Plan {
    let model = Model::dummy("llama-3.2-1b", DummyFill::Vectors).expect("a preset");
    Plan::new(&model.config, Target::h200(4096)).expect("a plan")
}

/// The same on a small device: units of attention share workers.
fn crowded() -> Plan {
    let model = Model::dummy("llama-3.2-1b", DummyFill::Vectors).expect("a preset");
    Plan::new(&model.config, Target { multiprocessors: 5, ..Target::h200(4096) }).expect("a plan")
}

fn parse(step: &Step, plan: &Plan) -> StepTrace {
    StepTrace::parse(&step.record(plan), plan, step.position).expect("a trace")
}

fn path(step: &Step, plan: &Plan) -> (StepTrace, Vec<Leg>) {
    let trace = parse(step, plan);
    let legs = critical_path(&trace, &Publications::of(&trace, plan));
    (trace, legs)
}

fn reference(measured_us: f64) -> Reference {
    Reference { measured_us, floor_bytes: 2_473_300_000, kv_bytes: 1_573_000, ceiling_gb_per_s: 4580.0 }
}

/// Costs of which only hops, attention and publishing are left.
fn no_weights() -> Step {
    Step { stage: 0, product: 0, ..Step::default() }
}

#[test]
fn a_buffer_is_read_as_it_was_written() {
    let plan = llama();
    let trace = parse(&Step::default(), &plan);
    assert_eq!((trace.workers.len(), trace.tick), (128, 32));
    for (worker, list) in trace.workers.iter().zip(&plan.workers) {
        let read: Vec<_> = worker.instructions.iter().map(|traced| traced.instruction).collect();
        assert_eq!(read[..], list.instructions[..list.instructions.len() - 1]);
    }
    let first = &trace.workers[0].instructions[1];
    assert_eq!(first.instruction.operation, Operation::QueryKeyValue);
    // The ring is empty: 24 rows of 2048 columns are six stages, one after the other.
    let finished = Some(6 * 448 + 96);
    let Times { began, input, finished: found, weights, summed, published, .. } = first.times;
    assert_eq!((began, input, found, summed), (Some(0), Some(0), finished, finished));
    assert_eq!((weights, published), (6 * 448 - 5 * 96, Some(6 * 448 + 96 + 160)));
}

#[test]
fn a_worker_has_begun_when_its_first_warp_has() {
    let plan = llama();
    let mut buffer = Step::default().record(&plan);
    let ends = plan.workers.len() * plan.ring.instructions * WORDS;
    for end in buffer[ends..].chunks_exact_mut(WORKER_WORDS) {
        end[0] += 960;
    }
    let trace = StepTrace::parse(&buffer, &plan, 47).expect("a trace");
    assert_eq!(trace, parse(&Step::default(), &plan));
}

#[test]
fn the_legs_follow_each_other_from_the_beginning_to_the_end() {
    let late = Some(Late { worker: 3, operation: Operation::GateUp, layer: 1, by: 3200 });
    for plan in [llama(), crowded()] {
        for step in [
            Step::default(),
            Step { position: 600, unevenness: 96, ..Step::default() },
            Step { hop: 64, product: 448, stage: 32, ..Step::default() },
            Step { late, ..no_weights() },
        ] {
            let (trace, legs) = path(&step, &plan);
            let (first, last) = (legs.first().expect("a leg"), legs.last().expect("a leg"));
            assert_eq!((first.from, last.to), trace.span());
            assert!(legs.windows(2).all(|pair| pair[0].to == pair[1].from), "{step:?}");
            assert!(legs.iter().all(|leg| leg.parts.total() == leg.to - leg.from), "{step:?}");
        }
    }
}

#[test]
fn a_step_of_hops_alone_is_hops_alone() {
    let (_, legs) = path(&no_weights(), &llama());
    let total = |part: &dyn Fn(&Parts) -> u64| legs.iter().map(|leg| part(&leg.parts)).sum::<u64>();
    // Five a layer, of which the first needs none; to the head; to the token.
    assert_eq!(total(&|parts| parts.dependency), (16 * 5 - 1 + 2) * 640);
    assert_eq!(total(&|parts| parts.weights) + total(&|parts| parts.lag), 0);
    assert_eq!(total(&|parts| parts.computing), (16 * 5 + 1) * 160 + 16 * 960 + 320);
}

#[test]
fn combining_splits_costs_a_hop_a_layer() {
    let hops = |position| {
        let (_, legs) = path(&Step { position, ..no_weights() }, &llama());
        legs.iter().map(|leg| leg.parts.dependency).sum::<u64>()
    };
    // A split has 256 positions.
    assert_eq!(hops(255), hops(0));
    assert_eq!(hops(256), hops(0) + 16 * 640);
}

#[test]
fn weights_that_come_after_the_input_are_what_was_waited_for() {
    let times = |polls| Times {
        began: Some(100),
        input: Some(400),
        finished: Some(900),
        weights: 450,
        polls,
        ..Times::default()
    };
    // The input was there at the first look, behind the first weights.
    let phases = times(0).phases().expect("a consumer's");
    assert_eq!((phases.began, phases.fetched, phases.input, phases.landed, phases.finished), (100, 400, 400, 550, 900));
    // It was not.
    let phases = times(3).phases().expect("a consumer's");
    assert_eq!((phases.fetched, phases.landed), (100, 850));
    assert_eq!(Times { began: None, ..times(0) }.phases(), None);
}

#[test]
fn the_path_goes_through_the_late_worker_and_calls_it_lag() {
    let plan = llama();
    let late = Late { worker: 77, operation: Operation::GateUp, layer: 1, by: 3200 };
    let (trace, legs) = path(&Step { late: Some(late), ..no_weights() }, &plan);
    let is_it = |leg: &&Leg| matches!(leg.stretch, Stretch::Instruction(_, Operation::GateUp, 1));
    let leg = legs.iter().find(is_it).expect("every operation is on the path");
    assert_eq!((leg.worker, leg.parts.lag, leg.parts.dependency), (77, 3200, 640));
    assert_eq!(legs.iter().map(|leg| leg.parts.lag).sum::<u64>(), 3200);
    assert_eq!(trace.span().1, parse(&no_weights(), &plan).span().1 + 3200);
    // Whoever reads its pairs names it.
    let publications = Publications::of(&trace, &plan);
    let is_down = |traced: &&Traced| (traced.instruction.operation, traced.instruction.layer) == (Operation::Down, 1);
    let down = trace.workers[2].instructions.iter().find(is_down).expect("every worker has rows of down");
    let last = publications.last_input(&down.instruction).expect("an input");
    assert_eq!((last.place.worker, last.time), (77, leg.to));
    assert_eq!(publications.vector(&down.instruction).map(|vector| vector.to_string()).as_deref(), Some("gated 1"));
}

#[test]
fn the_first_warp_waits_for_the_workers_of_its_columns_only() {
    let plan = llama();
    let late = Late { worker: 100, operation: Operation::Output, layer: 0, by: 1600 };
    let trace = parse(&Step { late: Some(late), ..Step::default() }, &plan);
    let publications = Publications::of(&trace, &plan);
    let of = |operation| trace.workers[3].instructions.iter().find(move |own| own.instruction.operation == operation);
    let gate_up = of(Operation::GateUp).expect("gate, up");
    assert_eq!(publications.last_input(&gate_up.instruction).map(|last| last.place.worker), Some(100));
    // 16 rows a worker: the first warp's 256 columns are those of the first 16 workers.
    let first = publications.last_input_of_first_warp(&gate_up.instruction).expect("an input");
    assert!(first.place.worker < 16, "{first:?}");
    assert_eq!(gate_up.times.input, Some((first.time + 640).max(gate_up.times.began.expect("it began"))));
    // Attention reads the rows of its own heads.
    let attend = of(Operation::Attend).expect("attention");
    let workers: Vec<usize> = publications
        .all(Vector { operation: Operation::QueryKeyValue, layer: 0 })
        .filter(|publication| {
            let instruction = trace.workers[publication.place.worker].instructions[publication.place.index].instruction;
            let rows = instruction.first..instruction.first + instruction.count;
            // Unit 3: queries 768 to 1023, key rows 2240 to 2303, value rows 2752 to 2815.
            [768..1024, 2240..2304, 2752..2816].iter().any(|own| own.start < rows.end && rows.start < own.end)
        })
        .map(|publication| publication.place.worker)
        .collect();
    let last = publications.last_input(&attend.instruction).expect("an input");
    assert!(workers.contains(&last.place.worker), "{last:?} {workers:?}");
}

#[test]
fn tables_add_up() {
    let late = Some(Late { worker: 3, operation: Operation::Down, layer: 2, by: 960 });
    for plan in [llama(), crowded()] {
        for step in [Step { unevenness: 64, ..Step::default() }, Step { position: 700, late, ..Step::default() }] {
            let trace = parse(&step, &plan);
            let duration = trace.span().1 as f64 / 1e3;
            let attribution = Attribution::new(&trace, &plan, reference(1.02 * duration));
            attribution.check().expect("within 3 %");
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b.abs().max(1.0);
            assert!(near(attribution.path_us, duration));
            assert!(near(attribution.path.iter().map(|row| row.total).sum(), attribution.path_us));
            assert!(near(attribution.path.iter().map(|row| row.floor).sum(), attribution.memory.floor));
            let MemoryView { floor, padding, ring_full, slower } = attribution.memory;
            assert!(near(floor + padding + ring_full + slower, attribution.path_us));
            let workers = attribution.average_worker.iter().map(|row| row.dependency + row.weights + row.computing);
            assert!(near(workers.sum(), attribution.step_us));
            assert!(near(attribution.left_over_us(), 0.02 * duration));
        }
    }
}

#[test]
fn a_trace_of_something_else_than_was_measured_is_refused() {
    let plan = llama();
    let trace = parse(&Step::default(), &plan);
    let duration = trace.span().1 as f64 / 1e3;
    for measured in [1.04 * duration, 0.96 * duration, f64::NAN, 0.0] {
        let error = Attribution::new(&trace, &plan, reference(measured)).check().expect_err("it does not add up");
        assert!(error.to_string().contains("is not within 3 %"), "{error}");
    }
}

#[test]
fn times_that_contradict_each_other_are_named() {
    let plan = llama();
    let recorded = Step::default().record(&plan);
    let ends = plan.workers.len() * plan.ring.instructions * WORDS;
    let broken = |change: &dyn Fn(&mut Vec<u64>)| {
        let mut buffer = recorded.clone();
        change(&mut buffer);
        StepTrace::parse(&buffer, &plan, 47).err().map(|error| error.to_string()).expect("refused")
    };
    let messages = [
        broken(&|buffer| buffer[(2 * plan.ring.instructions + 4) * WORDS + 2] = 1 << 40),
        broken(&|buffer| buffer[(5 * plan.ring.instructions + 7) * WORDS + 5] = 1 << 40),
        broken(&|buffer| buffer[ends + 9 * WORKER_WORDS + 2] = (1 << 40) + 960),
        broken(&|buffer| buffer[ends + 4 * WORKER_WORDS] = 0),
        broken(&|buffer| buffer[ends + 3 * WORKER_WORDS + 2] = 0),
        broken(&|buffer| buffer.truncate(100)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
