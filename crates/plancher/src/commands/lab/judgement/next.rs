//! What to try next: what usually mends a failure, or what our next faster version does.

use plancher_lab::Step;
use plancher_lab::record::{Case, FailureKind, LabRun, Machine, StepRun, VersionRun};
use plancher_lab::verdict::{Rightness, Status, counts, criterion, fastest_first, fraction};

use super::super::evidence;

/// The next thing to try: mend what is wrong, else what our next faster version does.
pub(super) fn next(
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
        sanitizer: Vec::new(),
        failure: None,
    };
    match criterion(&step.bar, Some(&alone), machine).status {
        Status::Missed => {
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
