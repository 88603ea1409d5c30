//! `plancher floor --seed-tables`.

use plancher_floor::seed_tables::seed_tables;
use serde_json::{Value, json};

use super::refused;
use crate::output;
use crate::table::markdown;

pub(super) fn run(as_json: bool) -> anyhow::Result<()> {
    let rows = seed_tables().map_err(refused)?;
    if as_json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({"figure": row.figure, "printed": row.printed, "computed": row.computed, "reason": row.reason})
            })
            .collect();
        return output::json(&rows);
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| vec![row.figure.to_owned(), row.printed.to_owned(), row.computed.clone(), row.reason.clone()])
        .collect();
    Ok(output::text(&markdown(&["figure", "printed", "by the arithmetic", "why"], 4, &cells))?)
}
