//! Every version at small sizes, in allocations of exactly the arrays' sizes, against double precision on the host: without
//! the harness's own kernels and guards. This is what compute-sanitizer is run on
//! (`compute-sanitizer --tool memcheck … small::`).

use half::bf16;
use plancher_cuda::{Compiler, Device, DeviceBuffer};
use plancher_lab::catalogue::STEPS;
use plancher_lab::harness::{Candidate as _, KernelCandidate, Problem, Run};
use plancher_lab::{Dtype, LabError, Operation, Shape, Target, compile};

use crate::common::gpu;

const FACTOR: f32 = 1.25;

/// Sizes with tails in every direction, rounded up to what a version takes.
fn shapes(operation: Operation, multiple: u64) -> Vec<Shape> {
    let shapes = match operation {
        Operation::Saxpy | Operation::Reduction => [1, 129, 5003, 70_001].map(Shape::Vector).to_vec(),
        Operation::Transpose => {
            [(1, 1), (33, 65), (129, 127), (64, 200)].map(|(rows, columns)| Shape::Matrix { rows, columns }).to_vec()
        }
        Operation::Gemm => [(1, 1, 1), (33, 65, 17), (129, 130, 131), (256, 128, 64)]
            .map(|(m, n, k)| Shape::Product { m, n, k })
            .to_vec(),
    };
    shapes.into_iter().map(|shape| shape.rounded_up(multiple)).collect()
}

/// Numbers between -1 and 1, as the type holds them.
fn numbers(count: u64, dtype: Dtype, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        if dtype == Dtype::F32 { x } else { bf16::from_f32(x).to_f32() }
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(numbers: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Dtype::Bf16 => numbers.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
    }
}

fn values(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    match dtype {
        Dtype::F32 => bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]).into()).collect(),
        Dtype::Bf16 => bytes.chunks_exact(2).map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f64()).collect(),
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
        (operation, shape) => panic!("{operation:?} of {shape}"),
    }
}

/// Launches once, and says what is wrong with the result.
fn problem_with(device: &Device, candidate: &mut KernelCandidate, problem: &Problem) -> Option<String> {
    let arrays = problem.arrays();
    let mut inputs: Vec<Vec<f32>> = Vec::new();
    let mut buffers: Vec<DeviceBuffer<u8>> = Vec::new();
    for (index, array) in arrays.iter().enumerate() {
        let numbers = numbers(array.elements, problem.dtype, 17 + index as u32);
        buffers.push(DeviceBuffer::from_slice(device, &bytes(&numbers, problem.dtype)).expect("memory"));
        inputs.push(numbers);
    }
    let scratch = candidate.scratch(problem).expect("it can be done") * problem.dtype.bytes();
    let scratch = [(); 2].map(|()| DeviceBuffer::<u8>::zeroed(device, scratch as usize).expect("memory"));
    let run = Run {
        problem: *problem,
        factor: FACTOR,
        pointers: buffers.iter().map(DeviceBuffer::pointer).collect(),
        scratch: [scratch[0].pointer(), scratch[1].pointer()],
    };
    candidate.prepare(&run).expect("it can be prepared");
    candidate.launch(&run).expect("it can be launched");
    let result = buffers.last().expect("a result").download().expect("it ran");
    let (expected, tolerance) = exact(problem, &inputs);
    let got = values(&result, problem.dtype);
    let wrong = got.iter().zip(&expected).position(|(got, expected)| (got - expected).abs() > tolerance)?;
    Some(format!("{}: element {wrong} is {} and should be {}", problem.shape, got[wrong], expected[wrong]))
}

fn load(
    device: &Device,
    compiler: &Compiler,
    operation: Operation,
    (file, source): (&str, &str),
    dtype: Dtype,
) -> Option<(KernelCandidate, u64)> {
    let target = Target::of(device.properties());
    let name = file.trim_end_matches(".cu");
    match compile(compiler, (name, source), operation, dtype, &target) {
        Ok(compiled) => {
            let candidate = KernelCandidate::load(device, &compiled.cubin, &compiled.directives, operation);
            Some((candidate.expect("it loads"), compiled.directives.multiple))
        }
        // It is for another GPU.
        Err(LabError::Unsupported(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_version_agrees_with_the_host_at_small_sizes() {
    let Some((device, compiler)) = gpu() else { return };
    let mut problems = Vec::new();
    for step in STEPS {
        let Some(operation) = step.operation else { continue };
        for (version, dtype) in step.versions.iter().flat_map(|it| it.dtypes.iter().map(move |dtype| (it, *dtype))) {
            let file = (version.file, version.source);
            let Some((mut candidate, multiple)) = load(&device, &compiler, operation, file, dtype) else { continue };
            for shape in shapes(operation, multiple) {
                let problem = Problem { operation, dtype, shape };
                let wrong = problem_with(&device, &mut candidate, &problem);
                problems.extend(wrong.map(|text| format!("{} {dtype}, {text}", version.file)));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
