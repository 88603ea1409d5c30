//! Every version at small sizes, in allocations of exactly the arrays' sizes, against double precision on the host: without
//! the harness's own kernels and guards. This is what `plancher lab sanitize` has compute-sanitizer watch.

use plancher_cuda::{Compiler, Device};
use plancher_lab::catalogue::STEPS;
use plancher_lab::harness::{KernelCandidate, Limits, Problem, SmallCase, small_cases, try_small};
use plancher_lab::{Dtype, LabError, Operation, Target, compile};

use crate::common::gpu;

fn load(
    device: &Device,
    compiler: &Compiler,
    operation: Operation,
    (file, source): (&str, &str),
    dtype: Dtype,
) -> Option<(KernelCandidate, Limits)> {
    let target = Target::of(device.properties());
    let name = file.trim_end_matches(".cu");
    match compile(compiler, (name, source), operation, dtype, &target) {
        Ok(compiled) => {
            let limits = Limits {
                multiple: compiled.directives.multiple,
                tensor_maps: !compiled.directives.tensor_maps.is_empty(),
                deterministic: false,
                anywhere: false,
            };
            let candidate = KernelCandidate::load(device, &compiled.cubin, &compiled.directives, operation);
            Some((candidate.expect("it loads"), limits))
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
            let Some((mut candidate, limits)) = load(&device, &compiler, operation, file, dtype) else { continue };
            for SmallCase { shapes, shift, .. } in small_cases(operation, limits) {
                for shape in shapes {
                    let problem = Problem { operation, dtype, shape };
                    let wrong = try_small(&device, &mut candidate, &problem, shift, true).expect("it runs");
                    problems.extend(wrong.map(|text| format!("{} {dtype}, {shift} off, {text}", version.file)));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
