//! A traced step of the megakernel as rows for Perfetto: its critical path; for each worker what its consumers did, what its
//! finalizer published, and how far its stream was.

use plancher_cuda::mega::trace::{Leg, Phases, Place, Publications, StepTrace, Stretch, Traced, WorkerTrace};
use plancher_program::gpu::{Instruction, Operation, Plan, STAGE_BYTES};
use serde_json::{Value, json};

use super::chrome::{Slice, Trace, args};

/// Groups of rows.
const PATH: usize = 0;
const WORKERS: usize = 1;
const FINALIZERS: usize = 2;
const STREAMS: usize = 3;

/// `gate/up 3`: the operation, and its layer where it has one.
pub(super) fn label(plan: &Plan, operation: Operation, layer: u16) -> String {
    let in_layers = usize::from(layer) < plan.shape.layers && operation != Operation::Embed;
    if in_layers { format!("{operation} {layer}") } else { operation.to_string() }
}

fn slice(row: (usize, usize), name: String, category: &'static str, (start, end): (u64, u64), args: Value) -> Slice {
    Slice { row, name, category, start, end, args }
}

/// All rows.
pub(super) fn rows(trace: &StepTrace, plan: &Plan, publications: &Publications, legs: &[Leg]) -> Trace {
    let mut out = Trace::default();
    out.group(PATH, "critical path");
    out.row((PATH, 0), "critical path");
    out.group(WORKERS, "workers: waiting and computing");
    out.group(FINALIZERS, "workers: adding up and publishing");
    out.group(STREAMS, "workers: streaming");
    for (index, worker) in trace.workers.iter().enumerate() {
        let name = format!("worker {index}");
        for group in [WORKERS, FINALIZERS, STREAMS] {
            out.row((group, index), &name);
        }
        consumers(&mut out, plan, publications, index, worker);
        finalizer(&mut out, plan, publications, index, worker);
        stream(&mut out, plan, index, worker);
    }
    for leg in legs {
        path(&mut out, trace, plan, leg);
    }
    out
}

/// What a worker waited for and computed: each instruction, and inside it the parts. Waits for weights are known by their
/// sum only.
fn consumers(out: &mut Trace, plan: &Plan, publications: &Publications, index: usize, worker: &WorkerTrace) {
    let row = (WORKERS, index);
    let mut end = worker.began;
    for Traced { instruction, times } in &worker.instructions {
        let Some(Phases { began, fetched, input, landed, finished }) = times.phases() else { continue };
        end = finished;
        let Instruction { operation, layer, first, count, stages } = *instruction;
        let about = args([
            ("first", Some(json!(first))),
            ("count", Some(json!(count))),
            ("weight_bytes", (stages > 0).then(|| json!(u64::from(stages) * STAGE_BYTES as u64))),
            ("polls_in_vain", Some(json!(times.polls))),
        ]);
        out.slice(slice(row, label(plan, operation, layer), "instruction", (began, finished), about));
        let mut part = |name: &str, category, from: u64, to: u64| {
            if to > from {
                out.slice(slice(row, name.to_owned(), category, (from, to), json!({})));
            }
        };
        part("wait: weights", "weights", began, fetched);
        part("wait: weights", "weights", input, landed);
        part("compute", "compute", landed, finished);
        if let (Some(vector), true) = (publications.vector(instruction), input > fetched) {
            // The times are the first warp's, and so is what it waited for.
            let last = publications.last_input_of_first_warp(instruction);
            let about = args([
                ("published_last_by_worker", last.map(|last| json!(last.place.worker))),
                ("published_at_us", last.map(|last| json!(last.time as f64 / 1e3))),
            ]);
            let by = last.map_or_else(String::new, |last| format!(" of worker {}", last.place.worker));
            out.slice(slice(row, format!("wait: {vector}{by}"), "dependency", (fetched, input), about));
        }
    }
    let token = worker.token.max(end);
    if token > end {
        let by = publications.last_candidate();
        let by = by.map_or_else(String::new, |last| format!(" of worker {}", last.place.worker));
        out.slice(slice(row, format!("wait: candidates{by}"), "dependency", (end, token), json!({})));
    }
    if worker.ended > token {
        out.slice(slice(row, "end of the step".to_owned(), "boundary", (token, worker.ended), json!({})));
    }
}

