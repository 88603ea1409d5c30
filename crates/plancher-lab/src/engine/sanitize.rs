//! Launching kernels at small sizes for a sanitizer: the measuring process is started below it.

use std::time::Duration;

use super::parent::{ChildCommand, Measured, measure};
use super::profile::request;
use super::protocol::Launches;
use crate::record::{CaseRun, Failure};
use crate::{Dtype, Result, Shape, Step};

/// What is launched, and below what.
#[derive(Debug, Clone)]
pub struct SmallOptions {
    /// Version ids and number types, in the order in which they are launched.
    pub kernels: Vec<(String, Dtype)>,
    /// Whether results are read back and looked at.
    pub read_back: bool,
    /// The tool, with this program and its hidden command as its last arguments.
    pub child: ChildCommand,
    /// How long it may say nothing before it is ended.
    pub silence: Duration,
}

/// What became of a kernel at small sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Small {
    /// The sizes at which it was launched.
    pub shapes: Vec<Shape>,
    /// Why it did not get to the end, or what was wrong with its result.
    pub failure: Option<String>,
}

/// Launches versions of a step at small sizes, one after another, each array in an allocation of exactly its size. What is
/// behind a kernel that takes the process with it is launched in a process of its own.
///
/// # Errors
/// If nothing can be run here.
pub fn launch_small(step: &Step, options: &SmallOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Small>> {
    let request = request(step, &options.kernels, None, Launches::Small { read_back: options.read_back });
    let answer = measure(&options.child, &request, options.silence, progress)?;
    Ok(answer.kernels.into_iter().map(small).collect())
}

fn small(measured: Measured) -> Small {
    let Measured { cases, not_run, ended, .. } = measured;
    let shapes = cases.iter().flat_map(|case: &CaseRun| &case.shapes).copied().collect::<Vec<_>>();
    let wrong: Option<Failure> = cases.into_iter().find_map(|case| case.failure);
    let mut failure = not_run.or(ended).or(wrong).map(|failure| failure.text);
    if shapes.is_empty() {
        failure = failure.or_else(|| Some("it was not launched".to_owned()));
    }
    Small { shapes, failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Case, FailureKind};

    #[test]
    fn what_was_not_launched_or_went_wrong_says_so() {
        assert_eq!(small(Measured::default()).failure.as_deref(), Some("it was not launched"));
        let failure = |text: &str| {
            let (kind, text) = (FailureKind::WrongValue, text.to_owned());
            Some(Failure { kind, shape: None, element: None, expected: None, got: None, text })
        };
        let case = |failure| CaseRun {
            case: Case::Tails,
            shapes: vec![Shape::Vector(129)],
            error: 0.0,
            limit: 0.0,
            failure,
            not_taken: None,
        };
        let of = |cases, ended| small(Measured { cases, ended, ..Measured::default() });
        assert_eq!(of(vec![case(None)], None), Small { shapes: vec![Shape::Vector(129)], failure: None });
        assert_eq!(of(vec![case(failure("wrong"))], None).failure.as_deref(), Some("wrong"));
        assert_eq!(of(vec![case(None)], failure("it died")).failure.as_deref(), Some("it died"));
    }
}
