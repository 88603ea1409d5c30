//! Compiling without a GPU: what comes out, what an error says, and what the cache does. Skipped where there is no
//! NVRTC, unless `PLANCHER_REQUIRE_NVRTC=1` (CI sets it, having installed one).

use plancher_cuda::catalogue::{Disassembler, Expectation, Family, check, family};
use plancher_cuda::{Architecture, Compiler, CudaError, Source, Specialization};

const DOUBLE: Source =
    Source { name: "double", text: "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= FACTOR; }\n" };

fn compiler() -> Option<Compiler> {
    match Compiler::find() {
        Ok(compiler) => Some(compiler.with_cache(None)),
        Err(error) if std::env::var_os("PLANCHER_REQUIRE_NVRTC").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn a_kernel_becomes_machine_code_with_its_constants() {
    let Some(compiler) = compiler() else { return };
    let architecture = Architecture::of_capability(9, 0);
    let two = compiler.compile(DOUBLE, &Specialization::new().define("FACTOR", 2), architecture).expect("compiles");
    assert!(two.code().starts_with(b"\x7fELF") && !two.cached);
    let kernel = two.kernel("twice").expect("it is reported");
    assert!(kernel.registers > 0 && kernel.spill_stores == 0);
    let three = compiler.compile(DOUBLE, &Specialization::new().define("FACTOR", 3), architecture).expect("compiles");
    assert_ne!(two.code(), three.code());
}

#[test]
fn an_error_is_one_line_that_names_file_and_line() {
    let Some(compiler) = compiler() else { return };
    let error =
        compiler.compile(DOUBLE, &Specialization::new(), Architecture::of_capability(8, 0)).expect_err("no FACTOR");
    let text = error.to_string();
    assert_eq!(
        text,
        "kernel `double` does not compile for sm_80: double.cu(1): error: identifier \"FACTOR\" is undefined"
    );
    let unknown = "sm_77".parse().expect("an architecture");
    let error = compiler.compile(DOUBLE, &Specialization::new(), unknown).expect_err("no such chip");
    assert!(error.to_string().contains("invalid value for --gpu-architecture"), "{error}");
    let zero = compiler.compile(DOUBLE, &Specialization::new().define("FACTOR", "\0"), unknown).expect_err("a zero");
    assert!(matches!(zero, CudaError::Compile { .. }));
}

#[test]
fn the_second_compilation_comes_from_the_cache_and_a_damaged_entry_is_compiled_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(compiler) = compiler().map(|compiler| compiler.with_cache(Some(directory.path().to_owned()))) else {
        return;
    };
    let compile = |factor: u32| {
        let constants = Specialization::new().define("FACTOR", factor);
        compiler.compile(DOUBLE, &constants, Architecture::of_capability(8, 0)).expect("compiles")
    };
    let first = compile(2);
    let second = compile(2);
    assert!(!first.cached && second.cached && !compile(3).cached);
    assert_eq!((first.code(), &first.kernels), (second.code(), &second.kernels));
    for entry in std::fs::read_dir(directory.path()).expect("there") {
        let path = entry.expect("there").path();
        let mut bytes = std::fs::read(&path).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("writable");
    }
    let third = compile(2);
    assert!(!third.cached);
    assert_eq!(first.code(), third.code());
    assert!(compile(2).cached);
}

#[test]
fn the_check_finds_broken_promises_and_nothing_else() {
    static BROKEN: Family = Family {
        source: Source {
            name: "broken",
            text: "#if SIZE > 100
extern \"C\" __global__ void spills(float* x, int n) { float v[SIZE]; for (int i = 0; i < SIZE; ++i) v[i] = x[i * n]; __syncthreads();
    for (int i = 0; i < SIZE; ++i) x[i + n] = v[i] * v[SIZE - 1 - i]; }
#endif
#if SIZE < 0
extern \"C\" __global__ void never(float* x) { *x = 0; }
#endif
#if SIZE == 7
#error seven
#endif",
        },
        purpose: "breaking promises",
        architectures: &[Architecture::of_capability(8, 0)],
        spill_budget: 0,
        expected: &[Expectation::new("spills", 80, "HMMA")],
        specializations: || {
            vec![
                ("large", Specialization::new().define("SIZE", 200).option("--maxrregcount=32")),
                ("seven", Specialization::new().define("SIZE", 7)),
            ]
        },
    };
    let Some(compiler) = compiler() else { return };
    let problems = |families: &[&'static Family], architectures: &[Architecture]| {
        let report = check(&compiler, Disassembler::find().ok().as_ref(), families, architectures, 2).expect("it runs");
        report.findings.into_iter().map(|finding| finding.problem).collect::<Vec<_>>()
    };
    let found = problems(&[&BROKEN], &Architecture::ALL);
    let has = |part: &str| found.iter().any(|problem| problem.contains(part));
    assert!(has("`spills` spills ") && has("`never` is never compiled") && has("seven"), "{found:?}");
    assert_eq!(Disassembler::find().is_ok(), has("`spills` has no `HMMA`"), "{found:?}");
    assert_eq!(found.len(), 3 + usize::from(Disassembler::find().is_ok()), "{found:?}");
    let all = [family("bandwidth"), family("latency")];
    let all: Vec<&Family> = all.into_iter().flatten().collect();
    assert_eq!((all.len(), problems(&all, &[Architecture::of_capability(9, 0)])), (2, Vec::new()));
}
