//! Compiling without a GPU: what comes out, what an error says, and what the cache does. Skipped where there is no
//! NVRTC, unless `PLANCHER_REQUIRE_NVRTC=1` (CI sets it, having installed one).

use plancher_cuda::catalogue::{CATALOGUE, check};
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
fn every_kernel_of_the_catalogue_compiles_for_hopper_in_one_of_its_shapes() {
    let Some(compiler) = compiler() else { return };
    // Every architecture is the business of `plancher kernels compile`, which takes longer and which CI runs.
    let report = check(&compiler, None, CATALOGUE, &[Architecture::of_capability(9, 0)], 4).expect("it runs");
    assert_eq!(report.findings, []);
    for family in CATALOGUE {
        for kernel in family.source.kernels() {
            let mut rows = report.rows.iter().filter(|row| row.family == family.source.name);
            assert!(
                rows.any(|row| row.kernels.iter().any(|found| found.name == kernel)),
                "`{kernel}` is never compiled"
            );
        }
    }
}
