//! Timing by the rules: the result is poisoned and the inputs are changed before every launch, arrays rotate, the ceiling is
//! measured in between, random launches are verified, and the device's clock is held against the host's.

use std::time::Instant;

use plancher_cuda::Event;

use super::bench::{Bench, Instance, fresh_seed};
use super::candidate::Candidate;
use super::ceiling::Ceilings;
use super::clocks::times_disagree;
use super::judgement::{failure, failure_of};
use super::problem::Problem;
use crate::record::{Failure, FailureKind, Label, PointRun};
use crate::step::{Ceiling, Point};
use crate::{LabError, Operation, Result};

/// The device is kept busy for so long before what is timed, so that the host can put it all on the stream.
const HEAD_START_NANOSECONDS: u32 = 25_000;
/// The most instances of a problem's arrays that rotate.
const MOST_INSTANCES: u64 = 8;
/// Launches before the first that counts.
const WARM_UP: usize = 2;

/// How much is measured at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// The fewest samples.
    pub least: usize,
    /// The most.
    pub most: usize,
    /// Between the two, as many as fit into so many seconds.
    pub seconds: f64,
    /// Launches that are verified afterwards, among the samples.
    pub verified: usize,
}

impl Effort {
    /// What the evidence is made with.
    pub const FULL: Self = Self { least: 9, most: 31, seconds: 0.25, verified: 2 };
    /// A quick look.
    pub const QUICK: Self = Self { least: 5, most: 9, seconds: 0.05, verified: 1 };
}

/// Bytes of a problem's arrays.
pub(super) fn bytes_of(problem: &Problem) -> u64 {
    problem.arrays().iter().map(|array| array.elements * problem.dtype.bytes()).sum()
}

/// How many instances rotate, so that what is touched before one comes round again is several times the cache.
pub(super) fn instances(problem: &Problem, l2: u64) -> u64 {
    (4 * l2).div_ceil(bytes_of(problem).max(1)).clamp(2, MOST_INSTANCES)
}

/// Where the data of a point lie.
pub(crate) fn label(problem: &Problem, l2: u64) -> Label {
    let rotated = instances(problem, l2) * bytes_of(problem);
    if rotated >= 4 * l2 { Label::Memory } else { Label::L2 }
}

/// Bytes of memory that a point takes, scratch left aside.
pub(super) fn memory_of(problem: &Problem, l2: u64) -> u64 {
    instances(problem, l2) * bytes_of(problem)
}

/// One timed launch, in milliseconds.
struct Sample {
    device: f64,
    host: f64,
}

impl Bench {
    /// Times a candidate at a point. What is wrong with it, or with its times, is a failure of the point. `alive` is called
    /// before each launch.
    ///
    /// # Errors
    /// If the harness itself fails.
    pub fn time(
        &self,
        candidate: &mut dyn Candidate,
        (problem, point): (&Problem, &Point),
        ceilings: &mut Ceilings,
        effort: Effort,
        alive: &mut dyn FnMut(),
    ) -> Result<PointRun> {
        let l2 = self.device().properties().l2;
        let (operation, dtype, shape) = (problem.operation, problem.dtype, problem.shape);
        let mut run = PointRun {
            shape,
            elements: shape.elements(),
            bytes: operation.bytes(dtype, shape),
            flops: operation.flops(shape),
            milliseconds: Vec::new(),
            host_milliseconds: Vec::new(),
            ceiling: point.ceiling,
            ceiling_samples: Vec::new(),
            label: label(problem, l2),
            verified: 0,
            in_flight_bytes: None,
            sweep: point.sweep,
            failure: None,
        };
        run.failure = self.time_into(&mut run, candidate, (problem, effort), ceilings, alive)?;
        if run.failure.is_none() {
            run.failure = times_disagree(&run).map(|text| failure(FailureKind::TimesDisagree, problem, text));
        }
        Ok(run)
    }

