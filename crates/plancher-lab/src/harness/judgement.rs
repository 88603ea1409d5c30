//! What is said of a result: nothing, or what is wrong with it, where, in one line.

use plancher_cuda::CudaError;

use super::problem::{Problem, TOO_PRECISE};
use super::tools::Findings;
use crate::record::{Failure, FailureKind};
use crate::{LabError, Operation, plural};

/// What the harness thinks of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The largest error, as a multiple of the honest one.
    pub error: f64,
    /// Why it does not pass.
    pub failure: Option<Failure>,
}

/// A failure without an element.
pub(super) fn failure(kind: FailureKind, problem: &Problem, text: String) -> Failure {
    Failure { kind, shape: Some(problem.shape), element: None, expected: None, got: None, text }
}

/// What an error that a launch ended with says of the candidate.
pub(super) fn failure_of(error: &LabError, problem: &Problem) -> Failure {
    let kind = match error {
        LabError::Cuda(CudaError::Fault { .. }) => FailureKind::Fault,
        _ => FailureKind::CannotLaunch,
    };
    failure(kind, problem, format!("at {}: {error}", problem.shape))
}

/// What a comparison says of a result.
pub(super) fn wrong(problem: &Problem, found: &Findings, extreme: u32) -> Option<Failure> {
    let shape = problem.shape;
    let result = *problem.arrays().last()?;
    if found.wrong == 0 {
        let is_suspicious = problem.shows_precision() && extreme == 0;
        if !is_suspicious || found.squares.sqrt() >= TOO_PRECISE * found.rounding.sqrt() {
            return None;
        }
        let text = format!(
            "at {shape}: the error is {:.2} times that of rounding the exact result once, and sums in {} cannot be below \
             {TOO_PRECISE}: this was computed in higher precision",
            found.squares.sqrt() / found.rounding.sqrt(),
            problem.dtype,
        );
        return Some(failure(FailureKind::TooPrecise, problem, text));
    }
    let kind = match () {
        () if found.unwritten == found.wrong => FailureKind::NotWritten,
        () if found.nan == found.wrong => FailureKind::Nan,
        () => FailureKind::WrongValue,
    };
    let at = place(problem, found.first, result.columns);
    let verb = if kind == FailureKind::NotWritten { "was never written" } else { "is wrong" };
    let of = if problem.operation == Operation::Reduction {
        String::new()
    } else {
        let verb = if found.wrong == 1 { "is" } else { "are" };
        format!("; {} of {} {verb} wrong", found.wrong, plural(result.elements, "element"))
    };
    let what = if kind == FailureKind::NotWritten {
        format!("should be {}", found.expected)
    } else {
        format!("should be {} and is {}", found.expected, found.got)
    };
    let text = format!("at {shape}: {at} of `{}` {verb}: it {what}{of}", result.name);
    Some(Failure {
        kind,
        shape: Some(shape),
        element: Some(found.first),
        expected: Some(found.expected),
        got: Some(found.got),
        text,
    })
}

/// An element's name in a message.
fn place(problem: &Problem, element: u64, columns: u64) -> String {
    match problem.operation {
        Operation::Saxpy => format!("element {element}"),
        Operation::Reduction => "the sum".to_owned(),
        _ => format!("row {}, column {}", element / columns.max(1), element % columns.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Shape};

    const NOTHING: Findings = Findings {
        first: u64::MAX,
        wrong: 0,
        unwritten: 0,
        nan: 0,
        worst: 0.5,
        squares: 1.0,
        rounding: 1.0,
        expected: 0.0,
        got: 0.0,
    };

    fn text(problem: &Problem, found: &Findings) -> String {
        wrong(problem, found, 0).map_or_else(|| "right".to_owned(), |failure| failure.text)
    }

    #[test]
    fn a_wrong_result_is_named_by_its_place() {
        let saxpy = Problem { operation: Operation::Saxpy, dtype: Dtype::F32, shape: Shape::Vector(129) };
        assert_eq!(text(&saxpy, &NOTHING), "right");
        let found = Findings { first: 128, wrong: 1, expected: 2.5, got: 1.0, ..NOTHING };
        assert_eq!(
            text(&saxpy, &found),
            "at 129: element 128 of `y` is wrong: it should be 2.5 and is 1; 1 of 129 elements is wrong"
        );
        let shape = Shape::Matrix { rows: 3, columns: 7 };
        let transpose = Problem { operation: Operation::Transpose, dtype: Dtype::Bf16, shape };
        let found = Findings { first: 4, wrong: 2, unwritten: 2, expected: 9.0, got: f64::NAN, ..NOTHING };
        assert_eq!(
            text(&transpose, &found),
            "at 3x7: row 1, column 1 of `out` was never written: it should be 9; 2 of 21 elements are wrong"
        );
    }

    #[test]
    fn what_is_as_exact_as_double_precision_is_refused_where_sums_are_long() {
        let gemm =
            |k| Problem { operation: Operation::Gemm, dtype: Dtype::F32, shape: Shape::Product { m: 64, n: 64, k } };
        let exact = Findings { squares: 1.0, rounding: 1.0, ..NOTHING };
        let honest = Findings { squares: 9.0, rounding: 1.0, ..NOTHING };
        assert!(text(&gemm(512), &exact).contains("higher precision"));
        assert_eq!(text(&gemm(512), &honest), "right");
        assert_eq!(text(&gemm(8), &exact), "right");
        assert_eq!(wrong(&gemm(512), &exact, 3), None);
    }
}
