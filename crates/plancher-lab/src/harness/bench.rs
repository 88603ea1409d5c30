//! A problem's arrays on the device, filled, poisoned and guarded, and the judgement of what a candidate left there.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use plancher_cuda::{Compiler, Device, DeviceBuffer};

use super::candidate::{Candidate, Run};
use super::judgement::{Judgement, failure, failure_of, wrong};
use super::memory::{Arena, View};
use super::problem::{Problem, Role};
use super::tools::{Elements, Tools};
use crate::Result;
use crate::record::{Failure, FailureKind};

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
        instance.seeds.fill_with(fresh_seed);
        self.fill_by_seeds(instance)
    }

    /// Makes the inputs of another instance of the same problem, and sets the guards.
    pub(super) fn fill_like(&self, instance: &mut Instance, other: &Instance) -> Result<()> {
        instance.seeds.clone_from(&other.seeds);
        self.fill_by_seeds(instance)
    }

    fn fill_by_seeds(&self, instance: &mut Instance) -> Result<()> {
        for (index, view) in instance.views.iter().chain(&instance.scratch).enumerate() {
            for (side, guard) in view.guards().into_iter().enumerate() {
                self.tools.guard(guard, guard_key(instance.key, index, side))?;
            }
        }
        for (index, array) in instance.run.problem.arrays().iter().enumerate() {
            if array.role == Role::Input {
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
