//! A kernel at small sizes, in allocations of exactly its arrays' sizes and without the harness's guards, poison and kernels:
//! what a tool that watches memory (compute-sanitizer) needs in order to see everything, and nothing but the kernel. The
//! result is held against double precision on the host.

use plancher_cuda::{Device, DeviceBuffer};

use super::candidate::{Candidate as _, KernelCandidate, Run};
use super::cases::{Limits, has_empty_side};
use super::problem::{Problem, Role};
use crate::record::Case;
use crate::{Dtype, Operation, Result, Shape};

/// The factor of SAXPY, which every type holds.
const FACTOR: f32 = 1.25;

/// What is tried: sizes in a case, each array `shift` elements off the boundary at which its allocation begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallCase {
    /// The case.
    pub case: Case,
    /// The sizes.
    pub shapes: Vec<Shape>,
    /// Elements by which each array begins after a boundary.
    pub shift: u64,
}

/// The cases that a version takes: nothing and one, tails in every direction, arrays off a boundary.
#[must_use]
pub fn small_cases(operation: Operation, limits: Limits) -> Vec<SmallCase> {
    let vectors = |sizes: &[u64]| sizes.iter().map(|&size| Shape::Vector(size)).collect::<Vec<_>>();
    let matrices =
        |sizes: &[(u64, u64)]| sizes.iter().map(|&(rows, columns)| Shape::Matrix { rows, columns }).collect::<Vec<_>>();
    let products =
        |sizes: &[(u64, u64, u64)]| sizes.iter().map(|&(m, n, k)| Shape::Product { m, n, k }).collect::<Vec<_>>();
    let shapes = |case: Case| match (operation, case) {
        (Operation::Saxpy | Operation::Reduction, Case::EmptyAndOne) => vectors(&[0, 1]),
        (Operation::Saxpy | Operation::Reduction, Case::Tails) => vectors(&[129, 5003, 70_001]),
        (Operation::Saxpy | Operation::Reduction, _) => vectors(&[5003]),
        (Operation::Transpose, Case::EmptyAndOne) => matrices(&[(0, 5), (5, 0), (1, 1)]),
        (Operation::Transpose, Case::Tails) => matrices(&[(33, 65), (129, 127), (64, 200), (257, 130)]),
        (Operation::Transpose, _) => matrices(&[(67, 131), (128, 64)]),
        (Operation::Gemm, Case::EmptyAndOne) => products(&[(0, 5, 7), (5, 0, 7), (5, 7, 0), (1, 1, 1)]),
        (Operation::Gemm, Case::Tails) => products(&[(33, 65, 17), (129, 130, 131), (256, 128, 64)]),
        (Operation::Gemm, _) => products(&[(33, 65, 17), (128, 128, 64)]),
    };
    [(Case::EmptyAndOne, 0), (Case::Tails, 0), (Case::Misaligned, 1)]
        .into_iter()
        .filter(|(case, _)| !(*case == Case::Misaligned && limits.tensor_maps))
        .map(|(case, shift)| {
            let mut shapes: Vec<Shape> =
                shapes(case).into_iter().map(|shape| shape.rounded_up(limits.multiple.max(1))).collect();
            shapes.retain(|&shape| !(limits.tensor_maps && has_empty_side(shape)));
            shapes.dedup();
            SmallCase { case, shapes, shift }
        })
        .collect()
}

/// Lets a kernel do a problem once, and says what is wrong with the result; with `read_back` false the result stays where it
/// is, for a tool that does not see every way in which a kernel writes and would take the copy for a read of nothing.
///
/// # Errors
/// If it cannot be launched, or the device fails.
pub fn try_small(
    device: &Device,
    candidate: &mut KernelCandidate,
    problem: &Problem,
    shift: u64,
    read_back: bool,
) -> Result<Option<String>> {
    let (dtype, offset) = (problem.dtype, shift * problem.dtype.bytes());
    let mut inputs: Vec<Vec<f32>> = Vec::new();
    let mut buffers: Vec<DeviceBuffer<u8>> = Vec::new();
    for (index, array) in problem.arrays().iter().enumerate() {
        let numbers = numbers(array.elements, dtype, 17 + index as u32);
        let bytes = offset + array.elements * dtype.bytes();
        // What is before an array, and what is to be written, is left as nobody has written it.
        let mut buffer = DeviceBuffer::uninitialized(device, bytes as usize)?;
        if array.role != Role::Output {
            buffer.upload(offset as usize, &bytes_of(&numbers, dtype))?;
        }
        buffers.push(buffer);
        inputs.push(numbers);
    }
    let scratch = (candidate.scratch(problem)? * dtype.bytes()) as usize;
    let scratch = [DeviceBuffer::<u8>::uninitialized(device, scratch)?, DeviceBuffer::uninitialized(device, scratch)?];
    let run = Run {
        problem: *problem,
        factor: FACTOR,
        pointers: buffers.iter().map(|buffer| buffer.pointer() + offset).collect(),
        scratch: [scratch[0].pointer(), scratch[1].pointer()],
    };
    candidate.prepare(&run)?;
    candidate.launch(&run)?;
    device.synchronize_context()?;
    let Some(result) = buffers.last().filter(|_| read_back) else { return Ok(None) };
    let bytes = result.download_range(offset as usize, result.bytes() - offset as usize)?;
    let (expected, tolerance) = exact(problem, &inputs);
    let got = values(&bytes, dtype);
    let is_wrong = |(got, expected): (&f64, &f64)| got.is_nan() || (got - expected).abs() > tolerance;
    let wrong = got.iter().zip(&expected).position(is_wrong);
    Ok(wrong.map(|at| format!("{}: element {at} is {} and should be {}", problem.shape, got[at], expected[at])))
}

