//! Launching kernels for a profiler: the measuring process is started below it, and does nothing else.

use std::time::Duration;

use super::parent::{ChildCommand, measure};
use super::protocol::{KernelRequest, Request};
use crate::{Dtype, Result, Step};

/// What is launched, and below what.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// Version ids and number types, in the order in which they are launched.
    pub kernels: Vec<(String, Dtype)>,
    /// The text of a learner's file, of which the kernels are then.
    pub text: Option<String>,
    /// How often each.
    pub times: u32,
    /// The profiler, with this program and its hidden command as its last arguments.
    pub child: ChildCommand,
    /// How long it may say nothing before it is ended.
    pub silence: Duration,
}

/// Launches versions of a step at their main sizes, one after another, without checking or timing anything.
///
/// # Errors
/// If nothing can be run here, or a kernel takes the process with it.
pub fn launch_only(step: &Step, options: &LaunchOptions, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let kernel = |(version, dtype): &(String, Dtype)| KernelRequest {
        version: version.clone(),
        dtype: *dtype,
        text: options.text.clone(),
    };
    let request = Request {
        step: step.id.to_owned(),
        kernels: options.kernels.iter().map(kernel).collect(),
        quick: true,
        ceilings: false,
        launches_only: Some(options.times),
    };
    let answer = measure(&options.child, &request, options.silence, progress)?;
    match answer.kernels.into_iter().find_map(|kernel| kernel.ended) {
        Some(failure) => Err(crate::LabError::Child(failure.text)),
        None => Ok(()),
    }
}
