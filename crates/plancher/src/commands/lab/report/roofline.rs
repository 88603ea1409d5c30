//! Rooflines of the matrix products: which memory, at how many operations for each of its bytes, keeps a version below the
//! arithmetic. Shared memory explains where the textbook tile stops; the second-level cache what the size of a tile is for.

use plancher_lab::catalogue::operations_per_shared_byte;
use plancher_lab::record::{LabRun, StepRun, VersionRun};
use plancher_lab::step::Ceiling;
use plancher_lab::verdict::{median, rate};
use plancher_lab::{Dtype, Grid, Step};

use super::charts::{hover, is_good, versions};
use crate::drawing::Drawing;
use crate::drawing::chart::{Axis, Chart, Ink, Line, Mark, range};
use crate::output::significant;

/// The rooflines of a step in one type of numbers.
pub(super) fn of_step(step: &'static Step, of: &StepRun, run: &LabRun, dtype: Dtype) -> Vec<Drawing> {
    let drawings = [shared_memory(step, of, run, dtype), second_level_cache(step, of, run, dtype)];
    drawings.into_iter().flatten().collect()
}

/// A multiprocessor takes 128 bytes from shared memory in the clock in which its 128 lanes do an FMA each: as many bytes as
/// half its operations.
fn shared_memory(step: &'static Step, of: &StepRun, run: &LabRun, dtype: Dtype) -> Option<Drawing> {
    let peak = run.machine.datasheet_tflops.fp32.filter(|_| dtype == Dtype::F32)?;
    let intensity = |version: &VersionRun| operations_per_shared_byte(step.id, &version.version);
    chart(step, of, run, dtype, intensity, ("shared memory", peak / 2.0, peak))
}

/// A block whose tile has R rows and C columns fetches R + C numbers for every R x C products, if it keeps them in shared
/// memory: the versions that do not are not drawn.
fn second_level_cache(step: &'static Step, of: &StepRun, run: &LabRun, dtype: Dtype) -> Option<Drawing> {
    let peaks = &run.machine.datasheet_tflops;
    let peak = if dtype == Dtype::F32 { peaks.fp32 } else { peaks.bf16 }?;
    let cache = run.steps.iter().flat_map(|step| &step.ceilings).find(|ceiling| ceiling.name == Ceiling::L2)?;
    let intensity = |version: &VersionRun| {
        let known = step.version(&version.version).ok()?;
        let of_shared_memory = |name: &&str| ["LDS", "HGMMA"].iter().any(|start| name.starts_with(start));
        known.instructions.iter().find(|name| of_shared_memory(name))?;
        let Grid::Tile { columns, rows } = known.directives().ok()?.grid else { return None };
        Some(2.0 * (rows * columns) as f64 / (dtype.bytes() * (rows + columns)) as f64)
    };
    chart(step, of, run, dtype, intensity, ("the second-level cache", median(&cache.samples) / 1e3, peak))
}

/// A roofline over the operations for each byte of `memory`, which gives `bandwidth` TB/s, below `peak` TFLOP/s.
fn chart(
    step: &'static Step,
    of: &StepRun,
    run: &LabRun,
    dtype: Dtype,
    intensity: impl Fn(&VersionRun) -> Option<f64>,
    (memory, bandwidth, peak): (&str, f64, f64),
) -> Option<Drawing> {
    let found: Vec<_> = versions(step, of, dtype)
        .filter_map(|(index, title, version)| {
            let point = version.points.iter().find(|point| !point.sweep)?;
            Some((index, title, version, point, (intensity(version)?, rate(point)?.value)))
        })
        .collect();
    let library = found.first().map(|(_, _, _, point, _)| median(&point.ceiling_samples))?;
    let marks: Vec<Mark> = found
        .into_iter()
        .map(|(index, title, version, point, at)| Mark {
            at,
            ink: Ink::of(index),
            sign: (index + 1).to_string(),
            label: format!("{}: {} FLOP a byte", version.version, significant(at.0, 3)),
            hover: format!("{}; {} FLOP a byte of {memory}", hover(title, version, point), significant(at.0, 3)),
            filled: is_good(step, run, version, point),
            below: 0.0,
        })
        .collect();
    let ridge = peak / bandwidth;
    let x = range(marks.iter().map(|mark| mark.at.0).chain([ridge]), 2.0)?;
    let y = range(marks.iter().map(|mark| mark.at.1).chain([peak, bandwidth * x.0]), 1.4)?;
    let flat = |value: f64, from: f64, ink, dashed, label: String| Line {
        points: vec![(from, value), (x.1, value)],
        ink,
        dashed,
        label,
    };
    let mut lines = vec![
        Line {
            points: vec![(x.0, bandwidth * x.0), (ridge, peak)],
            ink: Ink::Faint,
            dashed: false,
            label: format!("{memory}, {} TB/s", significant(bandwidth, 3)),
        },
        flat(peak, ridge, Ink::Faint, false, format!("arithmetic by the data sheet, {peak:.0} TFLOP/s")),
    ];
    if library.is_finite() {
        lines.push(flat(library, x.0, Ink::First, true, format!("cuBLAS, {} TFLOP/s", significant(library, 3))));
    }
    let chart = Chart {
        title: format!("{dtype}: roofline of {memory}"),
        x: Axis::round(format!("FLOP for each byte of {memory}"), x),
        y: Axis::round("TFLOP/s", y),
        lines,
        marks,
    };
    Some(chart.drawing())
}
