//! Launching kernels for a profiler: the measuring process is started below it, and does nothing else.

use std::time::Duration;

use super::parent::{ChildCommand, Measured, measure};
use super::protocol::{KernelRequest, Launches, Request};
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

/// What became of a kernel that was to be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// How often its kernel was launched: more often than asked for where one problem takes several launches.
    pub launches: u32,
    /// Why it was not.
    pub failure: Option<String>,
}

/// Launches versions of a step at their main sizes, one after another, without checking or timing anything. What is behind a
/// kernel that takes the process with it is launched in a process of its own.
///
/// # Errors
/// If nothing can be run here.
pub fn launch_only(step: &Step, options: &LaunchOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Launched>> {
    let launches = Launches::Main(options.times);
    let request = request(step, &options.kernels, options.text.as_deref(), launches);
    let answer = measure(&options.child, &request, options.silence, progress)?;
    let launched = |measured: Measured| {
        let Measured { launches, ended, not_run, .. } = measured;
        let failure = not_run.or(ended).map(|failure| failure.text);
        Launched { launches, failure }
    };
    Ok(answer.kernels.into_iter().map(launched).collect())
}

/// A request that measures nothing.
pub(super) fn request(step: &Step, kernels: &[(String, Dtype)], text: Option<&str>, launches: Launches) -> Request {
    let kernel = |(version, dtype): &(String, Dtype)| KernelRequest {
        version: version.clone(),
        dtype: *dtype,
        text: text.map(str::to_owned),
    };
    Request {
        step: step.id.to_owned(),
        kernels: kernels.iter().map(kernel).collect(),
        quick: true,
        ceilings: false,
        launches_only: Some(launches),
    }
}
