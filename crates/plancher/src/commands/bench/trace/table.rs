//! The tables of a traced step: its critical path against the floor, the memory, the average worker.

use std::fmt::Write as _;

use plancher_cuda::mega::trace::{Attribution, PathRow};
use serde_json::{Value, json};

use crate::table::markdown;

/// Microseconds with one decimal; no minus sign in front of 0.
fn us(value: f64) -> String {
    let text = format!("{value:.1}");
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// All tables as text.
pub(super) fn text(attribution: &Attribution, context: usize) -> String {
    let Attribution { reference, workers, tick_ns, path_us, .. } = attribution;
    let mut out = format!(
        "one token at context {context} on {workers} workers: {} us along its critical path, {} us measured without tracing; the clock \
         ticks in {tick_ns} ns\n\n",
        us(*path_us),
        us(reference.measured_us),
    );
    let _ = writeln!(out, "{}", path(attribution));
    out.push_str(
        "dependency: from the last publication of its input until the worker has it; weights: until they have landed, the time in \
         which the floor's bytes come; lag: by how much the last worker was later than the middle one\n\n",
    );
    let _ = writeln!(out, "{}", memory(attribution));
    out + &average_worker(attribution)
}

fn path(attribution: &Attribution) -> String {
    let cells = |name: &str, legs: String, row: [Option<f64>; 7]| -> Vec<String> {
        let values = row.map(|value| value.map_or_else(String::new, us));
        [name.to_owned(), legs].into_iter().chain(values).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for PathRow { name, legs, floor, dependency, weights, computing, lag, total } in &attribution.path {
        let parts = [*floor, *dependency, *weights, *computing, *lag, *total, total - floor];
        rows.push(cells(name, legs.to_string(), parts.map(Some)));
    }
    let sum = |of: fn(&PathRow) -> f64| attribution.path.iter().map(of).sum::<f64>();
    let floor = sum(|row| row.floor);
    let sums = [
        floor,
        sum(|row| row.dependency),
        sum(|row| row.weights),
        sum(|row| row.computing),
        sum(|row| row.lag),
        attribution.path_us,
        attribution.path_us - floor,
    ];
    let legs: usize = attribution.path.iter().map(|row| row.legs).sum();
    rows.push(cells("= critical path", legs.to_string(), sums.map(Some)));
    let left = attribution.left_over_us();
    rows.push(cells("left over", String::new(), [None, None, None, None, None, Some(left), Some(left)]));
    let measured = attribution.reference.measured_us;
    let last = [Some(floor), None, None, None, None, Some(measured), Some(measured - floor)];
    rows.push(cells("= measured", String::new(), last));
    let header =
        ["critical path, us", "legs", "floor", "dependency", "weights", "computing", "lag", "total", "over the floor"];
    markdown(&header, 1, &rows)
}

fn memory(attribution: &Attribution) -> String {
    let (memory, reference) = (attribution.memory, attribution.reference);
    let row = |name: String, value: f64| vec![name, us(value)];
    let rows = [
        row(
            format!("floor: {:.1} MB at {:.0} GB/s", reference.floor_bytes as f64 / 1e6, reference.ceiling_gb_per_s),
            memory.floor,
        ),
        row("padding of the stream".to_owned(), memory.padding),
        row("ring full, so that nothing more can be asked for (average worker)".to_owned(), memory.ring_full),
        row("slower than that rate while bytes were asked for".to_owned(), memory.slower),
        row("= critical path".to_owned(), attribution.path_us),
    ];
    markdown(&["the memory", "us"], 1, &rows)
}

fn average_worker(attribution: &Attribution) -> String {
    let rows = attribution.average_worker.iter();
    let cells = |name: &str, [dependency, weights, computing, polls]: [f64; 4]| {
        let total = dependency + weights + computing;
        vec![name.to_owned(), us(dependency), us(weights), us(computing), us(total), us(polls)]
    };
    let mut sums = [0.0; 4];
    let mut table: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let values = [row.dependency, row.weights, row.computing, row.polls];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        table.push(cells(&row.name, values));
    }
    table.push(cells("= step", sums));
    markdown(&["average worker, us", "dependency", "weights", "computing", "total", "polls in vain"], 1, &table)
}

/// The same for a program to read.
pub(super) fn to_json(attribution: &Attribution, context: usize) -> Value {
    json!({
        "context": context,
        "left_over_us": attribution.left_over_us(),
        "tables": attribution,
    })
}