fn finalizer(out: &mut Trace, plan: &Plan, publications: &Publications, index: usize, worker: &WorkerTrace) {
    for Traced { instruction, times } in
        worker.instructions.iter().filter(|own| publications.publishes(&own.instruction))
    {
        let (Some(summed), Some(published)) = (times.summed, times.published) else { continue };
        let Instruction { operation, layer, first, count, .. } = *instruction;
        let about = json!({ "first": first, "count": count });
        let name = format!("publish: {}", label(plan, operation, layer));
        out.slice(slice((FINALIZERS, index), name, "publish", (summed, published), about));
    }
}

/// From asking for the last bytes of one instruction to asking for the last of the next.
fn stream(out: &mut Trace, plan: &Plan, index: usize, worker: &WorkerTrace) {
    let mut before = 0;
    for Traced { instruction, times } in &worker.instructions {
        let Some(issued) = times.issued.filter(|&issued| issued > before) else { continue };
        let Instruction { operation, layer, stages, .. } = *instruction;
        let bytes = u64::from(stages) * STAGE_BYTES as u64;
        let about = args([
            ("bytes", (stages > 0).then(|| json!(bytes))),
            ("gb_per_s", (stages > 0).then(|| json!(bytes as f64 / (issued - before) as f64))),
        ]);
        let name = format!("stream: {}", label(plan, operation, layer));
        out.slice(slice((STREAMS, index), name, "stream", (before, issued), about));
        before = issued;
    }
}

/// A leg of the critical path and its parts, and an arrow from what it waited for.
fn path(out: &mut Trace, trace: &StepTrace, plan: &Plan, leg: &Leg) {
    let row = (PATH, 0);
    let name = match leg.stretch {
        Stretch::Beginning => "start".to_owned(),
        Stretch::Boundary => "token boundary".to_owned(),
        Stretch::Instruction(_, operation, layer) => label(plan, operation, layer),
    };
    let after = leg.after.map(|after| json!(after.place.worker));
    let about = args([("worker", Some(json!(leg.worker))), ("published_last_by_worker", after)]);
    out.slice(slice(row, format!("{name} on worker {}", leg.worker), "path", (leg.from, leg.to), about));
    let mut start = leg.from;
    let parts = leg.parts;
    for (name, category, length) in [
        ("dependency", "dependency", parts.dependency),
        ("weights", "weights", parts.weights),
        ("computing", "compute", parts.computing),
        ("lag", "lag", parts.lag),
    ] {
        if length > 0 {
            out.slice(slice(row, name.to_owned(), category, (start, start + length), json!({})));
            start += length;
        }
    }
    let (Some(after), Stretch::Instruction(place, ..)) = (leg.after, leg.stretch) else { return };
    if let (Some(from), Some(to)) = (published_in(trace, after.place), began_in(trace, place)) {
        out.arrow("critical path", from, to);
    }
}

/// The slice in which something was published, by its row and start.
fn published_in(trace: &StepTrace, place: Place) -> Option<((usize, usize), u64)> {
    let times = &trace.workers[place.worker].instructions[place.index].times;
    match times.summed.filter(|_| times.published.is_some()) {
        Some(summed) => Some(((FINALIZERS, place.worker), summed)),
        None => Some(((WORKERS, place.worker), times.began?)),
    }
}

/// The slice of an instruction, by its row and start.
fn began_in(trace: &StepTrace, place: Place) -> Option<((usize, usize), u64)> {
    let times = &trace.workers[place.worker].instructions[place.index].times;
    match times.began {
        Some(began) => Some(((WORKERS, place.worker), began)),
        None => Some(((FINALIZERS, place.worker), times.summed?)),
    }
}
