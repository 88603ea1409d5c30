//! Candidates that cheat, in the ways in which public leaderboards have been cheated: the harness must reject each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use plancher_cuda::{Arguments, Compiler, Device, DeviceBuffer, Graph, Kernel, Launch, Module, Specialization};
use plancher_lab::harness::{
    Bench, Candidate, Ceilings, Effort, KernelCandidate, Limits, Problem, Run, launch, replay,
};
use plancher_lab::record::{Case, FailureKind, Machine, PointRun};
use plancher_lab::step::{Ceiling, Point};
use plancher_lab::verdict::{below_floor, counts};
use plancher_lab::{Dtype, LabError, Operation, Result, Shape, Target, catalogue, compile};

use crate::common::gpu;

const ROWS: u64 = 4096;
const COLUMNS: u64 = 8192;
/// 128 MiB in, as much out: some tens of microseconds.
const TRANSPOSE: Problem = Problem {
    operation: Operation::Transpose,
    dtype: Dtype::F32,
    shape: Shape::Matrix { rows: ROWS, columns: COLUMNS },
};
const BYTES: u64 = 2 << 30;

/// The harness with a kernel that does what it says.
struct Lab {
    device: Device,
    compiler: Compiler,
    bench: Bench,
    ceilings: Ceilings,
}

impl Lab {
    fn open() -> Option<Self> {
        let (device, compiler) = gpu()?;
        let bench = Bench::new(&device, &compiler, BYTES).expect("memory");
        let ceilings = Ceilings::new(&device, &compiler, 512 << 20, 0).expect("memory");
        Some(Self { device, compiler, bench, ceilings })
    }

    /// The plainest version of a step.
    fn honest_on(&self, device: &Device, step: &str) -> KernelCandidate {
        self.version_on(device, step, catalogue::step(step).expect("there").versions[0].id)
    }

    fn version_on(&self, device: &Device, step: &str, version: &str) -> KernelCandidate {
        let step = catalogue::step(step).expect("there");
        let (version, operation) = (step.version(version).expect("there"), step.operation.expect("it has one"));
        let target = Target::of(device.properties());
        let file = (version.id, version.source);
        let compiled = compile(&self.compiler, file, operation, Dtype::F32, &target).expect("it compiles");
        KernelCandidate::load(device, &compiled.cubin, &compiled.directives, operation).expect("it loads")
    }

    fn honest(&self, step: &str) -> KernelCandidate {
        self.honest_on(&self.device, step)
    }

    fn tool(&self, name: &str) -> Kernel {
        let text = include_str!("../kernels/cheats.cu");
        let constants = Specialization::new();
        let cubin = self.compiler.compile_text("cheats", text, &constants, self.device.architecture());
        Module::load(&self.device, &cubin.expect("it compiles")).and_then(|module| module.kernel(name)).expect(name)
    }

    fn time(&mut self, candidate: &mut dyn Candidate) -> PointRun {
        let (dtype, shape) = (TRANSPOSE.dtype, TRANSPOSE.shape);
        let point = Point { dtype, shape, ceiling: Ceiling::Copy, sweep: false };
        self.bench
            .time(candidate, (&TRANSPOSE, &point), &mut self.ceilings, Effort::FULL, &mut || {})
            .expect("the harness works")
    }

    /// The kind of failure with which timing ends.
    fn timed(&mut self, candidate: &mut dyn Candidate) -> FailureKind {
        let run = self.time(candidate);
        assert!(counts(&Machine::default(), Dtype::F32, &run).is_err(), "no record: {run:?}");
        run.failure.unwrap_or_else(|| panic!("it was believed: {:?}", run.milliseconds)).kind
    }

    /// The first failure in the five cases.
    fn tried(&self, candidate: &mut dyn Candidate, operation: Operation) -> Option<FailureKind> {
        Case::ALL.into_iter().find_map(|case| {
            let run = self.bench.run_case(candidate, (operation, Dtype::F32), case, Limits::default(), &mut |_| {});
            run.expect("the harness works").failure.map(|failure| failure.kind)
        })
    }
}

/// A candidate that is a closure.
struct Cheat<F>(F);

impl<F: FnMut(&Run) -> Result<()>> Candidate for Cheat<F> {
    fn launch(&mut self, run: &Run) -> Result<()> {
        self.0(run)
    }
}

/// Enough threads for anything.
fn everywhere(kernel: &Kernel, arguments: &Arguments) -> Result<()> {
    launch(kernel, &Launch::linear(1024, 256), arguments)
}

