//! What the measuring process does for a tool that watches it: kernels are launched, at their main sizes for a profiler or at
//! small ones for a sanitizer, and nothing is measured. As little else as possible is done on the device.

use plancher_cuda::{Compiler, Device};

use super::protocol::{KernelRequest, Launches, Message, Request};
use super::session::{Ending, compiled, is_fault, problem};
use crate::compile::{Compiled, Target};
use crate::harness::{
    Bench, Candidate as _, KernelCandidate, Limits, Problem, SmallCase, memory_for_one, small_cases, try_small,
};
use crate::record::{Case, CaseRun, Failure, FailureKind};
use crate::step::Point;
use crate::{LabError, Operation, Result, Shape, Step};

/// Where kernels are launched.
struct Place<'a> {
    step: &'static Step,
    operation: Operation,
    device: &'a Device,
    compiler: &'a Compiler,
    target: Target,
    say: &'a mut dyn FnMut(&Message),
}

/// Launches the kernels of a request.
pub(super) fn launch(
    request: &Request,
    launches: Launches,
    (step, operation): (&'static Step, Operation),
    (device, compiler): (&Device, &Compiler),
    say: &mut dyn FnMut(&Message),
) -> Result<(), Ending> {
    let mut place = Place { step, operation, device, compiler, target: Target::of(device.properties()), say };
    match launches {
        Launches::Main(times) => place.at_main_sizes(request, times)?,
        Launches::Small { read_back } => {
            for (index, kernel) in request.kernels.iter().enumerate() {
                place.at_small_sizes(index, kernel, read_back)?;
                (place.say)(&Message::Done { kernel: index });
            }
        }
    }
    (place.say)(&Message::End(Box::default()));
    Ok(())
}

impl Place<'_> {
    fn at_main_sizes(&mut self, request: &Request, times: u32) -> Result<(), Ending> {
        let point = |kernel: &KernelRequest| self.step.points_of(kernel.dtype).find(|point| !point.sweep);
        let points: Vec<Option<&Point>> = request.kernels.iter().map(point).collect();
        // A profiler saves and restores what a kernel may write: there is no more memory than one kernel needs.
        let bytes = points.iter().flatten().map(|point| memory_for_one(&problem(self.operation, point))).max();
        let bench = Bench::new(self.device, self.compiler, bytes.unwrap_or(0))?;
        for (index, (kernel, point)) in request.kernels.iter().zip(points).enumerate() {
            let Some(point) = point else { continue };
            self.begins(index, &format!("launching at {}", point.shape));
            let (_, mut candidate) = self.load(kernel)?;
            let problem = problem(self.operation, point);
            let scratch = candidate.scratch(&problem)?;
            let mut instances = bench.lay_out(&problem, scratch, &[], 0, 1)?;
            bench.fill(&mut instances[0])?;
            candidate.prepare(&instances[0].run)?;
            for _ in 0..times {
                candidate.launch(&instances[0].run)?;
            }
            self.device.synchronize_context()?;
            let launches = times * passes(&candidate, &problem)?;
            (self.say)(&Message::Launched { kernel: index, launches });
            (self.say)(&Message::Done { kernel: index });
        }
        Ok(())
    }

    fn at_small_sizes(&mut self, index: usize, kernel: &KernelRequest, read_back: bool) -> Result<(), Ending> {
        self.begins(index, "compiling");
        let (compiled, mut candidate) = match self.load(kernel) {
            Ok(loaded) => loaded,
            Err(error) if is_fault(&error) => return Err(error.into()),
            Err(error) => {
                let failure = failure(FailureKind::DoesNotCompile, error.to_string());
                (self.say)(&Message::NotRun { kernel: index, failure });
                return Ok(());
            }
        };
        let limits = Limits {
            multiple: compiled.directives.multiple,
            tensor_maps: !compiled.directives.tensor_maps.is_empty(),
            deterministic: false,
            anywhere: false,
        };
        for SmallCase { case, shapes, shift } in small_cases(self.operation, limits) {
            let mut run = CaseRun { case, shapes: Vec::new(), error: 0.0, limit: 0.0, failure: None, not_taken: None };
            for shape in shapes {
                self.begins(index, &format!("case `{case}`, {shape}"));
                run.shapes.push(shape);
                let problem = Problem { operation: self.operation, dtype: kernel.dtype, shape };
                let outcome = try_small(self.device, &mut candidate, &problem, shift, read_back);
                run.failure = outcome_of(outcome, case, shape);
                if run.failure.is_some() {
                    break;
                }
            }
            let kind = run.failure.as_ref().map(|failure| failure.kind);
            (self.say)(&Message::Case { kernel: index, run });
            match kind {
                Some(FailureKind::Fault) => return Err(Ending::Fault),
                Some(_) => return Ok(()),
                None => {}
            }
        }
        Ok(())
    }

    fn load(&self, kernel: &KernelRequest) -> Result<(Compiled, KernelCandidate)> {
        let compiled = compiled(self.compiler, self.step, self.operation, kernel, &self.target)?;
        let candidate = KernelCandidate::load(self.device, &compiled.cubin, &compiled.directives, self.operation)?;
        Ok((compiled, candidate))
    }

    fn begins(&mut self, kernel: usize, what: &str) {
        (self.say)(&Message::Begins { kernel, what: what.to_owned() });
    }
}

fn failure(kind: FailureKind, text: String) -> Failure {
    Failure { kind, shape: None, element: None, expected: None, got: None, text }
}

/// What went wrong, where something did.
fn outcome_of(outcome: Result<Option<String>>, case: Case, shape: Shape) -> Option<Failure> {
    let named = |text: String| format!("case `{case}`, {text}");
    match outcome {
        Ok(wrong) => wrong.map(|text| failure(FailureKind::WrongValue, named(text))),
        Err(error) if is_fault(&error) => Some(failure(FailureKind::Fault, named(format!("{shape}: {error}")))),
        Err(error) => Some(failure(FailureKind::CannotLaunch, named(format!("{shape}: {error}")))),
    }
}

/// Launches of the kernel that one problem takes: a sum is launched again on the sums of its blocks.
fn passes(candidate: &KernelCandidate, problem: &Problem) -> Result<u32> {
    if problem.operation != Operation::Reduction {
        return Ok(1);
    }
    let (mut left, mut passes) = (problem.shape.elements(), 0);
    loop {
        passes += 1;
        // As many sums as blocks, and fewer than numbers, or it is an error.
        let blocks = candidate.scratch(&Problem { shape: Shape::Vector(left), ..*problem })?;
        if blocks <= 1 {
            return Ok(passes);
        }
        if blocks >= left {
            return Err(LabError::Unsupported(format!("{left} numbers would become {blocks} sums, without end")));
        }
        left = blocks;
    }
}