    fn time_into(
        &self,
        run: &mut PointRun,
        candidate: &mut dyn Candidate,
        (problem, effort): (&Problem, Effort),
        ceilings: &mut Ceilings,
        alive: &mut dyn FnMut(),
    ) -> Result<Option<Failure>> {
        let scratch = match candidate.scratch(problem) {
            Ok(scratch) => scratch,
            Err(refusal) => return Ok(Some(failure_of(&refusal, problem))),
        };
        let count = instances(problem, self.device().properties().l2) as usize;
        let mut instances = match self.lay_out(problem, scratch, &[], 0, count) {
            Err(refusal @ LabError::Unsupported(_)) => return Ok(Some(failure_of(&refusal, problem))),
            instances => instances?,
        };
        for instance in &mut instances {
            self.fill(instance)?;
            if let Err(error) = candidate.prepare(&instance.run) {
                return Ok(Some(failure_of(&error, problem)));
            }
        }
        let has_ceiling = ceilings.has(run.ceiling);
        let (ceiling, bytes, in_memory) = (run.ceiling, run.bytes, run.label == Label::Memory);
        let before_ceiling = || if in_memory { self.flush() } else { Ok(()) };
        if has_ceiling {
            ceilings.choose(ceiling, bytes, &before_ceiling)?;
        }
        let mut warmest = f64::INFINITY;
        for index in 0..WARM_UP {
            alive();
            let instance = &mut instances[index % count];
            match self.sample(candidate, instance, in_memory)? {
                Ok(sample) => warmest = warmest.min(sample.host),
                Err(failure) => return Ok(Some(failure)),
            }
            if has_ceiling {
                self.ceiling_sample(ceilings, ceiling, run, &instance.run, &before_ceiling)?;
            }
        }
        let wanted = (effort.seconds * 1e3 / (2.5 * warmest + 0.2)) as usize;
        let samples = wanted.clamp(effort.least, effort.most);
        // Fresh numbers, after the warm-up; and launches to be verified that nobody can foresee.
        for instance in &mut instances {
            self.fill(instance)?;
        }
        let mut verified: Vec<usize> = (0..effort.verified).map(|_| fresh_seed() as usize % samples).collect();
        verified.push(samples - 1);
        let (mut trouble, surprise) = (None, fresh_seed() as usize % samples);
        for index in 0..samples {
            let instance = &mut instances[index % count];
            if index == surprise
                && let Some(failure) = self.is_late(candidate, instance)?
            {
                trouble.get_or_insert(failure);
            }
            alive();
            self.renew_results(instance)?;
            self.perturb(instance)?;
            let verify = verified.contains(&index);
            let checksums = if verify { self.checksums(instance)? } else { Vec::new() };
            match self.launch_timed(candidate, instance, in_memory)? {
                Ok(sample) => {
                    run.milliseconds.push(sample.device);
                    run.host_milliseconds.push(sample.host);
                }
                Err(failure) => return Ok(Some(failure)),
            }
            if self.device().persisting_l2()? != 0 {
                self.device().set_persisting_l2(0)?;
                let text = format!("at {}: part of the second-level cache was set aside", problem.shape);
                trouble.get_or_insert_with(|| failure(FailureKind::PersistingL2, problem, text));
            }
            if verify {
                let judgement = self.judge(instance, &checksums)?;
                run.verified += 1;
                if let Some(wrong) = judgement.failure {
                    let text = format!("timed launch {index} was wrong: {}", wrong.text);
                    trouble.get_or_insert(Failure { kind: FailureKind::TimedLaunchWrong, text, ..wrong });
                }
            }
            if has_ceiling {
                let rate = self.ceiling_sample(ceilings, ceiling, run, &instance.run, &before_ceiling)?;
                run.ceiling_samples.push(rate);
            }
        }
        Ok(trouble)
    }

