//! Files in the Chrome trace-event format, which ui.perfetto.dev opens: slices on rows, arrows between them. What is
//! written is checked first: times that are numbers, slices of a row in order and nested, arrows with both ends.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

/// A row: a group's number, and the row's in it.
pub(super) type Row = (usize, usize);

/// A slice of a row. Times are in nanoseconds.
pub(super) struct Slice {
    pub(super) row: Row,
    pub(super) name: String,
    /// What it is, by which Perfetto filters.
    pub(super) category: &'static str,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) args: Value,
}

/// A trace while it is put together.
#[derive(Default)]
pub(super) struct Trace {
    names: Vec<Value>,
    events: BTreeMap<Row, Vec<Value>>,
    arrows: usize,
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

impl Trace {
    /// Names a group of rows; groups are shown by number.
    pub(super) fn group(&mut self, group: usize, name: &str) {
        self.names.push(json!({ "name": "process_name", "ph": "M", "pid": group, "args": { "name": name } }));
        self.names
            .push(json!({ "name": "process_sort_index", "ph": "M", "pid": group, "args": { "sort_index": group } }));
    }

    /// Names a row.
    pub(super) fn row(&mut self, (group, row): Row, name: &str) {
        self.names
            .push(json!({ "name": "thread_name", "ph": "M", "pid": group, "tid": row, "args": { "name": name } }));
        self.names.push(
            json!({ "name": "thread_sort_index", "ph": "M", "pid": group, "tid": row, "args": { "sort_index": row } }),
        );
    }

    /// Adds a slice.
    pub(super) fn slice(&mut self, slice: Slice) {
        let Slice { row, name, category, start, end, args } = slice;
        self.events.entry(row).or_default().push(json!({
            "name": name, "cat": category, "ph": "X", "pid": row.0, "tid": row.1,
            "ts": microseconds(start), "dur": microseconds(end.saturating_sub(start)), "args": args,
        }));
    }

    /// Adds an arrow from the slice around one place to the slice around another.
    pub(super) fn arrow(&mut self, name: &str, from: (Row, u64), to: (Row, u64)) {
        self.arrows += 1;
        for ((row, time), ph) in [(from, "s"), (to, "f")] {
            let mut event = json!({
                "name": name, "cat": "dependency", "ph": ph, "id": self.arrows, "pid": row.0, "tid": row.1,
                "ts": microseconds(time),
            });
            if ph == "f" {
                // To the slice around it, not to the next one.
                event["bp"] = json!("e");
            }
            self.events.entry(row).or_default().push(event);
        }
    }

    /// Slices and arrow ends.
    pub(super) fn len(&self) -> usize {
        self.events.values().map(Vec::len).sum()
    }

    /// The file's contents, checked; `about` is for whoever reads it.
    fn document(self, about: &Value) -> anyhow::Result<Value> {
        let mut events = self.names;
        for (_, mut row) in self.events {
            // Of two that start together the longer one is around the other.
            row.sort_by(|a, b| {
                let key = |event: &Value| (number(event, "ts"), -number(event, "dur"));
                key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal)
            });
            events.append(&mut row);
        }
        let document = json!({ "displayTimeUnit": "ns", "otherData": about, "traceEvents": events });
        check(&document).context("the trace is not one that Perfetto loads")?;
        Ok(document)
    }

    /// Writes the file.
    pub(super) fn write(self, path: &Path, about: &Value) -> anyhow::Result<()> {
        let document = self.document(about)?;
        let write = || -> anyhow::Result<()> {
            let mut file = BufWriter::new(File::create(path)?);
            serde_json::to_writer(&mut file, &document)?;
            Ok(file.flush()?)
        };
        write().with_context(|| format!("cannot write `{}`", path.display()))
    }
}

/// A number of an event, 0 where it has none.
fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or(0.0)
}

