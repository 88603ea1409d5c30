//! A problem's arrays on the device, filled, poisoned and guarded, and the judgement of what a candidate left there.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use plancher_cuda::{Compiler, CudaError, Device, DeviceBuffer};

use super::candidate::{Candidate, Run};
use super::memory::{Arena, View};
use super::problem::{Problem, Role, TOO_PRECISE};
use super::tools::{Elements, Findings, Tools};
use crate::record::{Failure, FailureKind};
use crate::{LabError, Operation, Result};

/// The factor of SAXPY: not a power of two, so that the product is rounded.
const FACTOR: f32 = 1.703_125_7;

/// The device, the harness's kernels, and the memory for arrays.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    compiler: Compiler,
    tools: Tools,
    arena: Arena,
    /// Twice the second-level cache; read to empty that one of everything else.
    other: DeviceBuffer<u8>,
}

/// Arrays of one problem on the device.
#[derive(Debug, Clone)]
pub struct Instance {
    /// What a candidate gets.
    pub run: Run,
    views: Vec<View>,
    scratch: Vec<View>,
    /// Of each array.
    seeds: Vec<u64>,
    extreme: u32,
    key: u64,
}

/// What the harness thinks of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The largest error, as a multiple of the honest one.
    pub error: f64,
    /// Why it does not pass.
    pub failure: Option<Failure>,
}