    /// One launch before the measurement proper.
    fn sample(
        &self,
        candidate: &mut dyn Candidate,
        instance: &mut Instance,
        in_memory: bool,
    ) -> Result<Result<Sample, Failure>> {
        self.renew_results(instance)?;
        self.perturb(instance)?;
        self.launch_timed(candidate, instance, in_memory)
    }

    /// A launch that looks like the others, after which the result is looked at as soon as the stream is done: whether it
    /// changes once the whole context is.
    fn is_late(&self, candidate: &mut dyn Candidate, instance: &mut Instance) -> Result<Option<Failure>> {
        self.renew_results(instance)?;
        self.perturb(instance)?;
        self.device().synchronize_context()?;
        let problem = instance.run.problem;
        self.tools().wait(HEAD_START_NANOSECONDS)?;
        if let Err(error) = candidate.launch(&instance.run) {
            return Ok(Some(failure_of(&error, &problem)));
        }
        let early = self.checksum_of_result(instance)?;
        self.device().synchronize_context()?;
        let text = format!("at {}: the result was not complete when the harness's stream was done", problem.shape);
        let is_late = early != self.checksum_of_result(instance)?;
        Ok(is_late.then(|| failure(FailureKind::OtherStream, &problem, text)))
    }

    /// A launch between two marks on the stream.
    fn launch_timed(
        &self,
        candidate: &mut dyn Candidate,
        instance: &Instance,
        in_memory: bool,
    ) -> Result<Result<Sample, Failure>> {
        if in_memory {
            self.flush()?;
        }
        self.device().synchronize_context()?;
        let mut start = Event::record(self.device())?;
        let mut end = Event::record(self.device())?;
        end.wait()?;
        let clock = Instant::now();
        self.tools().wait(HEAD_START_NANOSECONDS)?;
        start.record_again()?;
        let outcome = candidate.launch(&instance.run).and_then(|()| {
            end.record_again()?;
            let device = end.milliseconds_since(&start)?;
            self.device().synchronize_context()?;
            Ok(device)
        });
        let host = clock.elapsed().as_secs_f64() * 1e3;
        Ok(match outcome {
            Ok(device) => Ok(Sample { device, host }),
            Err(error) => Err(failure_of(&error, &instance.run.problem)),
        })
    }

    /// A rate of the ceiling, in the unit of the point.
    fn ceiling_sample(
        &self,
        ceilings: &mut Ceilings,
        ceiling: Ceiling,
        run: &PointRun,
        of: &super::candidate::Run,
        before: &dyn Fn() -> Result<()>,
    ) -> Result<f64> {
        before()?;
        let mut start = Event::record(self.device())?;
        let mut end = Event::record(self.device())?;
        self.tools().wait(HEAD_START_NANOSECONDS)?;
        start.record_again()?;
        ceilings.launch(ceiling, run.bytes, of)?;
        end.record_again()?;
        let milliseconds = end.milliseconds_since(&start)?;
        if milliseconds <= 0.0 {
            return Err(LabError::Unsupported("the device's clock stands still".to_owned()));
        }
        Ok(if of.problem.operation == Operation::Gemm {
            run.flops as f64 / milliseconds / 1e9
        } else {
            ceilings.bytes_moved(ceiling, run.bytes) as f64 / milliseconds / 1e6
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Shape};

    #[test]
    fn what_is_called_memory_does_not_fit_into_the_cache() {
        let l2 = 50 << 20;
        let saxpy =
            |power: u32| Problem { operation: Operation::Saxpy, dtype: Dtype::F32, shape: Shape::Vector(1 << power) };
        assert_eq!(label(&saxpy(28), l2), Label::Memory);
        assert_eq!(label(&saxpy(12), l2), Label::L2);
        for power in 0..31 {
            let problem = saxpy(power);
            assert_eq!(label(&problem, l2) == Label::Memory, memory_of(&problem, l2) >= 4 * l2);
            assert!((2..=MOST_INSTANCES).contains(&instances(&problem, l2)));
        }
    }
}
