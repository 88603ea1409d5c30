//! `check` on files as learners write them: ten that are wrong, each in another way, and three that are right.

use std::io::Write as _;
use std::time::Duration;

use plancher_lab::catalogue::step;
use plancher_lab::engine::{CheckOptions, CheckReport, check};
use plancher_lab::record::{Case, Failure, FailureKind, VersionRun};
use plancher_lab::verdict::{Rightness, rightness};

use crate::common::{SILENCE, child, gpu};

/// Checks a file; nothing where there is no GPU.
fn checked(step_id: &str, text: &str, silence: Duration) -> Option<CheckReport> {
    gpu()?;
    let mut file = tempfile::Builder::new().suffix(".cu").tempfile().expect("a file");
    file.write_all(text.as_bytes()).expect("writable");
    let options = CheckOptions { quick: true, child: child(), silence };
    let step = step(step_id).expect("there is such a step");
    Some(check(step, file.path(), &options, &mut |_| {}).expect("it can be checked"))
}

/// The first failure of the first number type.
fn failure(report: &CheckReport) -> &Failure {
    let version = &report.run.steps[0].versions[0];
    assert!(version.points.is_empty(), "what is wrong is not timed");
    let failure = version.cases.iter().find_map(|case| case.failure.as_ref());
    failure.unwrap_or_else(|| panic!("it passed: {version:?}"))
}

/// `wrong!(name, step, "file", kind, part of the text)`.
macro_rules! wrong {
    ($name:ident, $step:literal, $file:literal, $kind:ident, $part:literal) => {
        #[test]
        fn $name() {
            let text = include_str!(concat!("../kernels/wrong_", $file, ".cu"));
            let Some(report) = checked($step, text, SILENCE) else { return };
            let failure = failure(&report);
            assert_eq!(failure.kind, FailureKind::$kind, "{failure:?}");
            assert!(failure.text.contains($part), "{failure:?}");
            assert_eq!(failure.text.lines().count(), 1, "{failure:?}");
        }
    };
}

wrong!(the_last_element_is_missing, "saxpy", "off_by_one", WrongValue, "at 1: element 0 of `y` is wrong: it should be");
wrong!(additions_are_lost_in_a_race, "reduction", "race", WrongValue, "the sum of `sums` is wrong");
wrong!(rows_have_the_wrong_stride, "transpose", "stride", WrongValue, "of `out` is wrong");
wrong!(there_is_no_bounds_check, "saxpy", "no_bounds_check", OutOfBounds, "something was written from 0 to");
wrong!(nan_comes_from_nowhere, "saxpy", "nan", Nan, "element 99 of `y` is wrong");
wrong!(sums_are_in_double_precision, "gemm", "double_precision", TooPrecise, "higher precision");
wrong!(nothing_is_written, "gemm", "nothing_written", NotWritten, "was never written");
wrong!(half_of_the_rows_are_missing, "transpose", "half_the_array", NotWritten, "was never written");

#[test]
fn threads_that_wait_for_ever_are_reported_as_a_hang() {
    let text = include_str!("../kernels/wrong_deadlock.cu");
    let Some(report) = checked("saxpy", text, Duration::from_secs(8)) else { return };
    let failure = failure(&report);
    assert_eq!(failure.kind, FailureKind::Hang, "{failure:?}");
    assert_eq!(failure.text, "case `empty and one`, 0: it did not end within 8 s");
    // The device works again, for the next file.
    let Some(next) = checked("saxpy", include_str!("../kernels/right_saxpy.cu"), SILENCE) else { return };
    assert!(rightness(&next.run.steps[0].versions[0]).is_right());
}

#[test]
fn parameters_of_the_wrong_type_are_refused() {
    let text = include_str!("../kernels/wrong_type.cu");
    let Some(report) = checked("saxpy", text, SILENCE) else { return };
    let Rightness::NotRun(reason) = rightness(&report.run.steps[0].versions[0]) else { panic!("{report:?}") };
    assert!(reason.contains("`saxpy` takes (double, const double *, double *, unsigned long long)"), "{reason}");
}

/// What a right file's report says.
fn right(step_id: &str, text: &str) -> Option<VersionRun> {
    let report = checked(step_id, text, SILENCE)?;
    let version = report.run.steps[0].versions[0].clone();
    assert!(rightness(&version).is_right(), "{version:?}");
    assert_eq!(version.cases.len(), Case::ALL.len());
    assert!(!version.points.is_empty() && version.resources.is_some());
    for point in &version.points {
        assert!(point.failure.is_none() && point.verified > 0, "{point:?}");
        assert_eq!(point.ceiling_samples.len(), point.milliseconds.len());
    }
    Some(version)
}

#[test]
fn a_plain_saxpy_is_right_and_is_timed() {
    right("saxpy", include_str!("../kernels/right_saxpy.cu"));
}

#[test]
fn a_plain_reduction_is_right_and_is_timed() {
    right("reduction", include_str!("../kernels/right_reduction.cu"));
}

#[test]
fn a_textbook_product_is_right_and_is_timed() {
    right("gemm", include_str!("../kernels/right_gemm.cu"));
}
