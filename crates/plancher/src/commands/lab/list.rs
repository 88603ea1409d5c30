//! `lab list`: the twelve steps, and the versions of those that are here.

use clap::Args;
use plancher_lab::Step;
use plancher_lab::catalogue::{LATER, STEPS};
use serde_json::{Value, json};

use crate::{output, table};

/// List the steps with their versions, and what each is to reach
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.json {
        return output::json(&json());
    }
    let here = STEPS.iter().map(|step| {
        let versions = if step.operation.is_none() { "all of the other steps".to_owned() } else { versions(step) };
        [step.number.to_string(), step.id.to_owned(), versions, step.plan.text.to_owned(), step.bar.text.to_owned()]
    });
    let later = LATER.iter().map(|later| {
        let not_here = format!("not here yet: {}", later.title);
        [later.number.to_string(), later.id.to_owned(), not_here, later.plan.to_owned(), later.bar.to_owned()]
    });
    let rows: Vec<Vec<String>> = here.chain(later).map(Vec::from).collect();
    Ok(output::shown(&table::wrapped(&["#", "step", "versions", "the plan asks", "we ask, on an H200"], &rows))?)
}

fn versions(step: &Step) -> String {
    step.versions.iter().map(|version| version.id).collect::<Vec<_>>().join(" ")
}

fn json() -> Value {
    let here = STEPS.iter().map(|step| {
        let versions = step.versions.iter().map(|version| {
            let dtypes: Vec<String> = version.dtypes.iter().map(ToString::to_string).collect();
            json!({
                "id": version.id, "title": version.title, "file": version.file, "dtypes": dtypes,
                "source_sha256": version.sha256(),
            })
        });
        json!({
            "number": step.number, "id": step.id, "title": step.title, "here": true, "question": step.question,
            "plan": step.plan.text, "bar": step.bar.text, "versions": versions.collect::<Vec<_>>(),
        })
    });
    let later = LATER.iter().map(|later| {
        json!({
            "number": later.number, "id": later.id, "title": later.title, "here": false, "question": later.question,
            "plan": later.plan, "bar": later.bar, "versions": [],
        })
    });
    here.chain(later).collect()
}
