//! What the measuring process does: the kernels of one request, one after another, each first held to the five cases and
//! then timed.

use plancher_cuda::{Compiler, CudaError, Device};

use super::launches::launch;
use super::machine::describe;
use super::protocol::{COMPILING, KernelRequest, Message, Request};
use crate::catalogue::{same_bits_anywhere, step};
use crate::compile::{Compiled, Target, compile};
use crate::harness::{Bench, Ceilings, Effort, KernelCandidate, Limits, Problem, memory_needed};
use crate::record::{Case, Failure, FailureKind};
use crate::step::{Ceiling, InFlight, Point};
use crate::{LabError, Operation, Result, Shape, Step};

/// The share of free memory that may be used.
const SHARE: f64 = 0.8;

/// Why a session ends early.
pub(super) enum Ending {
    /// The device can no longer be used in this process; what happened has been said.
    Fault,
    /// The harness itself failed.
    Error(LabError),
}

impl<E: Into<LabError>> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

struct Session<'a> {
    step: &'static Step,
    operation: Operation,
    request: &'a Request,
    target: Target,
    bench: Bench,
    ceilings: Ceilings,
    say: &'a mut dyn FnMut(&Message),
}

/// Measures what is asked for.
pub(super) fn measure(request: &Request, say: &mut dyn FnMut(&Message)) -> Result<(), Ending> {
    let step = step(&request.step)?;
    let operation =
        step.operation.ok_or_else(|| LabError::Unsupported(format!("step `{}` has no kernels to run", step.id)))?;
    let device = Device::open(0)?;
    let compiler = Compiler::find()?;
    compiler.check_driver()?;
    if let Some(launches) = request.launches_only {
        return launch(request, launches, (step, operation), (&device, &compiler), say);
    }
    device.set_persisting_l2(0)?;
    let l2 = device.properties().l2;
    let free = device.memory()?.free as f64 * SHARE;
    // Each problem takes its arrays, and the ceilings beside them as much traffic, or another result.
    let points: Vec<Point> = wanted_points(step, request).filter(|point| fits(operation, point, l2, free)).collect();
    let problems = || points.iter().map(|point| problem(operation, point));
    let traffic = problems().map(|problem| traffic(&problem)).max().unwrap_or(0);
    let product = problems().filter(|problem| problem.operation == Operation::Gemm);
    let product = product.map(|problem| problem.shape.elements() * problem.dtype.bytes()).max().unwrap_or(0);
    let bench = Bench::new(&device, &compiler, memory_needed(problems(), l2))?;
    let ceilings = Ceilings::new(&device, &compiler, traffic.max(4 * l2), product)?;
    let mut machine = describe(&device, &compiler, ceilings.library());
    say(&Message::Machine(Box::new(machine.clone())));
    let target = Target::of(device.properties());
    let mut session = Session { step, operation, request, target, bench, ceilings, say };
    if request.ceilings {
        session.measure_ceilings(&points)?;
    }
    for (index, kernel) in request.kernels.iter().enumerate() {
        session.kernel(index, kernel, &points)?;
        (session.say)(&Message::Done { kernel: index });
    }
    machine.state_after = describe(&device, &compiler, String::new()).state_before;
    say(&Message::End(Box::new(machine)));
    Ok(())
}

/// The points of a request: all, or those that verdicts use.
fn wanted_points<'a>(step: &'static Step, request: &'a Request) -> impl Iterator<Item = Point> + use<'a> {
    let has = |point: &&Point| request.kernels.iter().any(|kernel| kernel.dtype == point.dtype);
    step.points.iter().filter(has).filter(|point| !request.quick || !point.sweep).copied()
}

pub(super) fn problem(operation: Operation, point: &Point) -> Problem {
    Problem { operation, dtype: point.dtype, shape: point.shape }
}

/// Bytes that the ceiling of a problem moves.
fn traffic(problem: &Problem) -> u64 {
    if problem.operation == Operation::Gemm { 0 } else { problem.operation.bytes(problem.dtype, problem.shape) }
}

/// Whether a point, with its ceiling and the exact result, fits into so much memory.
fn fits(operation: Operation, point: &Point, l2: u64, free: f64) -> bool {
    let problem = problem(operation, point);
    let exact = if operation == Operation::Gemm { 10 * problem.shape.elements() } else { 0 };
    let bytes = memory_needed(std::iter::once(problem), l2) + traffic(&problem) + exact;
    (bytes as f64) < free
}

/// Whether nothing can be done on the device any more.
pub(super) fn is_fault(error: &LabError) -> bool {
    matches!(error, LabError::Cuda(CudaError::Fault { .. }))
}

/// A version of the catalogue, or a learner's file, compiled.
pub(super) fn compiled(
    compiler: &Compiler,
    step: &Step,
    operation: Operation,
    kernel: &KernelRequest,
    target: &Target,
) -> Result<Compiled> {
    let source = |name: &str, text: &str| compile(compiler, (name, text), operation, kernel.dtype, target);
    if let Some(text) = &kernel.text {
        return source(&kernel.version, text);
    }
    let version = step.version(&kernel.version)?;
    source(version.file.trim_end_matches(".cu"), version.source)
}

