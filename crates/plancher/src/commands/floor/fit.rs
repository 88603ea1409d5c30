//! `plancher floor fit`: what fits in memory, with the margin in bytes.

use std::fmt::Write as _;

use plancher_floor::fit::{Fit, fit, largest_batch, largest_context};
use serde_json::{Value, json};

use super::arguments::FitArguments;
use super::json::{number, subject_json};
use super::quantity::grouped;
use super::report::heading;
use super::{Subject, refused};
use crate::output;
use crate::table::markdown;

pub(super) fn run(arguments: &FitArguments) -> anyhow::Result<()> {
    let subject = Subject::open(&arguments.model, &arguments.machine)?;
    let Subject { shape, hardware, setting, .. } = &subject;
    let (batch, context) = (arguments.batch, arguments.context);
    let most_sequences = largest_batch(shape, hardware, *setting, context).map_err(refused)?;
    let longest = largest_context(shape, hardware, *setting, batch).map_err(refused)?;
    let (Some((most_sequences, most_fit)), Some((longest, longest_fit))) = (most_sequences, longest) else {
        let (batch, context) = if most_sequences.is_none() { (1, context) } else { (batch, 1) };
        plancher_floor::fit::check(shape, hardware, *setting, batch, context).map_err(refused)?;
        return Err(refused(format!("`{}` does not fit on `{}`", shape.name, hardware.name)));
    };
    let asked = fit(shape, hardware, *setting, batch, context).map_err(refused)?;
    if arguments.json {
        let mut map = subject_json(&subject);
        map.insert("batch".to_owned(), json!(batch));
        map.insert("context".to_owned(), json!(context));
        map.insert("asked".to_owned(), to_json(&asked));
        map.insert(
            "largest_batch".to_owned(),
            json!({"batch": most_sequences, "context": context, "fit": to_json(&most_fit)}),
        );
        map.insert(
            "largest_context".to_owned(),
            json!({"batch": batch, "context": longest, "fit": to_json(&longest_fit)}),
        );
        map.insert("context_length".to_owned(), json!(shape.context_length));
        return output::json(&Value::Object(map));
    }
    let row = |what: &str, batch: u64, context: u64, fit: &Fit| {
        vec![
            what.to_owned(),
            grouped(batch.into()),
            grouped(context.into()),
            grouped(fit.weights),
            grouped(fit.kv),
            grouped(fit.capacity),
            signed(fit.margin()),
        ]
    };
    let rows = [
        row("asked for", batch, context, &asked),
        row("largest batch", most_sequences, context, &most_fit),
        row("largest context", batch, longest, &longest_fit),
    ];
    let mut text = heading(&subject);
    text.push_str(&markdown(
        &["", "batch", "context", "weight bytes", "KV bytes", "memory bytes", "margin bytes"],
        1,
        &rows,
    ));
    if let Some(made_for) = shape.context_length.filter(|&made_for| made_for < longest) {
        let _ = writeln!(text, "\nthe model was made for {} positions, fewer than fit", grouped(made_for.into()));
    }
    text.push_str("\nnot counted: activations, workspaces, fragmentation, the runtime's own memory\n");
    Ok(output::text(&text)?)
}

fn signed(value: i128) -> String {
    let digits = grouped(value.unsigned_abs());
    if value < 0 { format!("-{digits}") } else { digits }
}

fn to_json(fit: &Fit) -> Value {
    json!({
        "weight_bytes": number(fit.weights),
        "kv_bytes": number(fit.kv),
        "memory_bytes": number(fit.capacity),
        "margin_bytes": i64::try_from(fit.margin()).ok(),
    })
}
