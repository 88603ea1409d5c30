//! The trace of the megakernel: files and tables of one traced step.

use anyhow::Context;
use plancher_cuda::mega::trace::{Attribution, Publications, critical_path};
use plancher_engine::{Backend, CudaBackend, TracedStep, model_shape};
use plancher_model::Model;

use super::picture::Picture;
use super::{Files, events, is_picture, table};
use crate::output;

/// Measures and traces `depth` tokens into a sequence, writes the files and shows the tables.
pub(in super::super) fn run(
    backend: &mut CudaBackend,
    model: &Model,
    depth: usize,
    files: Files<'_>,
) -> anyhow::Result<String> {
    let storage = backend.storage().weights.map_or_else(String::new, |format| format!(" {format}"));
    let name = model.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let device = backend.device().unwrap_or("a GPU").to_owned();
    let step = backend.trace_step(&model_shape(model), depth)?;
    let (shortest, longest) = step.range_us;
    output::note(&format!("traced steps took {shortest:.1} to {longest:.1} us; the one of median duration is shown"));
    let subject = format!("{name}{storage} at context {} on {device}", step.trace.position + 1);
    let (text, outcome) = write(&step, &subject, files)?;
    // Files and tables are there for whoever wants to know why.
    if let Err(error) = outcome {
        output::note(text.trim_end());
        return Err(error.into());
    }
    Ok(text)
}