#[test]
fn the_honest_kernel_is_believed() {
    let Some(mut lab) = Lab::open() else { return };
    let mut honest = lab.honest("transpose");
    assert_eq!(lab.tried(&mut honest, Operation::Transpose), None);
    let run = lab.time(&mut honest);
    assert_eq!(run.failure, None);
    assert!(run.verified >= 1 && run.milliseconds.len() >= 9);
}

#[test]
fn an_old_right_answer_in_memory_is_no_answer() {
    let Some(mut lab) = Lab::open() else { return };
    let mut honest = lab.honest("transpose");
    let mut instances = lab.bench.lay_out(&TRANSPOSE, 0, &[], 0, 1).expect("it fits");
    let judgement = lab.bench.try_once(&mut honest, &mut instances[0]).expect("it runs");
    assert_eq!(judgement.failure, None);
    // The right answer to these inputs lies there now; this one leaves it at that.
    let mut nothing = Cheat(|_: &Run| Ok(()));
    let judgement = lab.bench.try_once(&mut nothing, &mut instances[0]).expect("it runs");
    assert_eq!(judgement.failure.map(|failure| failure.kind), Some(FailureKind::NotWritten));
    assert_eq!(lab.timed(&mut nothing), FailureKind::TimedLaunchWrong);
}

#[test]
fn work_that_is_only_done_the_first_times_is_noticed() {
    let Some(mut lab) = Lab::open() else { return };
    let mut honest = lab.honest("transpose");
    let mut calls = HashMap::new();
    let mut cheat = Cheat(|run: &Run| {
        let count = calls.entry(run.pointers.clone()).or_insert(0);
        *count += 1;
        if *count > 1 { Ok(()) } else { honest.launch(run) }
    });
    assert_eq!(lab.timed(&mut cheat), FailureKind::TimedLaunchWrong);
}

#[test]
fn a_result_kept_by_the_address_of_its_input_is_noticed() {
    let Some(mut lab) = Lab::open() else { return };
    let (mut honest, copy, device) = (lab.honest("transpose"), lab.tool("copy"), lab.device.clone());
    let mut kept: HashMap<u64, DeviceBuffer<u32>> = HashMap::new();
    let mut cheat = Cheat(|run: &Run| {
        let (input, output, n) = (run.pointers[0], run.pointers[1], run.problem.shape.elements());
        if let Some(kept) = kept.get(&input) {
            return everywhere(&copy, &Arguments::new().buffer(kept).value(output).value(n));
        }
        honest.launch(run)?;
        let memory = DeviceBuffer::uninitialized(&device, n as usize)?;
        everywhere(&copy, &Arguments::new().value(output).buffer(&memory).value(n))?;
        kept.insert(input, memory);
        Ok(())
    });
    assert_eq!(lab.timed(&mut cheat), FailureKind::TimedLaunchWrong);
}

#[test]
fn a_result_kept_by_a_sample_of_its_input_is_noticed() {
    let Some(mut lab) = Lab::open() else { return };
    let tools = ["transpose_by_sample", "take_sample", "copy"].map(|name| lab.tool(name));
    let [transpose, take, copy] = tools;
    let elements = ROWS * COLUMNS;
    let mut kept: HashMap<u64, [DeviceBuffer<u32>; 2]> = HashMap::new();
    let device = lab.device.clone();
    let mut cheat = Cheat(|run: &Run| {
        let (input, output) = (run.pointers[0], run.pointers[1]);
        let memory = |len| DeviceBuffer::zeroed(&device, len);
        let [sample, result] = match kept.entry(input) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert([memory(16)?, memory(elements as usize)?]),
        };
        let arguments = Arguments::new().value(input).value(output).value(ROWS).value(COLUMNS);
        everywhere(&transpose, &arguments.buffer(sample).buffer(result))?;
        // A few thousand changed elements of 33 million hardly ever meet a sample of sixteen.
        launch(&take, &Launch::linear(1, 16), &Arguments::new().value(input).value(elements).buffer(sample))?;
        everywhere(&copy, &Arguments::new().value(output).buffer(result).value(elements))?;
        Ok(())
    });
    assert_eq!(lab.timed(&mut cheat), FailureKind::TimedLaunchWrong);
}

#[test]
fn work_on_another_stream_is_noticed() {
    let Some(mut lab) = Lab::open() else { return };
    // The same device opened again: the same context, another stream.
    let elsewhere = Device::open(0).expect("it opens twice");
    let mut honest = lab.honest_on(&elsewhere, "transpose");
    let mut cheat = Cheat(|run: &Run| (0..8).try_for_each(|_| honest.launch(run)));
    let kind = lab.timed(&mut cheat);
    assert!(
        [FailureKind::OtherStream, FailureKind::TimesDisagree, FailureKind::TimedLaunchWrong].contains(&kind),
        "{kind:?}"
    );
}

