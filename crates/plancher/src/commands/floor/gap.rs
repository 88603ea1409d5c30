//! `--measured`: the measured time against the floor, split by causes.

use plancher_floor::Floor;
use plancher_floor::gap::{Gap, gap};
use serde_json::{Value, json};

use super::arguments::Options;
use super::quantity::duration;
use super::{Subject, refused};
use crate::table::markdown;

pub(super) fn compute(options: &Options, subject: &Subject, floor: &Floor) -> anyhow::Result<Option<Gap>> {
    let Some(seconds) = options.measured_seconds()? else { return Ok(None) };
    gap(&subject.shape, &subject.hardware, floor, seconds, options.executor.into()).map(Some).map_err(refused)
}

pub(super) fn report(gap: &Gap) -> String {
    let (heading, header, rows) = parts(gap);
    format!("\n{heading}\n{}", markdown(&header, 3, &rows))
}

/// The heading and the table.
pub(super) fn parts(gap: &Gap) -> (String, [&'static str; 5], Vec<Vec<String>>) {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let (sheet, measured) = (percent(gap.of_datasheet), duration(gap.measured));
    let heading = match gap.of_ceiling {
        None => format!("measured {measured}: {sheet} of the data sheet"),
        // A machine that is known by measurement alone has no data sheet.
        Some(share) if share <= gap.of_datasheet => format!("measured {measured}: {sheet} of the measured ceiling"),
        Some(share) => {
            format!("measured {measured}: {sheet} of the data sheet, {} of the measured ceiling", percent(share))
        }
    };
    let row = |name: &str, time: String, seconds: f64, origin: &str, formula: &str| {
        vec![name.to_owned(), origin.to_owned(), formula.to_owned(), time, percent(seconds / gap.measured)]
    };
    let terms = gap.terms.iter();
    let mut rows: Vec<Vec<String>> = terms
        .map(|term| row(term.name, duration(term.seconds), term.seconds, term.origin.name(), &term.formula))
        .collect();
    let (rest, why) = if gap.unexplained < 0.0 {
        (format!("-{}", duration(-gap.unexplained)), "the terms overlap: they claim more than was lost")
    } else {
        (duration(gap.unexplained), "stragglers, refill, imbalance and what is not known")
    };
    rows.push(row("unexplained", rest, gap.unexplained, "", why));
    (heading, ["part", "from", "how", "time", "share"], rows)
}

pub(super) fn to_json(gap: &Gap) -> Value {
    let terms: Vec<Value> = gap
        .terms
        .iter()
        .map(|term| json!({"name": term.name, "ms": 1e3 * term.seconds, "origin": term.origin.name(), "formula": term.formula}))
        .collect();
    json!({
        "measured_ms": 1e3 * gap.measured,
        "of_datasheet": gap.of_datasheet,
        "of_ceiling": gap.of_ceiling,
        "terms": terms,
        "unexplained_ms": 1e3 * gap.unexplained,
    })
}