/// Numbers between -1 and 1, as the type holds them.
fn numbers(count: u64, dtype: Dtype, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        if dtype == Dtype::F32 { x } else { f32::from_bits(u32::from(bf16(x)) << 16) }
    };
    (0..count).map(|_| next()).collect()
}

/// The nearest bf16, even where two are as near, of a number that is not NaN.
fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn bytes_of(numbers: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Dtype::Bf16 => numbers.iter().flat_map(|&x| bf16(x).to_le_bytes()).collect(),
    }
}

fn values(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    match dtype {
        Dtype::F32 => bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]).into()).collect(),
        Dtype::Bf16 => bytes.chunks_exact(2).map(|x| f32::from_le_bytes([0, 0, x[0], x[1]]).into()).collect(),
    }
}

/// The exact result, and by how much one may differ.
fn exact(problem: &Problem, inputs: &[Vec<f32>]) -> (Vec<f64>, f64) {
    let x = |array: usize, index: u64| f64::from(inputs[array][index as usize]);
    match (problem.operation, problem.shape) {
        (Operation::Saxpy, shape) => {
            ((0..shape.elements()).map(|i| f64::from(FACTOR) * x(0, i) + x(1, i)).collect(), 1e-6)
        }
        (Operation::Transpose, Shape::Matrix { rows, columns }) => {
            ((0..rows * columns).map(|i| x(0, i % rows * columns + i / rows)).collect(), 0.0)
        }
        (Operation::Reduction, shape) => (vec![(0..shape.elements()).map(|i| x(0, i)).sum()], 1e-3),
        (Operation::Gemm, Shape::Product { m, n, k }) => {
            let b = |j: u64, column: u64| if problem.b_is_transposed() { column * k + j } else { j * n + column };
            let element = |i: u64| (0..k).map(|j| x(0, i / n * k + j) * x(1, b(j, i % n))).sum::<f64>();
            let tolerance = if problem.dtype == Dtype::F32 { 1e-4 } else { 0.1 };
            ((0..m * n).map(element).collect(), tolerance)
        }
        // No problem has such a shape.
        (Operation::Transpose | Operation::Gemm, _) => (Vec::new(), 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_tried_in_what_it_takes() {
        let cases = |limits| -> Vec<String> {
            let cases = small_cases(Operation::Gemm, limits);
            cases.iter().map(|it| format!("{} {} {}", it.case, it.shapes.len(), it.shift)).collect()
        };
        assert_eq!(cases(Limits::default()), ["empty and one 4 0", "tails 3 0", "misaligned 2 1"]);
        let maps = Limits { multiple: 8, tensor_maps: true, ..Limits::default() };
        assert_eq!(cases(maps), ["empty and one 1 0", "tails 3 0"]);
        for operation in [Operation::Saxpy, Operation::Transpose, Operation::Reduction, Operation::Gemm] {
            for SmallCase { shapes, .. } in small_cases(operation, maps) {
                assert!(shapes.iter().all(|&shape| shape.rounded_up(8) == shape));
            }
        }
    }

    #[test]
    fn the_host_computes_what_is_asked() {
        let problem = |operation, dtype, shape| Problem { operation, dtype, shape };
        let shape = Shape::Product { m: 2, n: 2, k: 2 };
        let (a, b) = (vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]);
        let inputs = [a, b, Vec::new()];
        let product = |dtype| exact(&problem(Operation::Gemm, dtype, shape), &inputs).0;
        assert_eq!(product(Dtype::F32), [19.0, 22.0, 43.0, 50.0]);
        // In bf16 the right matrix comes transposed.
        assert_eq!(product(Dtype::Bf16), [17.0, 23.0, 39.0, 53.0]);
        let shape = Shape::Matrix { rows: 2, columns: 3 };
        let inputs = [vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], Vec::new()];
        let transposed = exact(&problem(Operation::Transpose, Dtype::F32, shape), &inputs).0;
        assert_eq!(transposed, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let sum = exact(&problem(Operation::Reduction, Dtype::F32, Shape::Vector(0)), &[Vec::new(), Vec::new()]).0;
        assert_eq!(sum, [0.0]);
    }

    #[test]
    fn numbers_are_those_of_their_type() {
        for x in [0.0_f32, 1.0, -1.0, 0.3, 1.003_906_3, 0.999_999] {
            assert_eq!(bf16(x), half::bf16::from_f32(x).to_bits(), "{x}");
        }
        let all = numbers(1000, Dtype::Bf16, 3);
        assert_eq!(
            values(&bytes_of(&all, Dtype::Bf16), Dtype::Bf16),
            all.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()
        );
        assert!(all.iter().all(|x| (-1.0..=1.0).contains(x)) && all[0].to_bits() != all[1].to_bits());
    }
}
