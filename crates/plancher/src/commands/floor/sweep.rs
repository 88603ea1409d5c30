//! `--sweep`: the floor along a range of batches, contexts or draft lengths.

use std::str::FromStr;

use plancher_floor::{Acceptance, Floor, FloorError, Regime, speculation};
use serde_json::{Value, json};

use super::arguments::{DEFAULT_CONTEXT, Options};
use super::json::number;
use super::quantity::{count, milliseconds, rate, scaled, significant};
use super::report::limiter;
use super::{Subject, acceptance, draft, refused};
use crate::failure::usage;
use crate::table::markdown;

/// No curve needs more points.
const MOST_POINTS: usize = 200;

/// What varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Batch,
    Context,
    Draft,
}

/// A range as `batch=1..512`.
#[derive(Clone, Debug)]
pub(super) struct SweepRange {
    pub(super) variable: Variable,
    values: Vec<u64>,
}

impl FromStr for SweepRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "is not of the form batch=1..512, context=1k..128k or k=1..8".to_owned();
        let (name, range) = text.split_once('=').ok_or_else(form)?;
        let variable = match name {
            "batch" => Variable::Batch,
            "context" => Variable::Context,
            "k" => Variable::Draft,
            _ => return Err(form()),
        };
        let (first, last) = range.split_once("..").ok_or_else(form)?;
        let first = if variable == Variable::Draft && first == "0" { 0 } else { count(first)? };
        let last = count(last)?;
        if first > last {
            return Err(format!("begins at {first}, above its end {last}"));
        }
        let values: Vec<u64> = match variable {
            // One by one; the others in powers of two from the beginning, with the end.
            Variable::Draft => (first..=last).take(MOST_POINTS + 1).collect(),
            _ => std::iter::successors(Some(first), |value| value.checked_mul(2))
                .take_while(|&value| value < last)
                .chain([last])
                .collect(),
        };
        if values.len() > MOST_POINTS {
            return Err(format!("has more than {MOST_POINTS} points"));
        }
        Ok(Self { variable, values })
    }
}

/// One point of a curve.
pub(super) struct Point {
    pub(super) value: u64,
    pub(super) floor: Floor,
    /// Tokens a pass and speed-up, when draft lengths vary.
    pub(super) speculation: Option<(f64, f64)>,
    /// Bytes a device that are missing, where the point does not fit.
    pub(super) missing: Option<u128>,
}

/// A computed curve.
pub(super) struct Sweep {
    pub(super) variable: Variable,
    pub(super) points: Vec<Point>,
}

impl Variable {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Context => "context",
            Self::Draft => "k",
        }
    }
}

pub(super) fn compute(range: &SweepRange, options: &Options, subject: &Subject) -> anyhow::Result<Sweep> {
    let (batch, context) = (options.pass.batch, options.pass.context.unwrap_or(DEFAULT_CONTEXT));
    let drafting = match range.variable {
        Variable::Draft => {
            let (draft, _) = draft(&options.draft)?
                .ok_or_else(|| usage("floor: `--sweep k=…` needs `--draft` and `--acceptance`"))?;
            Some((draft, acceptance(&options.draft)?))
        }
        _ => None,
    };
    let point = |&value: &u64| -> anyhow::Result<Point> {
        let (batch, context) = match range.variable {
            Variable::Batch => (value, context),
            Variable::Context => (batch, value),
            Variable::Draft => (batch, context),
        };
        let Subject { shape, hardware, setting, .. } = subject;
        let floor =
            plancher_floor::floor(shape, hardware, Regime::decode(batch, context), *setting).map_err(refused)?;
        let missing = match plancher_floor::fit::check(shape, hardware, *setting, batch, context) {
            Err(FloorError::DoesNotFit { needed, available, .. }) => Some(needed - available),
            other => other.map(|()| None).map_err(refused)?,
        };
        let speculation = match &drafting {
            None => None,
            Some((draft, acceptance)) => {
                let acceptance = first_positions(acceptance, value);
                let found = speculation(shape, hardware, *setting, batch, context, draft, value, &acceptance);
                let found = found.map_err(refused)?;
                Some((found.tokens_per_pass, found.speedup))
            }
        };
        Ok(Point { value, floor, speculation, missing })
    };
    Ok(Sweep { variable: range.variable, points: range.values.iter().map(point).collect::<anyhow::Result<_>>()? })
}

