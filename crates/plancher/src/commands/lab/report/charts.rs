//! A step's drawings: how large a part of its ceiling each version reaches, rates over sizes, and rates over the bytes that
//! are under way.

use std::fmt::Write as _;

use plancher_lab::record::{LabRun, Label, PointRun, StepRun, VersionRun};
use plancher_lab::step::{Ceiling, Criterion};
use plancher_lab::verdict::{counts, fraction, median, rate, rightness, unit};
use plancher_lab::{Dtype, Operation, Shape, Step};

use super::super::{evidence, text};
use super::roofline;
use crate::drawing::Drawing;
use crate::drawing::bars::{Bar, Bars, Rule};
use crate::drawing::chart::{Axis, Chart, Ink, Line, Mark, range};

/// All drawings of a step.
pub(super) fn of_step(step: &'static Step, of: &StepRun, run: &LabRun) -> Vec<Drawing> {
    let mut drawings: Vec<Drawing> = step
        .points
        .iter()
        .filter(|point| !point.sweep)
        .filter_map(|point| bars(step, of, run, (point.dtype, point.shape, point.ceiling)))
        .collect();
    drawings.extend(step.dtypes().into_iter().filter_map(|dtype| sizes(step, of, run, dtype)));
    if step.operation == Some(Operation::Gemm) {
        drawings.extend(step.dtypes().into_iter().flat_map(|dtype| roofline::of_step(step, of, run, dtype)));
    } else {
        drawings.extend(in_flight(step, of, run));
    }
    drawings
}

/// Versions of a type in the catalogue's order, each with its number.
pub(super) fn versions<'a>(
    step: &'static Step,
    of: &'a StepRun,
    dtype: Dtype,
) -> impl Iterator<Item = (usize, &'static str, &'a VersionRun)> {
    of.versions.iter().filter(move |version| version.dtype == dtype).map(|version| {
        let index = step.versions.iter().position(|known| known.id == version.version).unwrap_or(step.versions.len());
        (index, step.versions.get(index).map_or("no longer there", |known| known.title), version)
    })
}

/// Whether a point's mark is filled: it is right, current, in memory, and its times count.
pub(super) fn is_good(step: &Step, run: &LabRun, version: &VersionRun, point: &PointRun) -> bool {
    counts(&run.machine, version.dtype, point).is_ok()
        && rightness(version).is_right()
        && !evidence::is_stale(step.id, version)
        && point.label == Label::Memory
}

/// What is shown while the pointer is on a point.
pub(super) fn hover(title: &str, version: &VersionRun, point: &PointRun) -> String {
    let rate = rate(point).map_or(0.0, |rate| rate.value);
    let mut words = format!(
        "{title}, {} at {}: {} in {} ms",
        version.dtype,
        text::shape(point.shape),
        text::rate(rate, unit(point)),
        text::milliseconds(median(&point.milliseconds))
    );
    if let Some(fraction) = fraction(point) {
        let _ =
            write!(words, ", {} ({}) of {}", text::percent(fraction.value), text::interval(&fraction), point.ceiling);
    }
    if point.label == Label::L2 {
        words.push_str(", from the second-level cache");
    }
    words
}

