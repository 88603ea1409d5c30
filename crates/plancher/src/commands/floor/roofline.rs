//! The drawings: the roofline with the classes of operation as points, and the sweeps as curves.

use plancher_floor::{Compute, Floor, Hardware, Operation, Regime};

use super::quantity::{scaled, significant};
use super::sweep::{Sweep, Variable};
use super::{Outcome, report};
use crate::drawing;
use crate::drawing::chart::{Axis, Chart, Ink, Line, Mark, range};

/// Points closer than this factor in both directions share a mark.
const SAME: f64 = 1.35;

/// All drawings below each other as one SVG file.
pub(super) fn figure(outcome: &Outcome) -> String {
    drawing::figure(&charts(outcome).iter().map(Chart::drawing).collect::<Vec<_>>())
}

/// The roofline first, then a chart a sweep.
pub(super) fn charts(outcome: &Outcome) -> Vec<Chart> {
    std::iter::once(roofline(outcome)).chain(outcome.sweeps.iter().filter_map(sweep_chart)).collect()
}

/// FLOP per byte, and FLOP a second at the floor.
fn place(operation: &Operation) -> Option<(f64, f64)> {
    (operation.flops > 0 && operation.bytes > 0)
        .then(|| (operation.flops as f64 / operation.bytes as f64, operation.flops as f64 / operation.seconds()))
}

fn whole(floor: &Floor) -> (f64, f64) {
    (floor.intensity(), floor.flops() as f64 / floor.seconds())
}

fn roofline(outcome: &Outcome) -> Chart {
    let hardware = &outcome.subject.hardware;
    let mut marks = class_marks(&outcome.floor);
    let regime = if matches!(outcome.floor.regime, Regime::Decode { .. }) { "decode" } else { "prefill" };
    marks.push(whole_mark(&outcome.floor, "∑", &format!("whole pass, {regime}")));
    if let Some(prefill) = &outcome.prefill {
        marks.push(whole_mark(prefill, "P", "whole pass, prefill"));
    }
    let paths: Vec<Line> = outcome.sweeps.iter().filter_map(sweep_path).collect();
    let ridge = outcome.floor.ridge.unwrap_or(1.0);
    let path_points = || paths.iter().flat_map(|line| &line.points);
    let x = marks.iter().map(|mark| mark.at.0).chain(path_points().map(|point| point.0)).chain([0.3, ridge * 4.0]);
    let x = range(x, 1.6).unwrap_or((0.1, 1000.0));
    let peaks = peaks(hardware, outcome.floor.peak);
    let top = peaks.first().map_or(hardware.bandwidth * x.1, |(_, peak)| *peak);
    let y = marks
        .iter()
        .map(|mark| mark.at.1)
        .chain(path_points().map(|point| point.1))
        .chain([hardware.bandwidth * x.0, top]);
    let y = range(y, 1.6).unwrap_or((1.0, 10.0));
    let mut lines = roofs(hardware, &peaks, outcome.floor.peak.map(|(compute, _)| compute.name()), x);
    lines.extend(paths);
    Chart {
        title: format!("{} on {}: roofline", outcome.subject.shape.name, hardware.name),
        x: Axis::round("FLOP per byte", x),
        y: Axis::round("FLOP per second at the floor", y),
        lines,
        marks,
    }
}

fn whole_mark(floor: &Floor, sign: &str, label: &str) -> Mark {
    Mark {
        at: whole(floor),
        ink: Ink::Second,
        sign: sign.to_owned(),
        label: format!("{label}: {} FLOP/B, {}-bound", significant(floor.intensity(), 3), report::limiter(floor)),
        hover: String::new(),
        filled: false,
        below: 24.0,
    }
}

/// The known peaks, fastest first, equal ones together; that of f32 only where it applies.
fn peaks(hardware: &Hardware, applies: Option<(Compute, f64)>) -> Vec<(String, f64)> {
    let all = &hardware.peaks;
    let f32_applies = applies.is_some_and(|(compute, _)| compute == Compute::F32);
    let mut peaks: Vec<(String, f64)> = Vec::new();
    let named = [("bf16", all.bf16), ("fp8", all.fp8), ("int8", all.int8), ("fp4", all.fp4)];
    for (name, peak) in named.into_iter().chain([("f32", all.f32.filter(|_| f32_applies))]) {
        let Some(peak) = peak else { continue };
        match peaks.iter_mut().find(|(_, other)| (*other / peak - 1.0).abs() < 1e-3) {
            Some((names, _)) => names.extend([", ", name]),
            None => peaks.push((name.to_owned(), peak)),
        }
    }
    peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
    peaks
}

