//! The harness's own kernels (`kernels/harness.cu`) and what they find.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};
use plancher_cuda::{Arguments, Compiler, Device, DeviceBuffer, Kernel, Launch, Module, Specialization};

use super::launch::launch;
use super::problem::Problem;
use crate::{Operation, Result, Shape};

/// The text of the kernels.
const SOURCE: &str = include_str!("../../kernels/harness.cu");
/// Threads of a block.
const THREADS: u32 = 256;
/// A target that is no element.
const NONE: u64 = u64::MAX;

/// What a comparison found, laid out as in the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Findings {
    /// The first wrong element, all ones if there is none.
    pub(super) first: u64,
    /// How many are wrong.
    pub(super) wrong: u64,
    /// How many of them were never written.
    pub(super) unwritten: u64,
    /// How many are NaN and should not be, or the other way round.
    pub(super) nan: u64,
    /// The largest error, as a multiple of the honest one.
    pub(super) worst: f64,
    /// The sum of squared errors.
    pub(super) squares: f64,
    /// The same for the exact result, rounded once.
    pub(super) rounding: f64,
    /// What the first wrong element should be.
    pub(super) expected: f64,
    /// What it is.
    pub(super) got: f64,
}

impl Findings {
    const START: Self = Self {
        first: NONE,
        wrong: 0,
        unwritten: 0,
        nan: 0,
        worst: 0.0,
        squares: 0.0,
        rounding: 0.0,
        expected: 0.0,
        got: 0.0,
    };
}

/// An array on the device: address, elements, bytes of an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements {
    pub(super) pointer: u64,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// The kernels, loaded, with a little memory for their answers.
#[derive(Debug)]
pub(super) struct Tools {
    device: Device,
    fill: Kernel,
    perturb: Kernel,
    guard: Kernel,
    guard_check: Kernel,
    checksum: Kernel,
    flush: Kernel,
    wait: Kernel,
    check_saxpy: Kernel,
    check_transpose: Kernel,
    sum: Kernel,
    check_sum: Kernel,
    norms: Kernel,
    gemm: Kernel,
    check_gemm: Kernel,
    findings: RefCell<DeviceBuffer<Findings>>,
    words: RefCell<DeviceBuffer<u64>>,
    /// The exact product, and the norms of rows and columns.
    exact: RefCell<[DeviceBuffer<f64>; 3]>,
}

impl Tools {
    pub(super) fn new(device: &Device, compiler: &Compiler) -> Result<Self> {
        let cubin = compiler.compile_text("harness", SOURCE, &Specialization::new(), device.architecture())?;
        let module = Module::load(device, &cubin)?;
        let kernel = |name: &str| module.kernel(name);
        let nothing = || DeviceBuffer::uninitialized(device, 0);
        Ok(Self {
            device: device.clone(),
            fill: kernel("lab_fill")?,
            perturb: kernel("lab_perturb")?,
            guard: kernel("lab_guard")?,
            guard_check: kernel("lab_guard_check")?,
            checksum: kernel("lab_checksum")?,
            flush: kernel("lab_flush")?,
            wait: kernel("lab_wait")?,
            check_saxpy: kernel("lab_check_saxpy")?,
            check_transpose: kernel("lab_check_transpose")?,
            sum: kernel("lab_sum")?,
            check_sum: kernel("lab_check_sum")?,
            norms: kernel("lab_norms")?,
            gemm: kernel("lab_gemm")?,
            check_gemm: kernel("lab_check_gemm")?,
            findings: RefCell::new(DeviceBuffer::uninitialized(device, 1)?),
            words: RefCell::new(DeviceBuffer::uninitialized(device, 2)?),
            exact: RefCell::new([nothing()?, nothing()?, nothing()?]),
        })
    }

    /// Enough blocks for `work` items, and no more than fill the device.
    fn run(&self, kernel: &Kernel, work: u64, arguments: &Arguments) -> Result<()> {
        if work == 0 {
            return Ok(());
        }
        let most = u64::from(self.device.properties().multiprocessors) * 16;
        let blocks = work.div_ceil(THREADS.into()).min(most) as u32;
        launch(kernel, &Launch::linear(blocks, THREADS), arguments)
    }

    /// Makes the array of a seed; `extreme` 0 to 4 as in the kernels.
    pub(super) fn fill(&self, to: Elements, seed: u64, extreme: u32) -> Result<()> {
        let arguments = Arguments::new().value(to.pointer).value(to.count).value(to.bytes as u32);
        self.run(&self.fill, to.count, &arguments.value(seed).value(extreme))
    }

    /// Changes some thousand elements.
    pub(super) fn perturb(&self, to: Elements, seed: u64) -> Result<()> {
        let count = to.count.min(4096);
        let arguments = Arguments::new().value(to.pointer).value(to.count).value(to.bytes as u32);
        self.run(&self.perturb, count, &arguments.value(seed).value(count))
    }

    /// Fills a guard of so many 2-byte words.
    pub(super) fn guard(&self, (pointer, words): (u64, u64), key: u64) -> Result<()> {
        self.run(&self.guard, words, &Arguments::new().value(pointer).value(words).value(key))
    }

    /// The first changed word of a guard and the one behind the last.
    pub(super) fn changed_guard(&self, (pointer, words): (u64, u64), key: u64) -> Result<Option<(u64, u64)>> {
        let mut bounds = self.words.borrow_mut();
        bounds.upload(0, &[u64::MAX, 0])?;
        let arguments = Arguments::new().value(pointer).value(words).value(key).buffer(&bounds);
        self.run(&self.guard_check, words, &arguments)?;
        let bounds = bounds.download()?;
        Ok((bounds[1] > 0).then_some((bounds[0], bounds[1])))
    }