fn bars(
    step: &'static Step,
    of: &StepRun,
    run: &LabRun,
    (dtype, shape, ceiling): (Dtype, Shape, Ceiling),
) -> Option<Drawing> {
    let rows: Vec<Bar> = versions(step, of, dtype)
        .filter_map(|(index, title, version)| {
            let point = version.points.iter().find(|point| !point.sweep && point.shape == shape)?;
            let part = fraction(point)?;
            Some(Bar {
                label: format!("{}. {}", index + 1, version.version),
                value: part.value,
                interval: (part.low, part.high),
                text: text::percent(part.value),
                hover: hover(title, version, point),
                ink: Ink::of(index),
                hollow: !is_good(step, run, version, point),
            })
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut rules = vec![Rule { at: 1.0, label: format!("{ceiling}, measured beside it"), dashed: false }];
    let asks = |who: &str, of: &Criterion| {
        let test = of.tests.iter().find(|test| (test.dtype, test.shape, test.ceiling) == (dtype, shape, ceiling))?;
        let percent = text::percent(test.at_least);
        Some(Rule { at: test.at_least, label: format!("{who}: {percent}"), dashed: true })
    };
    rules.extend(asks("the plan", &step.plan));
    rules.extend(asks("our bar", &step.bar));
    let drawing = Bars {
        title: format!("Of {ceiling}, {dtype} at {}", text::shape(shape)),
        axis: format!("fraction of {ceiling}"),
        rows,
        rules,
    };
    Some(drawing.drawing())
}

/// Rates over sizes, a line a version, where more than one size was measured.
fn sizes(step: &'static Step, of: &StepRun, run: &LabRun, dtype: Dtype) -> Option<Drawing> {
    let (mut lines, mut marks, mut top) = (Vec::new(), Vec::new(), 0.0_f64);
    let mut ceiling: Vec<(f64, f64)> = Vec::new();
    for (index, title, version) in versions(step, of, dtype) {
        let mut points: Vec<&PointRun> =
            version.points.iter().filter(|point| matches!(point.shape, Shape::Vector(_))).collect();
        points.sort_by_key(|point| point.bytes);
        if points.len() < 2 {
            continue;
        }
        let at = |point: &PointRun| Some((point.bytes as f64, rate(point)?.value));
        lines.push(Line {
            points: points.iter().filter_map(|point| at(point)).collect(),
            ink: Ink::of(index),
            dashed: false,
            label: String::new(),
        });
        let last = points.len() - 1;
        for (place, point) in points.iter().enumerate() {
            let Some(at) = at(point) else { continue };
            top = top.max(at.1);
            // The ceilings beside all versions of a size are of the same thing.
            if let Some(beside) = Some(median(&point.ceiling_samples)).filter(|beside| beside.is_finite()) {
                match ceiling.iter_mut().find(|(bytes, _)| (*bytes - at.0).abs() < 0.5) {
                    Some((_, best)) => *best = best.max(beside),
                    None => ceiling.push((at.0, beside)),
                }
            }
            marks.push(Mark {
                at,
                ink: Ink::of(index),
                sign: if place == last { (index + 1).to_string() } else { String::new() },
                label: if place == last { title.to_owned() } else { String::new() },
                hover: hover(title, version, point),
                filled: is_good(step, run, version, point),
                below: 0.0,
            });
        }
    }
    part_ends(&mut marks);
    ceiling.sort_by(|a, b| a.0.total_cmp(&b.0));
    let top = ceiling.iter().map(|point| point.1).fold(top, f64::max).max(run.machine.datasheet_bandwidth_gb_per_s?);
    let x = range(marks.iter().map(|mark| mark.at.0), 1.6)?;
    lines.push(Line {
        points: ceiling,
        ink: Ink::Faint,
        dashed: true,
        label: "its ceiling, measured beside it".to_owned(),
    });
    let sheet = run.machine.datasheet_bandwidth_gb_per_s?;
    lines.push(Line {
        points: vec![(x.0, sheet), (x.1, sheet)],
        ink: Ink::Faint,
        dashed: false,
        label: format!("data sheet, {sheet:.0} GB/s"),
    });
    let chart = Chart {
        title: format!("{} over sizes, {dtype} (hollow: from the cache)", step.title),
        x: Axis::round("bytes that must move", x),
        y: Axis::from_zero("GB/s", top),
        lines,
        marks,
    };
    Some(chart.drawing())
}

/// The numbers at the lines' ends stand below each other, the fastest one on top.
fn part_ends(marks: &mut [Mark]) {
    let mut ends: Vec<&mut Mark> = marks.iter_mut().filter(|mark| !mark.sign.is_empty()).collect();
    ends.sort_by(|a, b| b.at.1.total_cmp(&a.at.1));
    for (rank, mark) in ends.into_iter().enumerate() {
        mark.below = 20.0 * rank as f64;
    }
}

/// Rates over the bytes that a multiprocessor has under way, where the versions say it.
fn in_flight(step: &'static Step, of: &StepRun, run: &LabRun) -> Option<Drawing> {
    let dtype = of.versions.first()?.dtype;
    let marks: Vec<Mark> = versions(step, of, dtype)
        .filter_map(|(index, title, version)| {
            let point = version.points.iter().find(|point| !point.sweep)?;
            let bytes = point.in_flight_bytes.filter(|&bytes| bytes > 0)?;
            Some(Mark {
                at: (bytes as f64 / 1024.0, rate(point)?.value),
                ink: Ink::of(index),
                sign: (index + 1).to_string(),
                label: format!("{}: {} KiB", version.version, bytes / 1024),
                hover: format!("{}; {bytes} bytes in flight a multiprocessor", hover(title, version, point)),
                filled: is_good(step, run, version, point),
                below: 0.0,
            })
        })
        .collect();
    if marks.len() < 2 {
        return None;
    }
    let x = range(marks.iter().map(|mark| mark.at.0), 1.6)?;
    let sheet = run.machine.datasheet_bandwidth_gb_per_s?;
    let chart = Chart {
        title: format!("{} over bytes in flight", step.title),
        x: Axis::round("KiB in flight on each multiprocessor", x),
        y: Axis::from_zero("GB/s", marks.iter().map(|mark| mark.at.1).fold(sheet, f64::max)),
        lines: vec![Line {
            points: vec![(x.0, sheet), (x.1, sheet)],
            ink: Ink::Faint,
            dashed: false,
            label: format!("data sheet, {sheet:.0} GB/s"),
        }],
        marks,
    };
    Some(chart.drawing())
}
