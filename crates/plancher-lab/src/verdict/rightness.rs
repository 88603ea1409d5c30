//! Whether a version computes what it should: all five cases, or which of them fails.

use crate::record::{Case, CaseRun, VersionRun};

/// The verdict on the five cases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rightness<'a> {
    /// Every case passes, or is one that the version declares it does not take.
    Right {
        /// The largest error of all, as a part of what is allowed.
        error: f64,
        /// How many cases the version does not take.
        not_taken: usize,
    },
    /// This case fails, the first of them.
    Wrong(&'a CaseRun),
    /// This case was never tried.
    Untried(Case),
    /// It was not run at all.
    NotRun(&'a str),
}

impl Rightness<'_> {
    /// Whether it is right.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        matches!(self, Self::Right { .. })
    }
}

/// Judges the cases of a version.
#[must_use]
pub fn rightness(version: &VersionRun) -> Rightness<'_> {
    if let Some(reason) = &version.not_run {
        return Rightness::NotRun(reason);
    }
    let (mut error, mut not_taken) = (0.0_f64, 0);
    for case in Case::ALL {
        let Some(run) = version.cases.iter().find(|run| run.case == case) else { return Rightness::Untried(case) };
        if run.not_taken.is_some() {
            not_taken += 1;
            continue;
        }
        // An error that is no number is no small one; where nothing may differ, nothing does.
        let part = if run.error == 0.0 { 0.0 } else { run.error / run.limit };
        if run.failure.is_some() || !run.limit.is_finite() || !(0.0..=1.0).contains(&part) {
            return Rightness::Wrong(run);
        }
        error = error.max(part);
    }
    Rightness::Right { error, not_taken }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Failure, FailureKind};
    use crate::{Dtype, Shape};

    pub(in crate::verdict) fn version(id: &str) -> VersionRun {
        let case = |case| CaseRun {
            case,
            shapes: vec![Shape::Vector(1)],
            error: 0.5,
            limit: 2.0,
            failure: None,
            not_taken: None,
        };
        VersionRun {
            version: id.to_owned(),
            dtype: Dtype::F32,
            source_sha256: String::new(),
            options: Vec::new(),
            resources: None,
            not_run: None,
            cases: Case::ALL.map(case).into(),
            points: Vec::new(),
        }
    }

    #[test]
    fn five_cases_make_it_right_and_one_makes_it_wrong() {
        let judge = |change: &dyn Fn(&mut VersionRun)| {
            let mut version = version("v");
            change(&mut version);
            match rightness(&version) {
                Rightness::Right { error, not_taken } => format!("right {error} {not_taken}"),
                Rightness::Wrong(case) => format!("wrong {}", case.case),
                Rightness::Untried(case) => format!("untried {case}"),
                Rightness::NotRun(reason) => format!("not run: {reason}"),
            }
        };
        assert_eq!(judge(&|_| {}), "right 0.25 0");
        assert_eq!(judge(&|version| version.cases[1].error = 2.1), "wrong tails");
        assert_eq!(judge(&|version| version.cases[1].error = f64::NAN), "wrong tails");
        assert_eq!(judge(&|version| version.cases[2].not_taken = Some("tensor maps".to_owned())), "right 0.25 1");
        assert_eq!(judge(&|version| (version.cases[0].error, version.cases[0].limit) = (0.0, 0.0)), "right 0.25 0");
        assert_eq!(judge(&|version| version.cases.truncate(4)), "untried nominal");
        assert_eq!(judge(&|version| version.not_run = Some("no".to_owned())), "not run: no");
        let failure = Failure {
            kind: FailureKind::OutOfBounds,
            shape: None,
            element: None,
            expected: None,
            got: None,
            text: String::new(),
        };
        assert_eq!(judge(&|version| version.cases[3].failure = Some(failure.clone())), "wrong extreme");
    }
}