/// The acceptance of a draft of `k` tokens: of a longer list, the first `k`.
fn first_positions(acceptance: &Acceptance, k: u64) -> Acceptance {
    match acceptance {
        Acceptance::Positions(list) if list.len() as u64 > k => Acceptance::Positions(list[..k as usize].to_vec()),
        other => other.clone(),
    }
}

pub(super) fn report(sweep: &Sweep) -> String {
    let (header, rows) = rows(sweep);
    format!("\nsweep over {}\n{}", sweep.variable.name(), markdown(&header, 0, &rows))
}

/// The table of a sweep.
pub(super) fn rows(sweep: &Sweep) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut header = vec![sweep.variable.name(), "bytes", "FLOP/B", "floor ms", "tokens/s", "limit", "fits"];
    if sweep.variable == Variable::Draft {
        header.extend(["tokens a pass", "speed-up"]);
    }
    (header, sweep.points.iter().map(cells).collect())
}

fn cells(point: &Point) -> Vec<String> {
    let floor = &point.floor;
    let fits = point.missing.map_or_else(|| "yes".to_owned(), |bytes| format!("{} short", scaled(bytes as f64, "B")));
    let mut cells = vec![
        point.value.to_string(),
        scaled(floor.bytes() as f64, "B"),
        significant(floor.intensity(), 4),
        milliseconds(floor.seconds()),
        rate(floor.tokens_per_second()),
        limiter(floor).to_owned(),
        fits,
    ];
    if let Some((tokens, speedup)) = point.speculation {
        cells.extend([significant(tokens, 4), significant(speedup, 4)]);
    }
    cells
}

pub(super) fn to_json(sweep: &Sweep) -> Value {
    let points: Vec<Value> = sweep
        .points
        .iter()
        .map(|point| {
            let floor = &point.floor;
            json!({
                sweep.variable.name(): point.value,
                "bytes": number(floor.bytes()),
                "flops": number(floor.flops()),
                "intensity": floor.intensity(),
                "floor_ms": 1e3 * floor.seconds(),
                "tokens_per_s": floor.tokens_per_second(),
                "limiter": floor.limiter().name(),
                "missing_bytes": point.missing.map(number),
                "tokens_per_pass": point.speculation.map(|(tokens, _)| tokens),
                "speedup": point.speculation.map(|(_, speedup)| speedup),
            })
        })
        .collect();
    json!({"over": sweep.variable.name(), "points": points})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double_and_include_their_end() {
        let values = |text: &str| SweepRange::from_str(text).unwrap().values;
        assert_eq!(values("batch=1..512"), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(values("batch=3..10"), [3, 6, 10]);
        assert_eq!(values("context=1k..4k"), [1024, 2048, 4096]);
        assert_eq!(values("k=0..3"), [0, 1, 2, 3]);
        assert_eq!(values("batch=7..7"), [7]);
    }

    #[test]
    fn a_shorter_draft_takes_the_first_acceptances() {
        let list = Acceptance::Positions(vec![0.9, 0.8, 0.7]);
        assert_eq!(first_positions(&list, 2), Acceptance::Positions(vec![0.9, 0.8]));
        assert_eq!(first_positions(&list, 3), list);
        assert_eq!(first_positions(&Acceptance::Constant(0.5), 2), Acceptance::Constant(0.5));
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in [
            "",
            "batch",
            "batch=1",
            "batch=8..1",
            "batch=0..4",
            "width=1..2",
            "batch=1..1e30",
            "k=1..99999",
            "batch=a..b",
        ] {
            assert!(SweepRange::from_str(text).is_err(), "{text}");
        }
    }
}
