//! Every kernel file compiles for every architecture that it claims, and on Hopper, where the lab measures, it spills no more
//! than its version promises and has the instructions that its version names. Skipped where there is no NVRTC, unless `PLANCHER_REQUIRE_NVRTC=1` (CI sets it,
//! having installed one).

use plancher_cuda::catalogue::{Disassembler, Instructions};
use plancher_cuda::{Architecture, Compiler, Specialization};
use plancher_lab::catalogue::STEPS;
use plancher_lab::{Dtype, LabError, Operation, Target, compile, compile_only};

fn compiler() -> Option<Compiler> {
    match Compiler::find() {
        Ok(compiler) => Some(compiler),
        Err(error) if std::env::var_os("PLANCHER_REQUIRE_NVRTC").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn every_version_compiles_and_keeps_its_promises() {
    let Some(compiler) = compiler() else { return };
    let disassembler = Disassembler::find().ok();
    let hopper = Architecture::of_capability(9, 0);
    let mut problems = Vec::new();
    for architecture in [Architecture::of_capability(8, 0), hopper, Architecture::of_capability(12, 0)] {
        let target = Target::without_device(architecture);
        for step in STEPS {
            let Some(operation) = step.operation else { continue };
            for (version, dtype) in step.versions.iter().flat_map(|it| it.dtypes.iter().map(move |dtype| (it, *dtype)))
            {
                let name = format!("{} for {architecture} in {dtype}", version.file);
                let file = (version.file.trim_end_matches(".cu"), version.source);
                let compiled = match compile(&compiler, file, operation, dtype, &target) {
                    Ok(compiled) => compiled,
                    // It is for another GPU, and says so.
                    Err(LabError::Unsupported(_)) if architecture != hopper => continue,
                    Err(error) => {
                        problems.push(format!("{name}: {error}"));
                        continue;
                    }
                };
                problems.extend(compiled.cubin.warnings.iter().map(|warning| format!("{name}: {warning}")));
                // What is promised is promised where it is measured.
                if architecture != hopper {
                    continue;
                }
                let resources = &compiled.resources;
                if resources.spill_bytes > version.spill_budget {
                    problems.push(format!("{name} spills {} bytes", resources.spill_bytes));
                }
                if resources.blocks_per_multiprocessor == 0 {
                    problems.push(format!("{name} does not fit on a multiprocessor"));
                }
                let Some(disassembler) = &disassembler else { continue };
                let code = disassembler.disassemble(compiled.cubin.code()).expect("it is code");
                let instructions = Instructions::read(&code);
                let missing = version.instructions.iter().filter(|it| instructions.count(operation.kernel(), it) == 0);
                problems.extend(missing.map(|instruction| format!("{name} has no `{instruction}`")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_kernels_of_the_harness_and_of_its_tests_compile() {
    let Some(compiler) = compiler() else { return };
    for architecture in Architecture::ALL {
        for (name, text) in
            [("harness", include_str!("../kernels/harness.cu")), ("cheats", include_str!("kernels/cheats.cu"))]
        {
            let cubin = compiler.compile_text(name, text, &Specialization::new(), architecture).expect("it compiles");
            let spills = cubin.kernels.iter().filter(|kernel| kernel.spill_stores + kernel.spill_loads > 0);
            assert_eq!(spills.count(), 0, "{name} spills for {architecture}");
            assert_eq!(cubin.warnings, Vec::<String>::new(), "{name} for {architecture}");
        }
    }
}

#[test]
fn the_learners_files_of_the_tests_compile() {
    let Some(compiler) = compiler() else { return };
    let target = Target::without_device(Architecture::of_capability(9, 0));
    // What is wrong with the wrong ones shows when they run.
    for (operation, name, text) in [
        (Operation::Saxpy, "wrong_off_by_one", include_str!("kernels/wrong_off_by_one.cu")),
        (Operation::Saxpy, "wrong_no_bounds_check", include_str!("kernels/wrong_no_bounds_check.cu")),
        (Operation::Saxpy, "wrong_deadlock", include_str!("kernels/wrong_deadlock.cu")),
        (Operation::Saxpy, "wrong_nan", include_str!("kernels/wrong_nan.cu")),
        (Operation::Saxpy, "wrong_type", include_str!("kernels/wrong_type.cu")),
        (Operation::Reduction, "wrong_race", include_str!("kernels/wrong_race.cu")),
        (Operation::Transpose, "wrong_stride", include_str!("kernels/wrong_stride.cu")),
        (Operation::Transpose, "wrong_half_the_array", include_str!("kernels/wrong_half_the_array.cu")),
        (Operation::Gemm, "wrong_double_precision", include_str!("kernels/wrong_double_precision.cu")),
        (Operation::Gemm, "wrong_nothing_written", include_str!("kernels/wrong_nothing_written.cu")),
        (Operation::Saxpy, "right_saxpy", include_str!("kernels/right_saxpy.cu")),
        (Operation::Reduction, "right_reduction", include_str!("kernels/right_reduction.cu")),
        (Operation::Gemm, "right_gemm", include_str!("kernels/right_gemm.cu")),
    ] {
        let compiled = compile(&compiler, (name, text), operation, Dtype::F32, &target);
        assert!(compiled.is_ok(), "{name}: {compiled:?}");
    }
}

#[test]
fn a_report_without_a_gpu_tells_what_a_file_needs() {
    let Some(compiler) = compiler() else { return };
    let target = Target::without_device(Architecture::of_capability(9, 0));
    let text = include_str!("kernels/wrong_double_precision.cu");
    let report = compile_only(&compiler, ("mine", text), Operation::Gemm, Dtype::F32, &target).expect("it compiles");
    assert!(report.resources.registers > 0 && report.resources.threads == 256);
    if Disassembler::find().is_ok() {
        assert!(report.hints.iter().any(|hint| hint.contains("double precision")), "{:?}", report.hints);
        assert!(report.instructions.iter().any(|(name, count)| name == "DFMA" && *count > 0));
    }
}

#[test]
fn what_cannot_be_compiled_is_said_in_one_line() {
    let Some(compiler) = compiler() else { return };
    let target = Target::without_device(Architecture::of_capability(9, 0));
    let problem = |operation, text: &str| {
        let error = compile(&compiler, ("mine", text), operation, Dtype::F32, &target).expect_err("it is wrong");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        error.to_string()
    };
    let head = "// lab: threads = 32\n// lab: blocks = 1\n";
    let other = problem(Operation::Saxpy, &format!("{head}extern \"C\" __global__ void axpy(float* y) {{ *y = 1; }}"));
    assert_eq!(other, "`mine.cu` has no kernel `saxpy` (extern \"C\" __global__); it has: axpy");
    let syntax =
        problem(Operation::Saxpy, &format!("{head}extern \"C\" __global__ void saxpy(float* y) {{ *y = z; }}"));
    assert!(syntax.contains("mine.cu(3): error: identifier \"z\" is undefined"), "{syntax}");
    let blackwell = problem(Operation::Saxpy, &format!("{head}// lab: requires = sm_100a\n"));
    assert_eq!(blackwell, "`mine.cu` is for sm_100a, and this is sm_90a");
    assert!(problem(Operation::Saxpy, "// lab: threads = 32").contains("there is no grid"));
}
