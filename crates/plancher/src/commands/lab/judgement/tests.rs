//! What is said of kernels that are right, slow, wrong, or too fast to be true.

use plancher_lab::catalogue;
use plancher_lab::record::{Case, Failure, FailureKind};
use plancher_lab::step::OccupancyLimiter;

use super::super::samples::{run, version};
use super::*;

/// What is said of a kernel beside three of ours.
fn said(mine: VersionRun) -> String {
    let step = catalogue::step("saxpy").expect("there");
    let mut ours = run(vec![version("scalar", 0.85), version("vectors", 0.97), version("unrolled", 0.99)]);
    // As they are in the catalogue.
    for version in &mut ours.steps[0].versions {
        version.source_sha256 = step.version(&version.version).expect("there").sha256();
    }
    of_run(step, &run(vec![mine]), Some(&ours)).iter().map(|judgement| judgement.text("mine.cu", step)).collect()
}

fn failing(case: Case, kind: FailureKind, text: &str) -> VersionRun {
    let mut mine = version("mine", 0.9);
    let failure = Failure { kind, shape: None, element: None, expected: None, got: None, text: text.to_owned() };
    for run in mine.cases.iter_mut().filter(|run| run.case == case) {
        run.failure = Some(failure.clone());
    }
    mine
}

#[test]
fn a_right_kernel_gets_three_parts_and_what_to_try_next() {
    insta::assert_snapshot!(said(version("mine", 0.9)));
}

#[test]
fn where_it_stands_is_told_without_more_than_can_be_told() {
    let standing = |fraction| {
        let text = said(version("mine", fraction)).replace("\n         ", " ");
        let line = text.lines().find(|line| line.starts_with("fast?")).expect("a line").to_owned();
        line.split_once("of triad").expect("a fraction").1.to_owned()
    };
    assert_eq!(standing(0.5), ": slower than our slowest, `scalar` (85.0 %).");
    assert_eq!(standing(0.9), ": between `scalar` (85.0 %) and `vectors` (97.0 %).");
    assert_eq!(standing(0.9701), ": not to be told from `vectors` (97.0 %).");
    assert_eq!(standing(1.1), ": faster than our best, `unrolled` (99.0 %).");
}

#[test]
fn a_wrong_kernel_is_told_where_and_what_usually_mends_it() {
    let tails = failing(Case::Tails, FailureKind::WrongValue, "129: element 128 should be 3.5 and is 0");
    insta::assert_snapshot!(said(tails));
    let hang = VersionRun {
        not_run: Some("case `tails`, 127: it did not end within 60 s".to_owned()),
        ..failing(Case::Tails, FailureKind::Hang, "it did not end within 60 s")
    };
    let hang = said(hang);
    assert!(hang.contains("NO: case `tails`, 127: it did not end within 60 s."), "{hang}");
    assert!(hang.contains("a barrier that not all threads"), "{hang}");
    for (kind, part) in [
        (FailureKind::Fault, "an address that is not yours"),
        (FailureKind::OutOfBounds, "compare every index"),
        (FailureKind::NotWritten, "make the grid cover"),
        (FailureKind::TooPrecise, "more exact than it can be"),
        (FailureKind::NotRepeatable, "look for a race"),
        (FailureKind::InputChanged, "write to the result only"),
    ] {
        let text = said(failing(Case::Nominal, kind, "something"));
        assert!(text.contains(part) && text.contains("not timed: a wrong kernel has no speed"), "{text}");
    }
}

#[test]
fn a_time_that_cannot_be_is_no_speed() {
    let text = said(version("mine", 1.3));
    assert!(text.contains("INVALID at 2^28: "), "{text}");
    assert!(text.contains("next     find out how a time can be that cannot be"), "{text}");
}

#[test]
fn spills_come_first() {
    let mut mine = version("mine", 0.9);
    if let Some(resources) = &mut mine.resources {
        resources.spill_bytes = 64;
    }
    let text = said(mine);
    assert!(text.contains("64 bytes a thread SPILLED") && text.contains("keep less in registers"), "{text}");
}

#[test]
fn what_a_profiler_saw_is_among_the_limits() {
    let step = catalogue::step("saxpy").expect("there");
    let mut of = run(vec![version("mine", 0.9)]);
    of.steps[0].profile.push(ProfileRun {
        version: "mine".to_owned(),
        dtype: Dtype::F32,
        shape: None,
        duration_us: 800.0,
        dram_bytes_read: Some(2.15e9),
        dram_bytes_written: Some(1.07e9),
        sol: [("memory".to_owned(), 88.0), ("arithmetic".to_owned(), 12.0)].into(),
        stalls: [("long_scoreboard".to_owned(), 0.8), ("wait".to_owned(), 0.1)].into(),
        bank_conflicts: Some(0.0),
        shared_passes: Some(1.0),
        sectors_per_request: Some(4.0),
        occupancy_percent: Some(91.0),
        occupancy_limiter: Some(OccupancyLimiter::Threads),
        also_limits: Vec::new(),
        source: "ncu 2025.3".to_owned(),
    });
    let text: String = of_run(step, &of, None).iter().map(|judgement| judgement.text("mine.cu", step)).collect();
    let text = text.replace("\n         ", " ");
    for part in [
        "by ncu 2025.3: memory 88 %; arithmetic 12 %; warps wait for long_scoreboard 80 % and wait 10 %",
        "2.15 GB read from memory and 1.07 written",
        "4.0 sectors a request; 0.00 bank conflicts a request; 91 % of the warps that fit are there.",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