/// Writes the files and returns the tables, and whether they explain the measurement.
fn write(step: &TracedStep, subject: &str, files: Files<'_>) -> anyhow::Result<(String, plancher_cuda::Result<()>)> {
    let TracedStep { trace, plan, reference, .. } = step;
    let context = trace.position + 1;
    let publications = Publications::of(trace, plan);
    let legs = critical_path(trace, &publications);
    let attribution = Attribution::new(trace, plan, *reference);
    let tables = table::to_json(&attribution, context);
    for path in files.traces {
        if is_picture(path) {
            let ceiling = reference.ceiling_gb_per_s;
            let picture =
                Picture { trace, publications: &publications, legs: &legs, subject: subject.to_owned(), ceiling };
            // One in the middle: the first begins with an empty ring, the last is followed by the head.
            let svg = picture.svg((plan.shape.layers / 2) as u16);
            std::fs::write(path, svg).with_context(|| format!("cannot write `{}`", path.display()))?;
            output::note(&format!("wrote a picture of one layer to `{}`", path.display()));
        } else {
            let rows = events::rows(trace, plan, &publications, &legs);
            let events = rows.len();
            rows.write(path, &tables)?;
            output::note(&format!(
                "wrote a trace of {events} events to `{}`: open it at ui.perfetto.dev",
                path.display()
            ));
        }
    }
    if let Some(path) = files.table {
        let text = serde_json::to_string_pretty(&tables)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok((table::text(&attribution, context), attribution.check()))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use plancher_cuda::mega::trace::simulate::Step;
    use plancher_cuda::mega::trace::{Reference, StepTrace};
    use plancher_model::DummyFill;
    use plancher_program::gpu::{Plan, Target};
    use serde_json::Value;

    use super::super::chrome;
    use super::*;

    /// Llama-3.2-1B on an H200, made up.
    fn traced(measured: f64) -> TracedStep {
        let model = Model::dummy("llama-3.2-1b", DummyFill::Vectors).expect("a preset");
        let plan = Plan::new(&model.config, Target::h200(4096)).expect("a plan");
        let step = Step { unevenness: 96, ..Step::default() };
        let trace = StepTrace::parse(&step.record(&plan), &plan, step.position).expect("a trace");
        let measured_us = measured * trace.span().1 as f64 / 1e3;
        let reference =
            Reference { measured_us, floor_bytes: 2_473_200_000, kv_bytes: 1_573_000, ceiling_gb_per_s: 4580.0 };
        TracedStep { trace, range_us: (0.0, 0.0), plan, reference }
    }

    fn write_made_up(measured: f64, traces: &[PathBuf], table: Option<&Path>) -> anyhow::Result<(String, bool)> {
        let files = Files { traces, table };
        let (text, outcome) = write(&traced(measured), "Llama-3.2-1B bf16 at context 48, made up", files)?;
        Ok((text, outcome.is_ok()))
    }

    #[test]
    fn the_tables_say_where_the_time_went() {
        let (text, adds_up) = write_made_up(1.01, &[], None).expect("nothing to write");
        assert!(adds_up);
        insta::assert_snapshot!(text);
        let (_, adds_up) = write_made_up(0.9, &[], None).expect("nothing to write");
        assert!(!adds_up);
    }

    #[test]
    fn the_columns_of_the_path_add_up_as_printed() {
        let (text, _) = write_made_up(1.0, &[], None).expect("nothing to write");
        let cells = |line: &str| -> Vec<f64> {
            line.split('|').skip(2).map(|cell| cell.trim().parse().unwrap_or(0.0)).collect()
        };
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("| --")).skip(1).collect();
        let sum_at = rows.iter().position(|row| row.starts_with("| = critical path")).expect("a sum");
        let sums = cells(rows[sum_at]);
        for (column, total) in sums.iter().enumerate().take(8).skip(1) {
            let sum: f64 = rows[..sum_at].iter().map(|row| cells(row)[column]).sum();
            assert!((sum - total).abs() < 0.05 * sum_at as f64 + 0.05, "column {column}: {sum}\n{text}");
        }
        for row in &rows[..=sum_at] {
            let cells = cells(row);
            assert!((cells[2..6].iter().sum::<f64>() - cells[6]).abs() < 0.25, "{row}");
        }
    }

    #[test]
    fn files_are_what_their_names_say() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let traces = [at("token.json"), at("layer.svg")];
        let table = at("table.json");
        write_made_up(1.0, &traces, Some(&table)).expect("written");
        let read =
            |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON") };
        let trace = read(&traces[0]);
        chrome::check(&trace).expect("it loads");
        assert_eq!(trace["otherData"], read(&table));
        let events = trace["traceEvents"].as_array().expect("events");
        let slices = |group: u64, category: &str| {
            events.iter().filter(|event| event["pid"] == group && event["cat"] == category).collect::<Vec<_>>()
        };
        // Every worker has the four products of 16 layers, and the head.
        let instructions = slices(1, "instruction");
        for worker in 0..128 {
            let own = instructions.iter().filter(|event| event["tid"] == worker).map(|event| event["name"].as_str());
            let own: Vec<&str> = own.flatten().collect();
            assert_eq!(own.iter().filter(|name| name.starts_with("gate/up")).count(), 16, "worker {worker}");
            assert_eq!(own.last(), Some(&"head"));
        }
        let waits = slices(1, "dependency");
        let names: Vec<&str> = waits.iter().filter_map(|event| event["name"].as_str()).collect();
        for wait in ["wait: gated 3 of worker ", "wait: x_feed_forward 15 of worker ", "wait: candidates of worker "] {
            assert!(names.iter().any(|name| name.starts_with(wait)), "{wait}");
        }
        assert!(
            !slices(1, "weights").is_empty() && !slices(2, "publish").is_empty() && !slices(3, "stream").is_empty()
        );
        let path: f64 = slices(0, "path").iter().filter_map(|event| event["dur"].as_f64()).sum();
        assert!((path - trace["otherData"]["tables"]["path_us"].as_f64().expect("a time")).abs() < 0.01);

        let svg = std::fs::read_to_string(&traces[1]).expect("written");
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("currentColor"));
        for text in ["critical path", "worker 0<", "gate/up<", "query/key/value<", "4.58 TB/s", "read ceiling"] {
            assert!(svg.contains(text), "{text}");
        }
        // Tags are closed in order.
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1).map(|rest| &rest[..rest.find('>').expect("a tag's end")]) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split([' ', '\n']).next().expect("a name")),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        for name in ["/nowhere/token.json", "/nowhere/layer.svg"] {
            let error = write_made_up(1.0, &[PathBuf::from(name)], None).expect_err("refused");
            assert!(error.to_string().contains(&format!("cannot write `{name}`")), "{error}");
        }
    }
}
