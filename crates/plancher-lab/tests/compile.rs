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
    let no_grid = problem(Operation::Saxpy, "// lab: threads = 32");
    assert_eq!(no_grid, "`mine.cu`: there is no grid: write one of per_block, blocks_per_sm, tile, blocks");
}

/// What is said of a kernel for Hopper, or nothing where it compiles.
fn refusal(compiler: &Compiler, operation: Operation, dtype: Dtype, text: &str) -> Option<String> {
    let target = Target::without_device(Architecture::of_capability(9, 0));
    let error = compile(compiler, ("mine", text), operation, dtype, &target).err()?.to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    Some(error)
}

#[test]
fn parameters_that_are_not_those_of_the_step_are_named() {
    let Some(compiler) = compiler() else { return };
    let head = "// lab: threads = 32\n// lab: blocks = 1\n";
    let takes = |operation, dtype, parameters: &str| {
        let text = format!("{head}struct own {{ unsigned short bits; }};\nextern \"C\" __global__ void ");
        refusal(&compiler, operation, dtype, &format!("{text}{}({parameters}) {{ }}", operation.kernel()))
    };
    let saxpy = |parameters: &str| takes(Operation::Saxpy, Dtype::F32, parameters);
    for right in [
        "float a, const float* x, float* y, unsigned long long n",
        "const float a, const float* __restrict__ x, float* __restrict__ y, size_t n",
        "float a, volatile float* x, float* y, long long n",
    ] {
        assert_eq!(saxpy(right), None, "{right}");
    }
    let step = "and the kernel of the step takes (float a, const float* x, float* y, unsigned long long n)";
    for (wrong, takes) in [
        (
            "float a, const double* x, float* y, unsigned long long n",
            "(float, const double *, float *, unsigned long long)",
        ),
        ("int a, const float* x, float* y, unsigned long long n", "(int, const float *, float *, unsigned long long)"),
        ("float a, const int* x, float* y, unsigned long long n", "(float, const int *, float *, unsigned long long)"),
        ("float a, const float* x, float* y, int n", "(float, const float *, float *, int)"),
        ("float a, const float* x, float* y", "(float, const float *, float *)"),
        ("", "()"),
    ] {
        assert_eq!(saxpy(wrong), Some(format!("`mine.cu`: `saxpy` takes {takes}, {step}")));
    }
    let bf16 = |element: &str| {
        let operands = format!("const {element}* a, const {element}* b, {element}* c, int m, unsigned n, int k");
        takes(Operation::Gemm, Dtype::Bf16, &operands)
    };
    assert_eq!([bf16("unsigned short"), bf16("own")], [None, None]);
    assert!(
        bf16("float")
            .is_some_and(|text| text.contains("takes (const float *, const float *, float *, int, unsigned int, int)"))
    );
    let moved = "const unsigned* in, unsigned* out, int rows, int columns";
    assert_eq!(takes(Operation::Transpose, Dtype::F32, moved), None);
    assert!(takes(Operation::Transpose, Dtype::Bf16, moved).is_some());
    let text = include_str!("kernels/wrong_type.cu");
    let error = refusal(&compiler, Operation::Saxpy, Dtype::F32, text).expect("it is in double");
    assert!(
        error.starts_with("`mine.cu`: `saxpy` takes (double, const double *, double *, unsigned long long), and"),
        "{error}"
    );
}

#[test]
fn what_no_block_can_be_launched_with_is_named() {
    let Some(compiler) = compiler() else { return };
    let saxpy = |directives: &str, bounds: &str, body: &str| {
        let kernel = "saxpy(float a, const float* x, float* y, unsigned long long n)";
        let text =
            format!("// lab: blocks = 1\n{directives}\nextern \"C\" __global__ void {bounds} {kernel} {{ {body} }}");
        refusal(&compiler, Operation::Saxpy, Dtype::F32, &text)
    };
    let bounds = saxpy("// lab: threads = 16x16", "__launch_bounds__(128)", "");
    assert_eq!(bounds.as_deref(), Some("`mine.cu`: `threads` is 256, and the kernel's `__launch_bounds__` allow 128"));
    assert_eq!(saxpy("// lab: threads = 16x8", "__launch_bounds__(128)", ""), None);
    let body = "__shared__ float part[1024]; part[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[0] = part[n];";
    let shared = saxpy("// lab: threads = 32\n// lab: shared = 230000", "", body);
    let problem =
        "`shared` is 230000 and the kernel declares 4096 bytes of shared memory, and a block has at most 232448";
    assert_eq!(shared, Some(format!("`mine.cu`: {problem}")));
    assert_eq!(saxpy("// lab: threads = 32\n// lab: shared = 228352", "", body), None);
    let body = "float v[200]; \n#pragma unroll\nfor (int i = 0; i < 200; ++i) v[i] = x[i * n];\n__syncthreads();\n#pragma unroll\n\
        for (int i = 0; i < 200; ++i) y[i * n] = v[i] * v[199 - i];";
    let registers = saxpy("// lab: threads = 1024", "", body).expect("too many registers");
    assert!(registers.starts_with("`mine.cu`: `threads` is 1024, each with "), "{registers}");
    assert!(
        registers.ends_with("a multiprocessor has 65536: fewer threads, or `__launch_bounds__(1024)`"),
        "{registers}"
    );
    assert_eq!(saxpy("// lab: threads = 1024", "__launch_bounds__(1024)", body), None);
    let older = Target::without_device(Architecture::of_capability(8, 0));
    let text = "// lab: threads = 32\n// lab: blocks = 2\n// lab: cluster = 2\n";
    let error = compile(&compiler, ("mine", text), Operation::Saxpy, Dtype::F32, &older).expect_err("it has none");
    assert_eq!(error.to_string(), "`mine.cu`: `cluster` needs sm_90 or newer, and this is sm_80");
}
