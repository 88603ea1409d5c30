//! `plancher floor compare`: models or machines side by side.

use plancher_floor::{Floor, Regime};
use serde_json::{Value, json};

use super::arguments::{CompareArguments, DEFAULT_CONTEXT};
use super::json::{pass, subject_json};
use super::quantity::{grouped, milliseconds, rate, scaled, significant};
use super::report::limiter;
use super::{Subject, machine, model, refused};
use crate::output;
use crate::table::markdown;

pub(super) fn run(arguments: &CompareArguments) -> anyhow::Result<()> {
    let columns = columns(arguments)?;
    if arguments.json {
        let columns: Vec<Value> = columns
            .iter()
            .map(|(subject, floor)| {
                let mut map = subject_json(subject);
                map.extend(pass(floor));
                Value::Object(map)
            })
            .collect();
        return output::json(&json!(columns));
    }
    Ok(output::text(&table(&columns))?)
}

/// Every model on every machine, in the order they were named.
fn columns(arguments: &CompareArguments) -> anyhow::Result<Vec<(Subject, Floor)>> {
    let (machines, models): (Vec<_>, Vec<_>) =
        arguments.subjects.iter().map(String::as_str).partition(|text| machine::is_machine(text));
    let models = if models.is_empty() { vec![arguments.model.as_str()] } else { models };
    let machines = if machines.is_empty() { vec![arguments.machine.on.as_str()] } else { machines };
    let options = &arguments.machine;
    let hardware =
        machines.iter().map(|name| machine::named(name, options.ceiling)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut columns = Vec::new();
    for name in models {
        let shape = model::open(name)?.with_weights(options.weights, options.head_weights);
        for hardware in &hardware {
            let subject = Subject {
                shape: shape.clone(),
                hardware: hardware.clone(),
                setting: options.setting(),
                ignore_memory: options.ignore_memory,
            };
            let floor = subject.floor(regime(arguments)).map_err(refused)?;
            columns.push((subject, floor));
        }
    }
    Ok(columns)
}

fn regime(arguments: &CompareArguments) -> Regime {
    let pass = &arguments.pass;
    match (pass.prompt, pass.context) {
        (Some(prompt), None) => Regime::Prefill { batch: pass.batch, prompt, all_logits: pass.all_logits },
        (_, context) => Regime::decode(pass.batch, context.unwrap_or(DEFAULT_CONTEXT)),
    }
}

fn table(columns: &[(Subject, Floor)]) -> String {
    type Cell = fn(&Subject, &Floor) -> String;
    let lines: [(&str, Cell); 11] = [
        ("machine", |subject, _| subject.hardware.name.clone()),
        ("parameters", |_, floor| grouped(floor.params_total)),
        ("parameters read", |_, floor| grouped(floor.params_read)),
        ("weight bytes read", |_, floor| grouped(floor.weight_bytes_read())),
        ("KV bytes", |_, floor| grouped(floor.kv_bytes())),
        ("KV bytes a token", |_, floor| grouped(floor.kv_bytes_per_token)),
        ("FLOP", |_, floor| scaled(floor.flops() as f64, "FLOP")),
        ("FLOP per byte", |_, floor| significant(floor.intensity(), 4)),
        ("limit", |_, floor| limiter(floor).to_owned()),
        ("floor ms", |_, floor| milliseconds(floor.seconds())),
        ("tokens/s", |_, floor| rate(floor.tokens_per_second())),
    ];
    let mut header = vec![""];
    header.extend(columns.iter().map(|(subject, _)| subject.shape.name.as_str()));
    let mut rows: Vec<Vec<String>> = lines
        .iter()
        .map(|(name, cell)| {
            std::iter::once((*name).to_owned())
                .chain(columns.iter().map(|(subject, floor)| cell(subject, floor)))
                .collect()
        })
        .collect();
    let best = columns.iter().map(|(_, floor)| floor.seconds()).fold(f64::INFINITY, f64::min);
    rows.push(
        std::iter::once("against the fastest".to_owned())
            .chain(columns.iter().map(|(_, floor)| format!("{}×", significant(floor.seconds() / best, 3))))
            .collect(),
    );
    let regime = columns.first().map(|(_, floor)| super::report::regime_name(floor.regime)).unwrap_or_default();
    format!("{regime}\n{}", markdown(&header, 1, &rows))
}
