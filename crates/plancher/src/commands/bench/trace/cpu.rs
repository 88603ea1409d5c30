//! The trace of the program's threads: a file for Perfetto, and a table whose columns add up to the measured time.

use std::path::Path;
use std::time::Duration;

use plancher_cpu::{Executor, LogitsOf, StepTrace, TraceEvent};
use plancher_engine::sampling::Random;
use plancher_program::Operation;
use serde_json::json;

use super::Files;
use super::chrome::{Slice, Trace};
use crate::{output, table};

/// Tokens that are traced, so that the one shown is not one that something else on the machine disturbed.
const TRACED: usize = 9;

/// Decodes a token at `depth` several times and writes the trace of median duration; returns
/// the table.
pub(in super::super) fn run(executor: &mut Executor, depth: usize, files: Files<'_>) -> anyhow::Result<String> {
    let vocab_size = executor.vocab_size() as u32;
    let mut random = Random::new(1);
    let tokens: Vec<u32> = (0..depth.max(1)).map(|_| random.below(vocab_size)).collect();
    executor.truncate(0);
    executor.prefill(&tokens, LogitsOf::Last, &mut |_| true)?;
    let token = random.below(vocab_size);
    // One untraced step first, so that the traced ones find everything warm.
    executor.decode(token)?;
    let mut traces = Vec::with_capacity(TRACED);
    for _ in 0..TRACED {
        executor.truncate(tokens.len());
        traces.push(executor.decode_traced(token)?.1);
    }
    executor.truncate(0);
    let (shortest, longest) = extremes(&traces);
    let trace = median(traces);
    for path in files.traces {
        write(&trace, path)?;
        output::note(&format!(
            "wrote a trace of {} events to `{}`: open it at ui.perfetto.dev (the median of {TRACED} tokens, which took \
             {:.1} to {:.1} us)",
            trace.events.len(),
            path.display(),
            shortest.as_secs_f64() * 1e6,
            longest.as_secs_f64() * 1e6,
        ));
    }
    Ok(summary(&trace))
}

/// The shortest and the longest duration.
fn extremes(traces: &[StepTrace]) -> (Duration, Duration) {
    let durations = traces.iter().map(|trace| trace.duration);
    (durations.clone().min().unwrap_or_default(), durations.max().unwrap_or_default())
}

/// The trace of median duration; `traces` is not empty.
fn median(mut traces: Vec<StepTrace>) -> StepTrace {
    traces.sort_by_key(|trace| trace.duration);
    traces.swap_remove(traces.len() / 2)
}

/// The name of an operation without its layer.
fn name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Embed => "embedding",
        Operation::AddNormalize { .. } => "norm",
        Operation::QueryKeyValue { .. } => "query, key, value",
        Operation::Append { .. } => "append",
        Operation::Attention { .. } => "attention",
        Operation::AttentionOutput { .. } => "attention output",
        Operation::GateUp { .. } => "gate, up",
        Operation::Down { .. } => "down",
        Operation::Head { .. } => "head",
    }
}

fn layer(operation: &Operation) -> Option<usize> {
    match *operation {
        Operation::Embed | Operation::Head { .. } => None,
        Operation::AddNormalize { layer, .. }
        | Operation::QueryKeyValue { layer, .. }
        | Operation::Append { layer }
        | Operation::Attention { layer }
        | Operation::AttentionOutput { layer, .. }
        | Operation::GateUp { layer, .. }
        | Operation::Down { layer, .. } => Some(layer),
    }
}

/// One row a worker: its instructions, and its waits between them.
fn write(trace: &StepTrace, path: &Path) -> anyhow::Result<()> {
    let mut out = Trace::default();
    out.group(0, "plancher: one decoded token");
    for worker in 0..workers(trace) {
        out.row((0, worker), &format!("worker {worker}"));
    }
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    for event in &trace.events {
        let (row, start, end) = ((0, event.worker), nanoseconds(event.start), nanoseconds(event.end));
        if let Some((counter, since)) = &event.waited {
            let (name, since) = (format!("wait: {counter}"), nanoseconds(*since));
            out.slice(Slice { row, name, category: "wait", start: since, end: start, args: json!({}) });
        }
        let label = layer(&event.operation).map_or_else(String::new, |layer| format!(" {layer}"));
        let args = json!({ "weight_bytes": event.weight_bytes });
        let name = format!("{}{label}", name(&event.operation));
        out.slice(Slice { row, name, category: "compute", start, end, args });
    }
    out.write(path, &json!({}))
}

