//! The checker's verdict on a plan. Proving a program safe takes up to a second or two: that is done beside packing and
//! the first prompt, and waited for before the first launch.

use std::sync::Arc;
use std::thread::JoinHandle;

use plancher_program::gpu::{CheckError, Plan, check};

use crate::{CudaError, Result};

/// What the checker says, or that it has not yet.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The thread that checks, until it has been waited for.
    checking: Option<JoinHandle<Result<(), CheckError>>>,
    outcome: Result<()>,
}

impl Verdict {
    /// Begins to check `plan`.
    pub(super) fn begin(plan: &Arc<Plan>) -> Self {
        let plan = Arc::clone(plan);
        let checking = std::thread::Builder::new().name("check".to_owned()).spawn(move || check(&plan));
        match checking {
            Ok(checking) => Self { checking: Some(checking), outcome: Ok(()) },
            Err(error) => Self { checking: None, outcome: Err(unsafe_program(&error)) },
        }
    }

    /// Waits for the outcome; the same every time.
    pub(super) fn wait(&mut self) -> Result<()> {
        if let Some(checking) = self.checking.take() {
            self.outcome = match checking.join() {
                Ok(outcome) => outcome.map_err(|error| unsafe_program(&error)),
                Err(_) => Err(unsafe_program(&"its check ended early")),
            };
        }
        self.outcome.clone()
    }
}

fn unsafe_program(reason: &dyn std::fmt::Display) -> CudaError {
    CudaError::Unsupported(format!("the megakernel's program cannot be shown to be safe: {reason}"))
}

#[cfg(test)]
mod tests {
    use plancher_program::gpu::Target;

    use super::super::kernel::Sizes;
    use super::*;

    #[test]
    fn a_sound_plan_passes_and_a_broken_one_never_does() {
        let sizes = Sizes { layers: 2, hidden: 72, heads: (8, 1), head_dim: 16, feed_forward: 200, vocab: 515 };
        let plan = Plan::new(&sizes.config(), Target { multiprocessors: 7, ..Target::h200(64) }).expect("a plan");
        let mut sound = Verdict::begin(&Arc::new(plan.clone()));
        assert_eq!((sound.wait(), sound.wait()), (Ok(()), Ok(())));
        let mut broken = plan;
        broken.workers[3].instructions.remove(2);
        let mut broken = Verdict::begin(&Arc::new(broken));
        let error = broken.wait().expect_err("an instruction is missing").to_string();
        assert!(error.starts_with("the megakernel's program cannot be shown to be safe: "), "{error}");
        assert_eq!(broken.wait().expect_err("still").to_string(), error);
    }
}
