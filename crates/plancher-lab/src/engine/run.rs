//! `lab run`: steps of the catalogue, measured and put into a record.

use std::time::{Duration, Instant};

use super::date;
use super::parent::{ChildCommand, Measured, measure};
use super::protocol::{KernelRequest, Request};
use crate::record::{Case, CaseRun, Failure, LabRun, Machine, SCHEMA, StepRun, VersionRun};
use crate::step::sha256;
use crate::{Dtype, Result, Step};

/// What is run, and how.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The steps, in order.
    pub steps: Vec<&'static Step>,
    /// Only versions with these ids; all of them if empty.
    pub versions: Vec<String>,
    /// Fewer samples, and no series of sizes.
    pub quick: bool,
    /// How the measuring process is started.
    pub child: ChildCommand,
    /// How long that one may say nothing before it is ended.
    pub silence: Duration,
    /// The command line, for the record.
    pub argv: Vec<String>,
    /// The program's commit, for the record.
    pub commit: String,
    /// Whether it was built from changed files.
    pub dirty: bool,
}

/// Measures steps. `progress` gets a line before each thing that is done.
///
/// # Errors
/// If nothing can be measured here. What is wrong with a kernel is in the record.
pub fn run_steps(options: &RunOptions, progress: &mut dyn FnMut(&str)) -> Result<LabRun> {
    let (start, date) = (Instant::now(), date::now());
    let (mut machine, mut steps) = (None::<Machine>, Vec::new());
    for step in &options.steps {
        let request = request(step, options);
        if request.kernels.is_empty() {
            continue;
        }
        let mut named = |line: &str| progress(&format!("{} {line}", step.id));
        let answer = measure(&options.child, &request, options.silence, &mut named)?;
        machine = match (machine, answer.machine) {
            (Some(first), Some(last)) => Some(Machine { state_after: last.state_after, ..first }),
            (first, last) => first.or(last),
        };
        let kernels = request.kernels.iter().zip(answer.kernels);
        let versions = kernels.map(|(kernel, measured)| record(kernel, source(step, kernel), measured)).collect();
        steps.push(StepRun::measured(step.id, versions, answer.ceilings));
    }
    Ok(LabRun {
        schema: SCHEMA,
        argv: options.argv.clone(),
        commit: options.commit.clone(),
        dirty: options.dirty,
        date,
        machine: machine.unwrap_or_default(),
        steps,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// All versions of a step that are wanted, each with its number types.
fn request(step: &Step, options: &RunOptions) -> Request {
    let wanted = |id: &str| options.versions.is_empty() || options.versions.iter().any(|version| version == id);
    let kernel = |id: &str, dtype: Dtype| KernelRequest { version: id.to_owned(), dtype, text: None };
    let versions = step.versions.iter().filter(|version| wanted(version.id));
    let kernels = versions.flat_map(|version| version.dtypes.iter().map(|&dtype| kernel(version.id, dtype))).collect();
    Request { step: step.id.to_owned(), kernels, quick: options.quick, ceilings: true, launches_only: None }
}

fn source<'a>(step: &Step, kernel: &'a KernelRequest) -> &'a str {
    let version = step.version(&kernel.version).map(|version| version.source);
    kernel.text.as_deref().or(version.ok()).unwrap_or_default()
}

/// What was measured of a kernel, as the record has it.
pub(super) fn record(kernel: &KernelRequest, source: &str, measured: Measured) -> VersionRun {
    let Measured { options, resources, not_run, mut cases, points, ended, launches: _ } = measured;
    if let Some(ended) = ended {
        put(&mut cases, ended);
    }
    VersionRun {
        version: kernel.version.clone(),
        dtype: kernel.dtype,
        source_sha256: sha256(source),
        options,
        resources,
        not_run: not_run.map(|failure| failure.text),
        cases,
        points,
    }
}

/// A kernel that hung or crashed did so in the case behind the last one that was reported. If all five were, it did so at the
/// size that is timed, as the text says.
fn put(cases: &mut Vec<CaseRun>, ended: Failure) {
    let untried = Case::ALL.into_iter().find(|case| cases.iter().all(|run| run.case != *case));
    if let Some(case) = untried {
        let (shapes, error, limit) = (Vec::new(), 0.0, 0.0);
        cases.push(CaseRun { case, shapes, error, limit, failure: Some(ended), not_taken: None });
    } else if let Some(run) = cases.iter_mut().find(|run| run.case == Case::Nominal) {
        run.failure.get_or_insert(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FailureKind;

    #[test]
    fn a_hang_is_put_to_the_case_in_which_it_happened() {
        let kernel = KernelRequest { version: "mine".into(), dtype: Dtype::F32, text: None };
        let case = |case| CaseRun { case, shapes: Vec::new(), error: 0.0, limit: 1.0, failure: None, not_taken: None };
        let hang = Failure {
            kind: FailureKind::Hang,
            shape: None,
            element: None,
            expected: None,
            got: None,
            text: "case `tails`, 127: it did not end within 20 s".into(),
        };
        let measured = Measured { cases: vec![case(Case::ALL[0])], ended: Some(hang.clone()), ..Measured::default() };
        let run = record(&kernel, "abc", measured);
        assert_eq!(run.cases.len(), 2);
        assert_eq!((run.cases[1].case, run.cases[1].failure.as_ref()), (Case::Tails, Some(&hang)));
        assert_eq!(run.not_run, None);
        let measured =
            Measured { cases: Case::ALL.map(case).to_vec(), ended: Some(hang.clone()), ..Measured::default() };
        let run = record(&kernel, "abc", measured);
        let failed: Vec<Case> = run.cases.iter().filter(|case| case.failure.is_some()).map(|case| case.case).collect();
        assert_eq!((failed, run.not_run), (vec![Case::Nominal], None));
    }
}
