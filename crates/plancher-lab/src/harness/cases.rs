//! The five cases in which every kernel must be right: the size that is timed or one of its kind, tails, nothing and a
//! single element, arrays that begin off a boundary, extreme values.

use super::bench::Bench;
use super::candidate::Candidate;
use super::judgement::{failure, failure_of};
use super::problem::Problem;
use crate::record::{Case, CaseRun, Failure, FailureKind};
use crate::{Dtype, LabError, Operation, Result, Shape};

/// What a version declares of itself, as far as the cases go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// It takes only sizes that are multiples of this; 0 counts as 1.
    pub multiple: u64,
    /// It takes tensor maps, which describe neither empty arrays nor such that begin off a 16-byte boundary.
    pub tensor_maps: bool,
    /// Two launches on the same inputs give the same bits.
    pub deterministic: bool,
    /// The bits are the same wherever the arrays begin.
    pub anywhere: bool,
}

/// One thing that is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) shape: Shape,
    /// Elements by which each array begins after a boundary.
    pub(super) shifts: &'static [u64],
    /// What is mixed into the inputs.
    pub(super) extreme: u32,
    /// How often, each time with other inputs.
    pub(super) times: usize,
}

/// What is tried in a case.
pub(super) fn trials(operation: Operation, case: Case, multiple: u64) -> Vec<Trial> {
    let plain = |shape: Shape| Trial { shape: shape.rounded_up(multiple.max(1)), shifts: &[], extreme: 0, times: 1 };
    let of = |shapes: Vec<Shape>| shapes.into_iter().map(plain).collect::<Vec<_>>();
    let vectors = |sizes: &[u64]| of(sizes.iter().map(|&size| Shape::Vector(size)).collect());
    let matrices =
        |sizes: &[(u64, u64)]| of(sizes.iter().map(|&(rows, columns)| Shape::Matrix { rows, columns }).collect());
    let products = |sizes: &[(u64, u64, u64)]| of(sizes.iter().map(|&(m, n, k)| Shape::Product { m, n, k }).collect());
    let one = match operation {
        Operation::Saxpy | Operation::Reduction => match case {
            Case::Nominal => vectors(&[1 << 22]),
            Case::Tails => vectors(&[127, 128, 129, 1021, 65_537, 1_000_003, (3 << 20) + 5]),
            Case::EmptyAndOne => vectors(&[0, 1]),
            Case::Misaligned => vectors(&[100_003, 1 << 16]),
            Case::Extreme => vectors(&[100_003]),
        },
        Operation::Transpose => match case {
            Case::Nominal => matrices(&[(1024, 2048)]),
            Case::Tails => {
                matrices(&[(127, 129), (128, 128), (129, 127), (1021, 509), (1, 1000), (1000, 1), (33, 4099)])
            }
            Case::EmptyAndOne => matrices(&[(0, 5), (5, 0), (1, 1)]),
            Case::Misaligned => matrices(&[(257, 131), (256, 256)]),
            Case::Extreme => matrices(&[(131, 257)]),
        },
        Operation::Gemm => match case {
            Case::Nominal => products(&[(1024, 1024, 1024)]),
            Case::Tails => products(&[
                (127, 127, 127),
                (128, 128, 128),
                (129, 129, 129),
                (257, 129, 65),
                (31, 1021, 67),
                (1021, 31, 259),
                (64, 64, 1000),
                (1, 300, 70),
                (300, 1, 70),
                (70, 90, 1),
            ]),
            Case::EmptyAndOne => products(&[(0, 5, 7), (5, 0, 7), (5, 7, 0), (1, 1, 1)]),
            Case::Misaligned => products(&[(129, 130, 131), (128, 256, 64)]),
            Case::Extreme => products(&[(131, 67, 129)]),
        },
    };
    let again = |trials: &[Trial], change: &dyn Fn(&mut Trial)| {
        let mut trials = trials.to_vec();
        trials.iter_mut().for_each(change);
        trials
    };
    match case {
        Case::Nominal => again(&one, &|trial| trial.times = 3),
        Case::Misaligned => {
            let shifts: [&'static [u64]; 3] = [&[1, 1, 1], &[1, 0, 0], &[0, 1, 0]];
            shifts.into_iter().flat_map(|shifts| again(&one, &|trial| trial.shifts = shifts)).collect()
        }
        // Large numbers and denormals; infinities among them; NaN too. Any bits where bits are what counts. (A sum in which
        // every fifth number is special is special itself.)
        Case::Extreme => {
            let kinds: &[u32] = if operation == Operation::Transpose { &[4] } else { &[1, 2, 3] };
            kinds.iter().flat_map(|&kind| again(&one, &|trial| trial.extreme = kind)).collect()
        }
        Case::Tails | Case::EmptyAndOne => one,
    }
}

impl Bench {
    /// Tries a candidate in one case, up to the first failure. `announce` is called before each size.
    ///
    /// # Errors
    /// If the harness itself fails.
    pub fn run_case(
        &self,
        candidate: &mut dyn Candidate,
        (operation, dtype): (Operation, Dtype),
        case: Case,
        limits: Limits,
        announce: &mut dyn FnMut(Shape),
    ) -> Result<CaseRun> {
        let limit = Problem { operation, dtype, shape: Shape::Vector(0) }.limit();
        let mut run = CaseRun { case, shapes: Vec::new(), error: 0.0, limit, failure: None, not_taken: None };
        if case == Case::Misaligned && limits.tensor_maps {
            run.not_taken = Some("tensor maps begin at 16-byte boundaries".to_owned());
            return Ok(run);
        }
        for trial in trials(operation, case, limits.multiple) {
            if limits.tensor_maps && has_empty_side(trial.shape) {
                continue;
            }
            announce(trial.shape);
            if !run.shapes.contains(&trial.shape) {
                run.shapes.push(trial.shape);
            }
            let problem = Problem { operation, dtype, shape: trial.shape };
            run.failure = self.run_trial(candidate, &problem, &trial, limits, &mut run.error)?;
            if run.failure.is_some() {
                break;
            }
        }
        Ok(run)
    }

    fn run_trial(
        &self,
        candidate: &mut dyn Candidate,
        problem: &Problem,
        trial: &Trial,
        limits: Limits,
        error: &mut f64,
    ) -> Result<Option<Failure>> {
        let scratch = match candidate.scratch(problem) {
            Ok(scratch) => scratch,
            Err(refusal) => return Ok(Some(failure_of(&refusal, problem))),
        };
        let mut instances = match self.lay_out(problem, scratch, trial.shifts, trial.extreme, 1) {
            Err(refusal @ LabError::Unsupported(_)) => return Ok(Some(failure_of(&refusal, problem))),
            instances => instances?,
        };
        let instance = &mut instances[0];
        for _ in 0..trial.times {
            let judgement = self.try_once(candidate, instance)?;
            if judgement.failure.is_some() {
                return Ok(judgement.failure);
            }
            *error = error.max(judgement.error);
        }
        // In place, a second launch would have other inputs.
        if limits.deterministic && trial.times > 1 && problem.operation != Operation::Saxpy {
            let first = self.checksum_of_result(instance)?;
            self.renew_results(instance)?;
            candidate.launch(&instance.run)?;
            if self.checksum_of_result(instance)? != first {
                let text = format!("at {}: a second launch on the same inputs gave other bits", problem.shape);
                return Ok(Some(failure(FailureKind::NotRepeatable, problem, text)));
            }
        }
        if limits.anywhere && !trial.shifts.is_empty() && problem.operation != Operation::Saxpy {
            let first = self.checksum_of_result(instance)?;
            let mut aligned = self.lay_out(problem, scratch, &[], trial.extreme, 1)?;
            self.fill_like(&mut aligned[0], instance)?;
            candidate.prepare(&aligned[0].run)?;
            candidate.launch(&aligned[0].run)?;
            if self.checksum_of_result(&aligned[0])? != first {
                let text = format!("at {}: arrays that begin elsewhere gave other bits", problem.shape);
                return Ok(Some(failure(FailureKind::NotRepeatable, problem, text)));
            }
        }
        Ok(None)
    }
}

/// Whether some array of a problem of this size has no elements.
pub(super) fn has_empty_side(shape: Shape) -> bool {
    match shape {
        Shape::Vector(elements) => elements == 0,
        Shape::Matrix { rows, columns } => rows * columns == 0,
        Shape::Product { m, n, k } => m * n * k == 0,
    }
}

/// The most bytes that the arrays of a case take.
pub(super) const CASE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::memory::{arena_bytes, place};

    #[test]
    fn every_case_tries_something_and_fits() {
        for operation in [Operation::Saxpy, Operation::Transpose, Operation::Reduction, Operation::Gemm] {
            for case in Case::ALL {
                let trials = trials(operation, case, 1);
                assert!(!trials.is_empty() && trials.iter().all(|trial| trial.times > 0));
                for trial in trials {
                    let problem = Problem { operation, dtype: Dtype::F32, shape: trial.shape };
                    let mut sizes: Vec<(u64, u64)> =
                        problem.arrays().iter().map(|array| (4 * array.elements, 4)).collect();
                    // Sums of blocks of 32 elements at least.
                    sizes.extend([(trial.shape.elements().div_ceil(32) * 4, 0); 2]);
                    let (_, end) = place(0, &sizes).expect("it fits");
                    assert!(end <= arena_bytes(5, CASE_BYTES), "{operation:?} {case}");
                }
            }
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_what_a_version_takes() {
        let tails = trials(Operation::Gemm, Case::Tails, 8);
        assert!(tails.iter().any(|trial| trial.shape == Shape::cube(136)));
        assert!(tails.iter().all(|trial| trial.shape == trial.shape.rounded_up(8)));
        let empty = trials(Operation::Gemm, Case::EmptyAndOne, 8);
        assert_eq!(empty.iter().filter(|trial| !has_empty_side(trial.shape)).count(), 1);
    }
}