/// Whether a file is one that loads as it is meant: every event has its fields, the slices of a row come in the order of
/// their starts and lie inside or beside each other, and every arrow begins and ends in a slice.
pub(super) fn check(document: &Value) -> anyhow::Result<()> {
    let Some(events) = document["traceEvents"].as_array() else { bail!("there are no events") };
    // Per row: the ends of the slices that are open, and the last start.
    let mut rows: HashMap<(u64, u64), (Vec<i64>, i64)> = HashMap::new();
    let mut arrows: HashMap<u64, (usize, usize)> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let what = || format!("event {index} (`{}`)", event["name"].as_str().unwrap_or("?"));
        let ph = event["ph"].as_str().unwrap_or_default();
        ensure!(event["name"].is_string() && event["pid"].is_u64(), "{}: no name or group", what());
        if ph == "M" {
            ensure!(event["args"].as_object().is_some_and(|args| !args.is_empty()), "{}: names nothing", what());
            continue;
        }
        // Whole nanoseconds.
        let time = |key: &str| event[key].as_f64().filter(|time| *time >= 0.0).map(|time| (time * 1e3).round() as i64);
        let (Some(group), Some(row), Some(start)) = (event["pid"].as_u64(), event["tid"].as_u64(), time("ts")) else {
            bail!("{}: no row or time", what());
        };
        let (open, last) = rows.entry((group, row)).or_default();
        ensure!(start >= *last, "{} starts at {start} ns, before the one before it", what());
        *last = start;
        match ph {
            "X" => {
                let Some(duration) = time("dur") else { bail!("{}: no duration", what()) };
                open.retain(|end| *end > start);
                let around = open.last().copied().unwrap_or(i64::MAX);
                ensure!(
                    start + duration <= around,
                    "{} ends at {} ns, and what is around it at {around} ns",
                    what(),
                    start + duration
                );
                open.push(start + duration);
            }
            "s" | "f" => {
                let Some(id) = event["id"].as_u64() else { bail!("{}: no number", what()) };
                ensure!(open.iter().any(|end| *end >= start), "{} is in no slice", what());
                let ends = arrows.entry(id).or_default();
                *(if ph == "s" { &mut ends.0 } else { &mut ends.1 }) += 1;
            }
            _ => bail!("{}: `ph` is `{ph}`", what()),
        }
    }
    if let Some((id, _)) = arrows.iter().find(|(_, ends)| **ends != (1, 1)) {
        bail!("arrow {id} does not have one beginning and one end");
    }
    Ok(())
}

/// A JSON object of what is there.
pub(super) fn args<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(row: Row, name: &str, start: u64, end: u64) -> Slice {
        Slice { row, name: name.to_owned(), category: "test", start, end, args: json!({}) }
    }

    fn written(trace: Trace) -> anyhow::Result<Value> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.json");
        trace.write(&path, &json!({ "about": "tests" }))?;
        Ok(serde_json::from_slice(&std::fs::read(&path)?)?)
    }

    #[test]
    fn slices_are_put_in_order_and_kept_nested() {
        let mut trace = Trace::default();
        trace.group(1, "workers");
        trace.row((1, 0), "worker 0");
        trace.slice(slice((1, 0), "second half", 500, 1000));
        trace.slice(slice((1, 0), "first half", 0, 500));
        trace.slice(slice((1, 0), "whole", 0, 1000));
        trace.slice(slice((1, 1), "other row", 250, 1250));
        trace.arrow("after", ((1, 0), 500), ((1, 1), 300));
        assert_eq!(trace.len(), 6);
        let document = written(trace).expect("it is in order");
        check(&document).expect("what was written is what was checked");
        let names: Vec<&str> = document["traceEvents"].as_array().expect("events")[4..]
            .iter()
            .map(|event| event["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(names, ["whole", "first half", "second half", "after", "other row", "after"]);
    }

    #[test]
    fn what_perfetto_would_show_wrongly_is_refused() {
        let mut crossing = Trace::default();
        crossing.slice(slice((0, 0), "a", 0, 600));
        crossing.slice(slice((0, 0), "b", 500, 700));
        let mut nowhere = Trace::default();
        nowhere.slice(slice((0, 0), "a", 0, 100));
        nowhere.slice(slice((0, 1), "b", 0, 100));
        nowhere.arrow("late", ((0, 0), 50), ((0, 1), 101));
        let refused = |trace: Trace| format!("{:#}", written(trace).expect_err("refused"));
        let crooked = |event: Value| check(&json!({ "traceEvents": [event] })).expect_err("refused").to_string();
        let messages = [
            refused(crossing),
            refused(nowhere),
            crooked(json!({ "name": "a", "ph": "X", "pid": 0, "tid": 0, "ts": -1.0, "dur": 1.0 })),
            crooked(json!({ "name": "a", "ph": "X", "pid": 0, "tid": 0, "ts": 1.0 })),
            crooked(json!({ "name": "a", "ph": "B", "pid": 0, "tid": 0, "ts": 1.0 })),
            crooked(json!({ "name": "a", "ph": "M", "pid": 0, "args": {} })),
            check(&json!({})).expect_err("refused").to_string(),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }
}