impl Session<'_> {
    /// The step's ceilings of memory, at its main size, and the second-level cache's.
    fn measure_ceilings(&mut self, points: &[Point]) -> Result<(), Ending> {
        if self.operation == Operation::Gemm {
            return Ok(());
        }
        let main =
            points.iter().filter(|point| !point.sweep).map(|point| traffic(&problem(self.operation, point))).max();
        let Some(bytes) = main else { return Ok(()) };
        let bench = &self.bench;
        for ceiling in [Ceiling::Copy, Ceiling::Read, Ceiling::Write, Ceiling::Triad] {
            let run = self.ceilings.measure(ceiling, bytes, &|| bench.flush())?;
            (self.say)(&Message::Ceiling(run));
        }
        let l2 = bench.device().properties().l2 / 3;
        let run = self.ceilings.measure(Ceiling::L2, l2, &|| Ok(()))?;
        (self.say)(&Message::Ceiling(run));
        Ok(())
    }

    /// One kernel: compiled, tried, timed.
    fn kernel(&mut self, index: usize, kernel: &KernelRequest, points: &[Point]) -> Result<(), Ending> {
        self.begins(index, COMPILING);
        let compiled = match self.compile(kernel) {
            Ok(compiled) => compiled,
            Err(error) => {
                self.not_run(index, FailureKind::DoesNotCompile, &error);
                return Ok(());
            }
        };
        let (options, mut resources) = (compiled.options.clone(), compiled.resources.clone());
        let loaded = KernelCandidate::load(self.bench.device(), &compiled.cubin, &compiled.directives, self.operation);
        let mut candidate = match loaded {
            Ok(candidate) => candidate,
            Err(error) if is_fault(&error) => return Err(error.into()),
            Err(error) => {
                self.not_run(index, FailureKind::CannotLaunch, &error);
                return Ok(());
            }
        };
        resources.blocks_per_multiprocessor = candidate.blocks_per_multiprocessor()?;
        let resident = u64::from(resources.blocks_per_multiprocessor);
        let threads = u64::from(resources.threads);
        (self.say)(&Message::Compiled { kernel: index, options, resources });
        if !self.is_right(index, kernel, &compiled, &mut candidate)? {
            return Ok(());
        }
        let in_flight = self.in_flight(kernel).bytes(kernel.dtype, threads, resident);
        let effort = if self.request.quick { Effort::QUICK } else { Effort::FULL };
        for point in points.iter().filter(|point| point.dtype == kernel.dtype) {
            let problem = problem(self.operation, point);
            if problem.shape.rounded_up(compiled.directives.multiple) != problem.shape {
                continue;
            }
            self.begins(index, &format!("timing {}", point.shape));
            let say = &mut *self.say;
            let mut alive = || say(&Message::Alive);
            let mut run = self.bench.time(&mut candidate, (&problem, point), &mut self.ceilings, effort, &mut alive)?;
            run.in_flight_bytes = in_flight;
            let is_fault = run.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Fault);
            (self.say)(&Message::Point { kernel: index, run: Box::new(run) });
            if is_fault {
                return Err(Ending::Fault);
            }
        }
        Ok(())
    }

    /// Whether a kernel is right in all five cases. All are tried, so that one knows of each.
    fn is_right(
        &mut self,
        index: usize,
        kernel: &KernelRequest,
        compiled: &Compiled,
        candidate: &mut KernelCandidate,
    ) -> Result<bool, Ending> {
        let ours = kernel.text.is_none();
        let limits = Limits {
            multiple: compiled.directives.multiple,
            tensor_maps: !compiled.directives.tensor_maps.is_empty(),
            deterministic: ours && self.step.version(&kernel.version).is_ok_and(|version| version.deterministic),
            anywhere: ours && same_bits_anywhere(self.step.id, &kernel.version),
        };
        let mut right = true;
        for case in Case::ALL {
            let say = &mut *self.say;
            let mut announce =
                |shape: Shape| say(&Message::Begins { kernel: index, what: format!("case `{case}`, {shape}") });
            let run = self.bench.run_case(candidate, (self.operation, kernel.dtype), case, limits, &mut announce)?;
            let failure = run.failure.as_ref().map(|failure| failure.kind);
            right &= failure.is_none();
            (self.say)(&Message::Case { kernel: index, run });
            if failure == Some(FailureKind::Fault) {
                return Err(Ending::Fault);
            }
        }
        Ok(right)
    }

    fn compile(&self, kernel: &KernelRequest) -> Result<Compiled> {
        compiled(self.bench.compiler(), self.step, self.operation, kernel, &self.target)
    }

    fn in_flight(&self, kernel: &KernelRequest) -> InFlight {
        let version = kernel.text.is_none().then(|| self.step.version(&kernel.version).ok()).flatten();
        version.map_or(InFlight::Uncounted, |version| version.in_flight)
    }

    fn begins(&mut self, kernel: usize, what: &str) {
        (self.say)(&Message::Begins { kernel, what: what.to_owned() });
    }

    fn not_run(&mut self, kernel: usize, kind: FailureKind, error: &LabError) {
        let failure = Failure { kind, shape: None, element: None, expected: None, got: None, text: error.to_string() };
        (self.say)(&Message::NotRun { kernel, failure });
    }
}
