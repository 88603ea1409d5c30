//! Step 4's verdict: the explanations of all versions of all steps, held against their profiles.

use super::criterion::Status;
use super::point::counts;
use super::rightness::rightness;
use crate::profile::{Explanation, counted, explanation};
use crate::record::{LabRun, Machine, ProfileRun, StepRun, VersionRun};
use crate::{Dtype, Step, catalogue};

/// One version's explanation, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The step.
    pub step: &'static str,
    /// The version.
    pub version: &'static str,
    /// Its numbers.
    pub dtype: Dtype,
    /// The profile: a profiler's where one was recorded, else counted.
    pub profile: ProfileRun,
    /// What came of it.
    pub explanation: Explanation,
}

impl Explained {
    /// Whether a profiler was asked.
    #[must_use]
    pub fn is_profiled(&self) -> bool {
        self.profile.source != "counted"
    }
}

/// The explanation of a version; `None` where it is not right, or nothing that counts was measured.
#[must_use]
pub fn explained(step: &'static Step, run: &StepRun, version: &VersionRun, machine: &Machine) -> Option<Explained> {
    let known = step.version(&version.version).ok()?;
    let recorded =
        run.profile.iter().find(|profile| (&profile.version, profile.dtype) == (&version.version, version.dtype));
    let profile = match recorded {
        Some(profile) => profile.clone(),
        None if !rightness(version).is_right() => return None,
        None => {
            let point = version.points.iter().find(|point| !point.sweep)?;
            counts(machine, version.dtype, point).ok()?;
            counted(machine, version, point)?
        }
    };
    let work = step.operation.zip(profile.shape);
    let changes = catalogue::corrections(step, known, version.dtype);
    let explanation = explanation(&known.prediction, changes, known.dtypes.first().copied(), &profile, work);
    Some(Explained { step: step.id, version: known.id, dtype: version.dtype, profile, explanation })
}

/// The explanations of everything in a run.
#[must_use]
pub fn explanations(run: &LabRun) -> Vec<Explained> {
    let of_step = |of: &StepRun| -> Vec<Explained> {
        let Ok(step) = catalogue::step(&of.step) else { return Vec::new() };
        of.versions.iter().filter_map(|version| explained(step, of, version, &run.machine)).collect()
    };
    run.steps.iter().flat_map(of_step).collect()
}

/// What came of the plan's criterion and of ours: the plan's may be counted, ours asks a profiler.
#[must_use]
pub fn of_explanations(explained: &[Explained]) -> (Status, Status) {
    let told: Vec<&Explained> = explained.iter().filter(|one| one.explanation.is_told()).collect();
    if told.is_empty() {
        return (Status::NotMeasured, Status::NotMeasured);
    }
    if told.iter().any(|one| !one.explanation.holds()) {
        return (Status::Missed, Status::Missed);
    }
    let profiled = told.iter().all(|one| one.is_profiled());
    (Status::Passed, if profiled { Status::Passed } else { Status::NotMeasured })
}