    /// A number that depends on every bit of an array.
    pub(super) fn checksum(&self, from: Elements) -> Result<u64> {
        let mut sum = self.words.borrow_mut();
        sum.upload(0, &[0, 0])?;
        let arguments = Arguments::new().value(from.pointer).value(from.count).value(from.bytes as u32).buffer(&sum);
        self.run(&self.checksum, from.count, &arguments)?;
        Ok(sum.download()?[0])
    }

    /// Reads an array, so that nothing else is in the second-level cache.
    pub(super) fn flush(&self, from: &DeviceBuffer<u8>) -> Result<()> {
        let words = from.bytes() as u64 / 16;
        let sink = self.words.borrow();
        self.run(&self.flush, words, &Arguments::new().buffer(from).value(words).buffer(&sink))
    }

    /// Keeps the stream busy for so many nanoseconds.
    pub(super) fn wait(&self, nanoseconds: u32) -> Result<()> {
        launch(&self.wait, &Launch::linear(1, 1), &Arguments::new().value(nanoseconds))
    }

    /// Holds the result of a problem against double precision: `arrays` are the problem's, the last one the result; `seed`
    /// is that of an array changed in place.
    pub(super) fn compare(
        &self,
        problem: &Problem,
        arrays: &[Elements],
        factor: f32,
        seed: u64,
        extreme: u32,
    ) -> Result<Findings> {
        self.make_exact(problem, arrays)?;
        let once = |target: u64| -> Result<Findings> {
            self.findings.borrow_mut().upload(0, &[Findings::START])?;
            self.compare_once(problem, arrays, factor, (seed, extreme), target)?;
            Ok(self.findings.borrow().download()?[0])
        };
        let found = once(NONE)?;
        // The second time for the values at the first wrong element.
        if found.wrong == 0 { Ok(found) } else { once(found.first) }
    }

    /// What is computed once for a comparison: a product, or a sum.
    fn make_exact(&self, problem: &Problem, arrays: &[Elements]) -> Result<()> {
        let exact = &mut *self.exact.borrow_mut();
        match (problem.operation, problem.shape) {
            (Operation::Reduction, _) => {
                self.reserve(&mut exact[0], 2)?;
                exact[0].fill_bytes(0)?;
                let x = arrays[0];
                let arguments = Arguments::new().value(x.pointer).value(x.count).value(x.bytes as u32);
                self.run(&self.sum, x.count, &arguments.buffer(&exact[0]))
            }
            (Operation::Gemm, Shape::Product { m, n, k }) => {
                for (buffer, count) in exact.iter_mut().zip([m * n, m, n]) {
                    self.reserve(buffer, count)?;
                }
                let (a, b, bytes) = (arrays[0].pointer, arrays[1].pointer, arrays[0].bytes as u32);
                let transposed = problem.b_is_transposed();
                let norms = |from: u64, count: u64, [outer, inner]: [u64; 2], to: &DeviceBuffer<f64>| {
                    let arguments = Arguments::new().value(from).value(count).value(k).value(outer).value(inner);
                    self.run(&self.norms, count, &arguments.value(bytes).buffer(to))
                };
                norms(a, m, [k, 1], &exact[1])?;
                norms(b, n, if transposed { [k, 1] } else { [1, n] }, &exact[2])?;
                if m * n == 0 {
                    return Ok(());
                }
                let arguments = Arguments::new().value(a).value(b).buffer(&exact[0]).value(m).value(n).value(k);
                let grid = [n.div_ceil(64) as u32, m.div_ceil(64) as u32, 1];
                let arguments = arguments.value(u32::from(transposed)).value(bytes);
                launch(&self.gemm, &Launch::new(grid, [THREADS, 1, 1]), &arguments)
            }
            _ => Ok(()),
        }
    }

    fn reserve(&self, buffer: &mut DeviceBuffer<f64>, count: u64) -> Result<()> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if buffer.len() < count {
            *buffer = DeviceBuffer::uninitialized(&self.device, count)?;
        }
        Ok(())
    }

    fn compare_once(
        &self,
        problem: &Problem,
        arrays: &[Elements],
        factor: f32,
        (seed, extreme): (u64, u32),
        target: u64,
    ) -> Result<()> {
        let (findings, exact) = (self.findings.borrow(), self.exact.borrow());
        let (result, limit) = (arrays[arrays.len() - 1], problem.limit());
        let arguments = Arguments::new();
        match (problem.operation, problem.shape) {
            (Operation::Saxpy, _) => {
                let x = arrays[0];
                let arguments = arguments.value(factor).value(x.pointer).value(result.pointer).value(x.count);
                let arguments = arguments.value(seed).value(extreme).value(limit).value(target).buffer(&findings);
                self.run(&self.check_saxpy, x.count, &arguments)
            }
            (Operation::Transpose, Shape::Matrix { rows, columns }) => {
                let arguments = arguments.value(arrays[0].pointer).value(result.pointer).value(rows).value(columns);
                let arguments = arguments.value(result.bytes as u32).value(target).buffer(&findings);
                self.run(&self.check_transpose, rows * columns, &arguments)
            }
            (Operation::Reduction, shape) => {
                let arguments = arguments.value(result.pointer).value(shape.elements()).buffer(&exact[0]);
                self.run(&self.check_sum, 1, &arguments.value(limit).value(target).buffer(&findings))
            }
            (Operation::Gemm, Shape::Product { m, n, .. }) => {
                let arguments = arguments.value(result.pointer).buffer(&exact[0]).buffer(&exact[1]).buffer(&exact[2]);
                let arguments = arguments.value(m).value(n).value(result.bytes as u32).value(limit);
                self.run(&self.check_gemm, m * n, &arguments.value(target).buffer(&findings))
            }
            (Operation::Transpose | Operation::Gemm, _) => Ok(()),
        }
    }
}
