//! What is said of a learner's kernel: three parts and the next thing to try. Only what was recorded decides, so that all of
//! it can be tested without a GPU.

use std::fmt::Write as _;

use plancher_lab::record::{Case, CaseRun, FailureKind, LabRun, Machine, PointRun, StepRun, VersionRun};
use plancher_lab::verdict::{
    Rightness, counts, criterion, datasheet_fraction, fastest_first, fraction, median, rate, rightness, unit,
};
use plancher_lab::{Dtype, Step};
use serde::Serialize;

use super::{evidence, text};

/// A verdict on a kernel in one type of numbers.
#[derive(Debug, Serialize)]
pub(super) struct Judgement {
    dtype: Dtype,
    gpu: String,
    /// Whether it is right.
    right: bool,
    /// The same in words: which case fails, where, what was expected.
    rightness: String,
    /// How fast it is, a line for each size.
    speed: Vec<String>,
    /// What limits it, as far as it was counted.
    limits: Vec<String>,
    /// What to try next.
    next: String,
}

/// The verdicts on all that was measured of a file; `ours` is a recorded run of our versions.
pub(super) fn of_run(step: &'static Step, run: &LabRun, ours: Option<&LabRun>) -> Vec<Judgement> {
    let versions = run.steps.iter().flat_map(|of| &of.versions);
    versions.map(|version| of_version(step, version, &run.machine, ours)).collect()
}

impl Judgement {
    /// As it is printed.
    pub(super) fn text(&self, file: &str, step: &Step) -> String {
        let mut out = format!("{file} as `{}` in {} on {}\n", step.id, self.dtype, self.gpu);
        let mut part = |name: &str, lines: &[String]| {
            for (index, line) in lines.iter().enumerate() {
                let first = format!("{:<8} ", if index == 0 { name } else { "" });
                let rest = " ".repeat(9);
                let options = textwrap::Options::new(text::WIDTH).initial_indent(&first).subsequent_indent(&rest);
                for line in textwrap::wrap(line, options.break_words(false)) {
                    out.push_str(line.trim_end());
                    out.push('\n');
                }
            }
        };
        part("right?", std::slice::from_ref(&self.rightness));
        part("fast?", &self.speed);
        part("limits", &self.limits);
        part("next", std::slice::from_ref(&self.next));
        out
    }
}

fn of_version(step: &'static Step, version: &VersionRun, machine: &Machine, ours: Option<&LabRun>) -> Judgement {
    let right = rightness(version);
    let (is_right, points) = (right.is_right(), || version.points.iter().filter(|point| !point.sweep));
    let speed = if is_right {
        points().map(|point| speed(step, version, point, machine, ours)).collect()
    } else {
        vec!["not timed: a wrong kernel has no speed.".to_owned()]
    };
    Judgement {
        dtype: version.dtype,
        gpu: machine.gpu.clone(),
        right: is_right,
        rightness: right_words(&right, version),
        speed,
        limits: limits(version, points().next(), machine),
        next: next(step, version, &right, machine, ours),
    }
}

fn right_words(right: &Rightness<'_>, version: &VersionRun) -> String {
    match right {
        Rightness::Right { error, not_taken } => {
            let taken =
                if *not_taken == 0 { "all five cases".to_owned() } else { format!("{} of five cases", 5 - not_taken) };
            let error = if *error == 0.0 {
                "every bit".to_owned()
            } else {
                format!("error at most {:.0} % of what is allowed", 100.0 * error)
            };
            let rest =
                version.cases.iter().filter_map(|case| Some(format!("{}: {}", case.case, case.not_taken.as_ref()?)));
            let rest: Vec<String> = rest.collect();
            let rest = if rest.is_empty() { String::new() } else { format!(" ({})", rest.join("; ")) };
            format!("yes: {taken}, {error}{rest}.")
        }
        Rightness::Wrong(_) | Rightness::Untried(_) => {
            let words = version.cases.iter().filter_map(case_words).collect::<Vec<_>>();
            format!("NO: {}.", if words.is_empty() { "not all cases were tried".to_owned() } else { words.join("; ") })
        }
        Rightness::NotRun(reason) => format!("NO: {reason}."),
    }
}