/// A number that nobody knows beforehand.
pub(super) fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Bench {
    /// Compiles the harness's kernels and sets `bytes` of memory aside.
    ///
    /// # Errors
    /// If a kernel does not compile, or there is not so much memory.
    pub fn new(device: &Device, compiler: &Compiler, bytes: u64) -> Result<Self> {
        compiler.check_driver()?;
        let l2 = usize::try_from(device.properties().l2.max(1 << 20)).unwrap_or(usize::MAX);
        let mut other = DeviceBuffer::uninitialized(device, l2.saturating_mul(2))?;
        other.fill_bytes(0x11)?;
        Ok(Self {
            device: device.clone(),
            compiler: compiler.clone(),
            tools: Tools::new(device, compiler)?,
            arena: Arena::new(device, bytes)?,
            other,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The compiler.
    #[must_use]
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub(super) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The arrays of `count` instances of a problem; what was laid out before is given up. `shifts` are elements by which
    /// arrays begin after a boundary.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn lay_out(
        &self,
        problem: &Problem,
        scratch: u64,
        shifts: &[u64],
        extreme: u32,
        count: usize,
    ) -> Result<Vec<Instance>> {
        let element = problem.dtype.bytes();
        let arrays = problem.arrays();
        let mut sizes = Vec::new();
        for _ in 0..count {
            for (index, array) in arrays.iter().enumerate() {
                sizes.push((array.elements * element, shifts.get(index).copied().unwrap_or(0) * element));
            }
            sizes.extend([(scratch * element, 0); 2]);
        }
        let views = self.arena.cut(&sizes)?;
        let key = fresh_seed();
        let instance = |views: &[View]| {
            let (views, scratch) = views.split_at(arrays.len());
            let run = Run {
                problem: *problem,
                factor: FACTOR,
                pointers: views.iter().map(|view| view.pointer).collect(),
                scratch: [scratch[0].pointer, scratch[1].pointer],
            };
            let (views, scratch, seeds) = (views.to_vec(), scratch.to_vec(), vec![0; arrays.len()]);
            Instance { run, views, scratch, seeds, extreme, key }
        };
        Ok(views.chunks_exact(arrays.len() + 2).map(instance).collect())
    }

    /// Makes new inputs, and sets the guards.
    ///
    /// # Errors
    /// If the device fails.
    pub fn fill(&self, instance: &mut Instance) -> Result<()> {
        for (index, view) in instance.views.iter().chain(&instance.scratch).enumerate() {
            for (side, guard) in view.guards().into_iter().enumerate() {
                self.tools.guard(guard, guard_key(instance.key, index, side))?;
            }
        }
        for (index, array) in instance.run.problem.arrays().iter().enumerate() {
            if array.role == Role::Input {
                instance.seeds[index] = fresh_seed();
                self.tools.fill(instance.elements(index), instance.seeds[index], instance.extreme)?;
            }
        }
        self.renew_results(instance)
    }

    /// Poisons what is to be written; what is changed in place gets new contents.
    ///
    /// # Errors
    /// If the device fails.
    pub fn renew_results(&self, instance: &mut Instance) -> Result<()> {
        for (index, array) in instance.run.problem.arrays().iter().enumerate() {
            match array.role {
                Role::Input => {}
                Role::Output => self.poison(&instance.views[index])?,
                Role::InPlace => {
                    instance.seeds[index] = fresh_seed();
                    self.tools.fill(instance.elements(index), instance.seeds[index], instance.extreme)?;
                }
            }
        }
        instance.scratch.iter().try_for_each(|view| self.poison(view))
    }

    /// Changes some thousand elements of each input.
    ///
    /// # Errors
    /// If the device fails.
    pub fn perturb(&self, instance: &Instance) -> Result<()> {
        for (index, array) in instance.run.problem.arrays().iter().enumerate() {
            if array.role == Role::Input {
                self.tools.perturb(instance.elements(index), fresh_seed())?;
            }
        }
        Ok(())
    }

    fn poison(&self, view: &View) -> Result<()> {
        // All ones are a NaN in both types, and no kernel computes that one.
        super::launch::poison(&self.device, view)
    }

    /// Empties the second-level cache of everything that candidates use.
    ///
    /// # Errors
    /// If the device fails.
    pub fn flush(&self) -> Result<()> {
        self.tools.flush(&self.other)
    }

    /// A number for each input that changes when the input does.
    ///
    /// # Errors
    /// If the device fails.
    pub fn checksums(&self, instance: &Instance) -> Result<Vec<u64>> {
        let arrays = instance.run.problem.arrays();
        let inputs = (0..arrays.len()).filter(|&index| arrays[index].role == Role::Input);
        inputs.map(|index| self.tools.checksum(instance.elements(index))).collect()
    }

    /// A number that changes when the result does.
    ///
    /// # Errors
    /// If the device fails.
    pub fn checksum_of_result(&self, instance: &Instance) -> Result<u64> {
        self.tools.checksum(instance.elements(instance.views.len() - 1))
    }

    /// Lets a candidate do the problem once, and judges what it left.
    ///
    /// # Errors
    /// If the device has failed for good, or the harness itself fails; what is wrong with the candidate is a failure of the
    /// judgement.
    pub fn try_once(&self, candidate: &mut dyn Candidate, instance: &mut Instance) -> Result<Judgement> {
        self.fill(instance)?;
        let before = self.checksums(instance)?;
        self.device.synchronize_context()?;
        let outcome = candidate.prepare(&instance.run).and_then(|()| candidate.launch(&instance.run));
        let outcome = outcome.and_then(|()| Ok(self.device.synchronize_context()?));
        if let Err(error) = outcome {
            return Ok(Judgement { error: f64::INFINITY, failure: Some(failure_of(&error, &instance.run.problem)) });
        }
        self.judge(instance, &before)
    }

    /// Judges what lies there now; `before` are the inputs' checksums from before.
    ///
    /// # Errors
    /// If the device fails.
    pub fn judge(&self, instance: &Instance, before: &[u64]) -> Result<Judgement> {
        let problem = &instance.run.problem;
        if let Some(failure) = self.written_outside(instance)? {
            return Ok(Judgement { error: f64::INFINITY, failure: Some(failure) });
        }
        let after = self.checksums(instance)?;
        let arrays = problem.arrays();
        let inputs = arrays.iter().filter(|array| array.role == Role::Input);
        if let Some((array, _)) = inputs.zip(before.iter().zip(&after)).find(|(_, (before, after))| before != after) {
            let text = format!("at {}: input `{}` was changed", problem.shape, array.name);
            let failure = failure(FailureKind::InputChanged, problem, text);
            return Ok(Judgement { error: f64::INFINITY, failure: Some(failure) });
        }
        let elements: Vec<Elements> = (0..arrays.len()).map(|index| instance.elements(index)).collect();
        let seed = instance.seeds[arrays.len() - 1];
        let found = self.tools.compare(problem, &elements, instance.run.factor, seed, instance.extreme)?;
        Ok(Judgement { error: found.worst, failure: wrong(problem, &found, instance.extreme) })
    }

    /// Whether a guard was changed.
    fn written_outside(&self, instance: &Instance) -> Result<Option<Failure>> {
        let problem = &instance.run.problem;
        let arrays = problem.arrays();
        for (index, view) in instance.views.iter().chain(&instance.scratch).enumerate() {
            let name = arrays.get(index).map_or("the array of partial sums", |array| array.name);
            for (side, guard) in view.guards().into_iter().enumerate() {
                let Some((first, end)) = self.tools.changed_guard(guard, guard_key(instance.key, index, side))? else {
                    continue;
                };
                let place = if side == 0 {
                    format!("from {} to {} bytes before", 2 * (guard.1 - first), 2 * (guard.1 - end))
                } else {
                    format!("from {} to {} bytes behind", 2 * first, 2 * end)
                };
                let text = format!("at {}: something was written {place} `{name}`", problem.shape);
                return Ok(Some(failure(FailureKind::OutOfBounds, problem, text)));
            }
        }
        Ok(None)
    }
}

impl Instance {
    fn elements(&self, index: usize) -> Elements {
        let (view, bytes) = (&self.views[index], self.run.problem.dtype.bytes());
        Elements { pointer: view.pointer, count: view.bytes / bytes, bytes }
    }
}

/// The key of a guard's contents.
fn guard_key(key: u64, array: usize, side: usize) -> u64 {
    key ^ (2 * array as u64 + side as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

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
fn wrong(problem: &Problem, found: &Findings, extreme: u32) -> Option<Failure> {
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
        format!("; {} of {} elements are wrong", found.wrong, result.elements)
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
            "at 129: element 128 of `y` is wrong: it should be 2.5 and is 1; 1 of 129 elements are wrong"
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