/// The slope of the bandwidth and the flat roofs; the one that applies is drawn in full.
fn roofs(hardware: &Hardware, peaks: &[(String, f64)], applies: Option<&str>, x: (f64, f64)) -> Vec<Line> {
    let bandwidth = hardware.bandwidth;
    let fastest = peaks.first().map_or(x.1, |(_, peak)| peak / bandwidth);
    let mut lines = vec![Line {
        points: vec![(x.0, bandwidth * x.0), (fastest.min(x.1), bandwidth * fastest.min(x.1))],
        ink: Ink::First,
        dashed: false,
        label: format!("memory, {}", scaled(bandwidth, "B/s")),
    }];
    for (names, peak) in peaks {
        let main = applies.is_some_and(|applies| names.split(", ").any(|name| name == applies));
        lines.push(Line {
            points: vec![(peak / bandwidth, *peak), (x.1, *peak)],
            ink: if main { Ink::First } else { Ink::Faint },
            dashed: !main,
            label: format!(
                "{names}, {}; ridge at {} FLOP/B",
                scaled(*peak, "FLOP/s"),
                significant(peak / bandwidth, 3)
            ),
        });
    }
    lines
}

/// One numbered mark for the classes that lie together.
fn class_marks(floor: &Floor) -> Vec<Mark> {
    let mut groups: Vec<((f64, f64), Vec<String>)> = Vec::new();
    for operation in &floor.operations {
        let Some(at) = place(operation) else { continue };
        let near = |a: f64, b: f64| a / b < SAME && b / a < SAME;
        let name = format!("{} {:.0} %", operation.class.name(), 100.0 * operation.seconds() / floor.seconds());
        match groups.iter_mut().find(|(other, _)| near(other.0, at.0) && near(other.1, at.1)) {
            Some((_, names)) => names.push(name),
            None => groups.push((at, vec![name])),
        }
    }
    groups
        .into_iter()
        .enumerate()
        .map(|(index, (at, names))| Mark {
            at,
            ink: Ink::Third,
            sign: (index + 1).to_string(),
            label: names.join(", "),
            hover: String::new(),
            filled: true,
            below: 0.0,
        })
        .collect()
}

/// Where the whole pass goes on the roofline as the sweep's variable grows.
fn sweep_path(sweep: &Sweep) -> Option<Line> {
    if sweep.variable == Variable::Draft || sweep.points.len() < 2 {
        return None;
    }
    let (first, last) = (sweep.points.first()?, sweep.points.last()?);
    Some(Line {
        points: sweep.points.iter().map(|point| whole(&point.floor)).collect(),
        ink: Ink::Second,
        dashed: sweep.variable == Variable::Context,
        label: format!("whole pass, {} {} to {}", sweep.variable.name(), first.value, last.value),
    })
}

/// The swept values as ticks, no more than eight.
fn swept(sweep: &Sweep) -> Vec<(f64, String)> {
    let name = |value: u64| match value {
        _ if sweep.variable != Variable::Context => value.to_string(),
        value if value >= 1024 && value.is_multiple_of(1024) => format!("{}k", value / 1024),
        value => value.to_string(),
    };
    let values: Vec<u64> = sweep.points.iter().map(|point| point.value).filter(|&value| value > 0).collect();
    let step = values.len().div_ceil(8).max(1);
    // Counted from the end: on a logarithmic axis the larger values have less room.
    values.iter().rev().step_by(step).map(|&value| (value as f64, name(value))).collect()
}

fn sweep_chart(sweep: &Sweep) -> Option<Chart> {
    let speedups = sweep.variable == Variable::Draft;
    let values: Vec<(f64, f64, bool)> = sweep
        .points
        .iter()
        // 0 has no place on a logarithmic axis.
        .filter(|point| point.value > 0)
        .map(|point| {
            let y = match point.speculation {
                Some((_, speedup)) if speedups => speedup,
                _ => point.floor.tokens_per_second(),
            };
            (point.value as f64, y, point.missing.is_none())
        })
        .collect();
    let each: Vec<(f64, f64)> = match sweep.variable {
        Variable::Batch => values.iter().map(|&(x, y, _)| (x, y / x)).collect(),
        _ => Vec::new(),
    };
    let x = range(values.iter().map(|value| value.0), 1.15)?;
    let y = range(values.iter().map(|value| value.1).chain(each.iter().map(|point| point.1)), 1.3)?;
    let quantity = if speedups { "speed-up over plain decoding" } else { "tokens per second" };
    let mut lines = vec![Line {
        points: values.iter().map(|&(x, y, _)| (x, y)).collect(),
        ink: Ink::First,
        dashed: false,
        label: if speedups { quantity.to_owned() } else { format!("{quantity}, all sequences") },
    }];
    if !each.is_empty() {
        lines.push(Line { points: each, ink: Ink::Second, dashed: true, label: format!("{quantity}, each sequence") });
    }
    let mut hollow_explained = false;
    let marks = values
        .iter()
        .map(|&(x, y, fits)| {
            let label = if fits || hollow_explained { String::new() } else { "does not fit in memory".to_owned() };
            hollow_explained |= !fits;
            Mark {
                at: (x, y),
                ink: Ink::First,
                sign: String::new(),
                label,
                hover: String::new(),
                filled: fits,
                below: 0.0,
            }
        })
        .collect();
    Some(Chart {
        title: format!("{quantity} over {}", sweep.variable.name()),
        x: Axis { label: sweep.variable.name().to_owned(), range: x, linear: false, ticks: swept(sweep) },
        y: Axis::round(quantity, y),
        lines,
        marks,
    })
}
