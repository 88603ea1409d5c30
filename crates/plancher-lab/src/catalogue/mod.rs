//! The steps and their versions, as data: what is run, what is predicted, what is to be learned.

mod corrections;
mod gemm;
mod gemm_fast;
mod later;
mod profiling;
mod reduction;
mod saxpy;
mod transpose;
mod wavefronts;

pub use corrections::{claims, corrections};
pub use later::{LATER, Later};
pub use wavefronts::operations_per_shared_byte;

use crate::{LabError, Result, Step};

/// Every step that is here, in the plan's order.
pub static STEPS: &[&Step] =
    &[&saxpy::STEP, &transpose::STEP, &reduction::STEP, &profiling::STEP, &gemm::STEP, &gemm_fast::STEP];

/// Versions, each with its step, that promise the same bits for the same numbers wherever their arrays begin.
const SAME_BITS_ANYWHERE: [(&str, &str); 1] = [("reduction", "deterministic")];

/// Whether a version promises the same bits for the same numbers wherever its arrays begin.
#[must_use]
pub fn same_bits_anywhere(step: &str, version: &str) -> bool {
    SAME_BITS_ANYWHERE.contains(&(step, version))
}

/// The step called `name`, by its id or its number.
///
/// # Errors
/// If there is none, or it is not here yet.
pub fn step(name: &str) -> Result<&'static Step> {
    let found = STEPS.iter().find(|step| step.id == name || step.number.to_string() == name);
    if let Some(later) = LATER.iter().find(|later| later.id == name || later.number.to_string() == name) {
        return Err(LabError::Unsupported(format!("step {} (`{}`) is not here yet", later.number, later.id)));
    }
    found.copied().ok_or_else(|| LabError::Unknown {
        what: "step",
        name: name.to_owned(),
        known: STEPS.iter().map(|step| step.id).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_id_and_number() {
        assert_eq!(step("saxpy").expect("there").number, 1);
        assert_eq!(step("5").expect("there").id, "gemm");
        assert_eq!(step("9").expect_err("later").to_string(), "step 9 (`attention`) is not here yet");
        let numbers = STEPS.iter().map(|step| step.number).chain(LATER.iter().map(|later| later.number));
        assert!(numbers.eq(1..=12));
        let error = step("tea").expect_err("no such step").to_string();
        assert!(error.starts_with("there is no step `tea`: the lab has saxpy, "), "{error}");
    }

    #[test]
    fn what_promises_the_same_bits_is_there_and_repeats_its_own() {
        for (id, version) in SAME_BITS_ANYWHERE {
            assert!(step(id).and_then(|step| step.version(version)).expect("there").deterministic);
        }
        assert!(same_bits_anywhere("reduction", "deterministic") && !same_bits_anywhere("reduction", "two_level"));
    }

    #[test]
    fn every_version_says_how_it_is_launched_and_has_a_name_of_its_own() {
        for step in STEPS {
            for (index, version) in step.versions.iter().enumerate() {
                let (id, file) = (version.id, version.file);
                version.directives().expect("its directives are right");
                assert!(step.versions[..index].iter().all(|other| other.id != id), "{}: {id} is there twice", step.id);
                assert_eq!(file, format!("{}/{}_{id}.cu", step.id, index + 1));
                assert!(version.source.starts_with("// "), "{file} does not say what it is for");
                assert!(!version.source.contains("#include"), "{file} includes something");
                let (low, high) = version.prediction.fraction;
                assert!(0.0 < low && low < high, "{file}");
                let points = |dtype| step.points_of(dtype).count();
                assert!(version.dtypes.iter().all(|&dtype| points(dtype) > 0), "{file} is not timed");
            }
            for test in step.plan.tests.iter().chain(step.bar.tests) {
                let known = |id| step.versions.iter().any(|version| version.id == id);
                assert!(test.version.is_none_or(known), "{}: {:?}", step.id, test.version);
                let timed = step.points.iter().any(|point| (point.dtype, point.shape) == (test.dtype, test.shape));
                assert!(timed, "{}: {} {} is not timed", step.id, test.dtype, test.shape);
            }
        }
    }
}