/// A case that fails, in words.
fn case_words(case: &CaseRun) -> Option<String> {
    let named = |text: &str| format!("case `{}`: {text}", case.case);
    match &case.failure {
        Some(failure) => Some(named(&failure.text)),
        None if case.not_taken.is_some() || case.error == 0.0 || case.error <= case.limit => None,
        None => Some(named(&format!("the error is {:.3} of what is honest, and {} passes", case.error, case.limit))),
    }
}

/// One size: rate, fraction, and where it stands between our versions.
fn speed(
    step: &'static Step,
    version: &VersionRun,
    point: &PointRun,
    machine: &Machine,
    ours: Option<&LabRun>,
) -> String {
    let size = text::shape(point.shape);
    if let Err(reason) = counts(machine, version.dtype, point) {
        return format!("INVALID at {size}: {reason}.");
    }
    let rate = rate(point).map_or(0.0, |rate| rate.value);
    let time = text::milliseconds(median(&point.milliseconds));
    let mut words = format!("{} at {size} ({time} ms)", text::rate(rate, unit(point)));
    let Some(part) = fraction(point) else { return words + "." };
    let _ = write!(words, ", {} ({}) of {}", text::percent(part.value), text::interval(&part), point.ceiling);
    if let Some(ours) = ours {
        words.push_str(&standing(step, version.dtype, point, ours));
    }
    words + "."
}

/// Between which of ours, or as fast as which.
fn standing(step: &Step, dtype: Dtype, point: &PointRun, ours: &LabRun) -> String {
    let (Some(of_step), Some(part)) = (evidence::step(ours, step.id), fraction(point)) else { return String::new() };
    let order: Vec<(String, f64, bool)> = fastest_first(of_step, &ours.machine, dtype, point.shape)
        .iter()
        .filter_map(|(version, point)| {
            let other = fraction(point)?;
            let words = format!("`{}` ({})", version.version, text::percent(other.value));
            Some((words, other.value, other.overlaps(&part)))
        })
        .collect();
    let equal: Vec<&str> = order.iter().filter(|(_, _, equal)| *equal).map(|(words, _, _)| words.as_str()).collect();
    if !equal.is_empty() {
        return format!(": not to be told from {}", equal.join(", "));
    }
    let above = order.iter().rev().find(|(_, value, _)| *value > part.value);
    let below = order.iter().find(|(_, value, _)| *value < part.value);
    match (above, below) {
        (Some((above, ..)), Some((below, ..))) => format!(": between {below} and {above}"),
        (None, Some((below, ..))) => format!(": faster than our best, {below}"),
        (Some((above, ..)), None) => format!(": slower than our slowest, {above}"),
        (None, None) => String::new(),
    }
}

fn limits(version: &VersionRun, point: Option<&PointRun>, machine: &Machine) -> Vec<String> {
    let mut lines = Vec::new();
    let counted = point.filter(|point| counts(machine, version.dtype, point).is_ok());
    if let Some(point) = counted {
        let sheet = datasheet_fraction(machine, version.dtype, point);
        let of_sheet =
            sheet.map_or_else(String::new, |part| format!(", {} of the data sheet's", text::percent(part.value)));
        let bytes = point.bytes as f64 / 1e9;
        let flops = point.flops as f64 / 1e12;
        let rate = rate(point).map_or(0.0, |rate| rate.value);
        lines.push(format!(
            "it must move {} and do {}: {}{of_sheet}.",
            text::rate(bytes, "GB"),
            text::rate(flops, "TFLOP"),
            text::rate(rate, unit(point))
        ));
        if let Some(bytes) = point.in_flight_bytes {
            lines.push(format!("{} KiB in flight on each multiprocessor.", bytes / 1024));
        }
    }
    if let Some(resources) = &version.resources {
        let spills = if resources.spill_bytes == 0 {
            "no spills".to_owned()
        } else {
            format!("{} bytes a thread SPILLED", resources.spill_bytes)
        };
        lines.push(format!(
            "{} registers, {spills}, {} bytes of shared memory a block; {} blocks of {} threads on a multiprocessor, more kept away \
             by {}.",
            resources.registers,
            resources.shared_bytes,
            resources.blocks_per_multiprocessor,
            resources.threads,
            resources.limiter
        ));
    }
    lines
}