fn workers(trace: &StepTrace) -> usize {
    trace.events.iter().map(|event| event.worker + 1).max().unwrap_or(0)
}

/// One row a kind of operation, one for waiting, one for what lies between; every column's sum is the step's time.
fn summary(trace: &StepTrace) -> String {
    let workers = workers(trace);
    let wait = |event: &TraceEvent| {
        event.waited.as_ref().map_or(Duration::ZERO, |(_, since)| event.start.saturating_sub(*since))
    };
    let total = |worker: usize, part: &dyn Fn(&TraceEvent) -> Duration| -> Duration {
        trace.events.iter().filter(|event| event.worker == worker).map(part).sum()
    };
    let mut names: Vec<&'static str> = Vec::new();
    for event in &trace.events {
        if !names.contains(&name(&event.operation)) {
            names.push(name(&event.operation));
        }
    }
    let row = |label: &str, value: &dyn Fn(usize) -> Duration| {
        let mut cells = vec![label.to_owned()];
        cells.extend((0..workers).map(|worker| format!("{:.1}", value(worker).as_secs_f64() * 1e6)));
        cells
    };
    let compute = |event: &TraceEvent| event.end.saturating_sub(event.start);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for kind in names {
        let of_kind = |event: &TraceEvent| if name(&event.operation) == kind { compute(event) } else { Duration::ZERO };
        rows.push(row(kind, &|worker| total(worker, &of_kind)));
    }
    rows.push(row("waiting for a dependency", &|worker| total(worker, &wait)));
    let accounted = |worker: usize| total(worker, &compute) + total(worker, &wait);
    rows.push(row("start, end, between", &|worker| trace.duration.saturating_sub(accounted(worker))));
    rows.push(row("measured", &|_| trace.duration));
    let header: Vec<String> = (0..workers).map(|worker| format!("worker {worker}, us")).collect();
    let header: Vec<&str> = std::iter::once("one token").chain(header.iter().map(String::as_str)).collect();
    format!("{}\n", table::markdown(&header, 1, &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn trace() -> StepTrace {
        let us = Duration::from_micros;
        let event = |worker, operation, waited: Option<u64>, start, end| TraceEvent {
            worker,
            operation,
            waited: waited.map(|since| ("layer 0 qkv".to_owned(), us(since))),
            start: us(start),
            end: us(end),
            weight_bytes: 64,
        };
        let events = vec![
            event(0, Operation::Embed, None, 1, 3),
            event(0, Operation::Attention { layer: 0 }, Some(3), 10, 30),
            event(1, Operation::Embed, None, 2, 9),
            event(1, Operation::Attention { layer: 0 }, Some(9), 12, 31),
        ];
        StepTrace { events, duration: us(40) }
    }

    #[test]
    fn a_disturbed_token_is_not_the_one_that_is_kept() {
        let lasting = |us| StepTrace { duration: Duration::from_micros(us), ..trace() };
        let traces: Vec<StepTrace> = [40, 900, 38, 41, 39].map(lasting).into();
        assert_eq!(extremes(&traces), (Duration::from_micros(38), Duration::from_micros(900)));
        assert_eq!(median(traces).duration, Duration::from_micros(40));
    }

    #[test]
    fn columns_add_up_to_the_measured_time() {
        let table = summary(&trace());
        for column in [2, 3] {
            let values: Vec<f64> =
                table.lines().skip(2).filter_map(|line| line.split('|').nth(column)?.trim().parse().ok()).collect();
            let (measured, parts) = values.split_last().expect("rows");
            assert!((parts.iter().sum::<f64>() - measured).abs() < 1e-6 && *measured > 39.9, "{table}");
        }
    }

    #[test]
    fn the_file_is_a_chrome_trace_with_a_row_a_worker() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.json");
        write(&trace(), &path).expect("writable");
        let value: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
        let events = value["traceEvents"].as_array().expect("events");
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 6);
        assert_eq!(slices.iter().filter(|event| event["cat"] == "wait").count(), 2);
        assert!(slices.iter().all(|event| event["tid"].as_u64().is_some_and(|worker| worker < 2)));
        assert_eq!(slices[1]["name"], "wait: layer 0 qkv");
        assert_eq!(slices[1]["dur"], 7.0);
    }
}