#[test]
fn an_input_that_is_changed_is_noticed() {
    let Some(lab) = Lab::open() else { return };
    let (mut honest, spoil) = (lab.honest("transpose"), lab.tool("spoil"));
    let mut cheat = Cheat(|run: &Run| {
        honest.launch(run)?;
        launch(&spoil, &Launch::linear(1, 1), &Arguments::new().value(run.pointers[0]))
    });
    let mut instances = lab.bench.lay_out(&TRANSPOSE, 0, &[], 0, 1).expect("it fits");
    let judgement = lab.bench.try_once(&mut cheat, &mut instances[0]).expect("it runs");
    assert_eq!(judgement.failure.map(|failure| failure.kind), Some(FailureKind::InputChanged));
}

#[test]
fn zeros_are_no_sum_of_numbers_around_zero() {
    let Some(lab) = Lab::open() else { return };
    let fill = lab.tool("fill");
    let mut cheat =
        Cheat(|run: &Run| everywhere(&fill, &Arguments::new().value(run.pointers[1]).value(0.0_f32).value(1_u64)));
    let problem = |n| Problem { operation: Operation::Reduction, dtype: Dtype::F32, shape: Shape::Vector(n) };
    for n in [1_000, 1 << 20, 1 << 26] {
        let mut instances = lab.bench.lay_out(&problem(n), 0, &[], 0, 1).expect("it fits");
        let judgement = lab.bench.try_once(&mut cheat, &mut instances[0]).expect("it runs");
        assert_eq!(judgement.failure.map(|failure| failure.kind), Some(FailureKind::WrongValue), "{n}");
    }
}

#[test]
fn a_product_in_lower_precision_is_noticed() {
    let Some(lab) = Lab::open() else { return };
    let gemm = lab.tool("gemm_in_bf16");
    let mut cheat = Cheat(|run: &Run| {
        let Shape::Product { m, n, k } = run.problem.shape else {
            return Err(LabError::Unsupported("no product".to_owned()));
        };
        let arguments = run.pointers.iter().fold(Arguments::new(), |arguments, &pointer| arguments.value(pointer));
        everywhere(&gemm, &arguments.value(m as i32).value(n as i32).value(k as i32))
    });
    assert_eq!(lab.tried(&mut cheat, Operation::Gemm), Some(FailureKind::WrongValue));
}

#[test]
fn a_cache_that_is_left_set_aside_is_noticed_and_given_back() {
    let Some(mut lab) = Lab::open() else { return };
    let (mut honest, device) = (lab.honest("transpose"), lab.device.clone());
    let mut cheat = Cheat(|run: &Run| {
        device.set_persisting_l2(8 << 20)?;
        honest.launch(run)
    });
    assert_eq!(lab.timed(&mut cheat), FailureKind::PersistingL2);
    assert_eq!(lab.device.persisting_l2().expect("it answers"), 0);
}

#[test]
fn sums_whose_bits_depend_on_where_the_array_begins_are_noticed() {
    let Some(lab) = Lab::open() else { return };
    let limits = Limits { deterministic: true, anywhere: true, ..Limits::default() };
    let of = |version: &str| {
        let mut candidate = lab.version_on(&lab.device, "reduction", version);
        let reduction = (Operation::Reduction, Dtype::F32);
        let run = lab.bench.run_case(&mut candidate, reduction, Case::Misaligned, limits, &mut |_| {});
        run.expect("the harness works").failure.map(|failure| failure.kind)
    };
    assert_eq!(of("deterministic"), None);
    // A thread adds other elements when vectors begin elsewhere; in one of six trials at least that shows.
    assert_eq!(of("two_level"), Some(FailureKind::NotRepeatable));
}

#[test]
fn an_empty_graph_does_nothing_and_is_noticed() {
    let Some(mut lab) = Lab::open() else { return };
    let mut graph = Graph::capture(&lab.device, "nothing", || Ok(())).expect("nothing can be recorded");
    let mut cheat = Cheat(|_: &Run| replay(&mut graph));
    assert_eq!(lab.timed(&mut cheat), FailureKind::TimedLaunchWrong);
}

#[test]
fn a_time_below_the_floor_is_no_record() {
    let Some(mut lab) = Lab::open() else { return };
    let run = lab.time(&mut Cheat(|_: &Run| Ok(())));
    // Nothing at all takes a microsecond or two; 256 MiB take tens of them on any GPU that there is.
    let machine = Machine { datasheet_bandwidth_gb_per_s: Some(8000.0), ..Machine::default() };
    let honest = PointRun { failure: None, verified: 1, ..run };
    let text = below_floor(&machine, Dtype::F32, &honest).expect("it is impossible");
    assert!(counts(&machine, Dtype::F32, &honest).is_err(), "{text}");
}