/// The next thing to try: mend what is wrong, else what our next faster version does.
fn next(
    step: &'static Step,
    version: &VersionRun,
    right: &Rightness<'_>,
    machine: &Machine,
    ours: Option<&LabRun>,
) -> String {
    if !right.is_right() {
        return mend(version);
    }
    if let Some(reason) = version.points.iter().find_map(|point| counts(machine, version.dtype, point).err()) {
        return format!("find out how a time can be that cannot be: {reason}.");
    }
    if version.resources.as_ref().is_some_and(|resources| resources.spill_bytes > 0) {
        return "keep less in registers, or let a block have fewer threads: what spills is written to memory and read again."
            .to_owned();
    }
    let point = version.points.iter().find(|point| !point.sweep);
    let of_step = ours.and_then(|ours| Some((ours, evidence::step(ours, step.id)?)));
    if let (Some(point), Some((ours, of_step))) = (point, of_step)
        && let Some(part) = fraction(point)
    {
        let order = fastest_first(of_step, &ours.machine, version.dtype, point.shape);
        let faster = order.iter().rev().find(|(_, other)| fraction(other).is_some_and(|other| other.low > part.high));
        if let Some(known) = faster.and_then(|(faster, _)| step.version(&faster.version).ok()) {
            return format!("{} (`{}`): {}", known.title, known.id, known.change);
        }
    }
    let alone = StepRun {
        step: step.id.to_owned(),
        versions: vec![version.clone()],
        ceilings: Vec::new(),
        profile: Vec::new(),
        failure: None,
    };
    match criterion(&step.bar, Some(&alone), machine).status {
        plancher_lab::verdict::Status::Missed => {
            format!("our bar is missed ({}): `lab explain {}` shows what our versions do.", step.bar.text, step.id)
        }
        _ => "nothing that we know: explain why it is as fast as it is, and go on to the next step.".to_owned(),
    }
}

/// What a failure usually comes from.
fn mend(version: &VersionRun) -> String {
    let failed = version.cases.iter().find_map(|case| Some((case.case, case.failure.as_ref()?.kind)));
    let words = match failed {
        None => "make it compile and run: `lab check --compile-only` says what the compiler and the directives say.",
        Some((_, FailureKind::Hang)) => {
            "look for a barrier that not all threads of a block reach, and for a loop whose end a thread never sees."
        }
        Some((_, FailureKind::Fault | FailureKind::Crash)) => {
            "look for an address that is not yours: an index that is not compared with the size, or a vector load from an \
             address that is no multiple of its width."
        }
        Some((_, FailureKind::OutOfBounds)) => "compare every index with the size before it is written to.",
        Some((_, FailureKind::InputChanged)) => "write to the result only: something was written to an input.",
        Some((_, FailureKind::NotWritten)) => {
            "make the grid cover every element: count blocks x threads x elements of a thread, and what is left at the end."
        }
        Some((_, FailureKind::TooPrecise)) => {
            "compute in the type that is asked for: this is more exact than it can be."
        }
        Some((_, FailureKind::NotRepeatable | FailureKind::TimedLaunchWrong)) => {
            "look for a race: threads that read what others write, without a barrier between, or a barrier that is missing \
             before the next round."
        }
        Some((Case::Tails, _)) => "treat the end: the sizes of this case are multiples of nothing.",
        Some((Case::EmptyAndOne, _)) => "treat nothing and one element: a size of 0 is launched too.",
        Some((Case::Misaligned, _)) => {
            "treat views that begin at any element: use vectors only where the address is a multiple of 16 bytes."
        }
        Some((Case::Extreme, _)) => {
            "let infinities, NaN, large and tiny numbers come out as arithmetic has them: no products with 0 to mask, no fast \
             division, and sums in an order that does not overflow."
        }
        Some((Case::Nominal, _)) => {
            "look at the first wrong element: which thread should have written it, from which inputs?"
        }
    };
    words.to_owned()
}
