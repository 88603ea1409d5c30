//! Reading a recorded run: what can be computed again is computed again, and a file whose fields contradict each other, or
//! have numbers beyond sense, is refused. Verdicts go by what is read here.

use crate::catalogue;
use crate::harness::{Problem, label};
use crate::record::{CaseRun, LabRun, Machine, PointRun, ProfileRun, SCHEMA, SanitizerRun, StepRun, VersionRun};
use crate::step::Ceiling;
use crate::verdict::median;
use crate::{LabError, Operation, Result, Shape, Step};

/// How far the ceiling beside a kernel may be from the one that the step measured by itself, as a part of it.
const CEILINGS_AGREE: f64 = 0.15;
/// No sample, rate or percentage is as large as this.
const BEYOND_SENSE: f64 = 1e12;
/// More samples than anybody takes.
const MOST_SAMPLES: usize = 100_000;

/// Reads a run from the text of a file called `name`.
///
/// # Errors
/// If it is no run of this version's layout, or says what cannot be: in one line that names step, version and field.
pub fn read_run(name: &str, text: &str) -> Result<LabRun> {
    let wrong = |problem: String| LabError::Evidence { file: name.to_owned(), problem };
    let run: LabRun = serde_json::from_str(text).map_err(|error| wrong(format!("it is no run of the lab: {error}")))?;
    audit(&run).map_err(wrong)?;
    Ok(run)
}

/// What is wrong, if anything is.
type Audit = std::result::Result<(), String>;

fn require(holds: bool, problem: impl FnOnce() -> String) -> Audit {
    if holds { Ok(()) } else { Err(problem()) }
}

/// A number that can be: finite, neither negative nor beyond sense.
fn sensible(value: f64) -> bool {
    (0.0..BEYOND_SENSE).contains(&value)
}

fn audit(run: &LabRun) -> Audit {
    require(run.schema == SCHEMA, || format!("`schema` is {}, not {SCHEMA}", run.schema))?;
    require(sensible(run.seconds), || format!("`seconds` is {}", run.seconds))?;
    of_machine(&run.machine)?;
    for (index, of) in run.steps.iter().enumerate() {
        let step = catalogue::step(&of.step).map_err(|error| error.to_string())?;
        let known = run.steps[..index].iter().all(|other| other.step != of.step);
        require(known && step.id == of.step, || format!("step `{}` is there twice, or not by its id", of.step))?;
        of_step(step, of, &run.machine).map_err(|problem| format!("`{}`: {problem}", of.step))?;
    }
    Ok(())
}

fn of_machine(machine: &Machine) -> Audit {
    let multiprocessors = machine.multiprocessors;
    require((1..=4096).contains(&multiprocessors), || format!("`machine.multiprocessors` is {multiprocessors}"))?;
    for (field, bytes) in [("l2_bytes", machine.l2_bytes), ("memory_bytes", machine.memory_bytes)] {
        require((1..=1 << 44).contains(&bytes), || format!("`machine.{field}` is {bytes}"))?;
    }
    let peaks = machine.datasheet_tflops;
    let rates = [machine.datasheet_bandwidth_gb_per_s, peaks.fp32, peaks.bf16];
    let fine = rates.into_iter().flatten().all(|rate| rate > 0.0 && sensible(rate));
    require(fine, || "`machine`: a figure of the data sheet is not a positive number".to_owned())
}

fn of_step(step: &Step, of: &StepRun, machine: &Machine) -> Audit {
    let operation = step.operation.ok_or("this step has no kernels to be measured")?;
    for ceiling in &of.ceilings {
        samples(&format!("the {} ceiling", ceiling.name), &ceiling.samples)?;
    }
    for (index, version) in of.versions.iter().enumerate() {
        let named = |problem: String| format!("`{}` {}: {problem}", version.version, version.dtype);
        let same = |other: &VersionRun| (&other.version, other.dtype) == (&version.version, version.dtype);
        require(!of.versions[..index].iter().any(same), || named("it is there twice".to_owned()))?;
        of_version(operation, version).map_err(named)?;
        for (index, point) in version.points.iter().enumerate() {
            let at = |problem: String| named(format!("at {}: {problem}", point.shape));
            let same = |other: &PointRun| (other.shape, other.sweep) == (point.shape, point.sweep);
            require(!version.points[..index].iter().any(same), || at("it is there twice".to_owned()))?;
            let problem = Problem { operation, dtype: version.dtype, shape: point.shape };
            of_point(step, &problem, point, machine).and_then(|()| beside(of, point)).map_err(at)?;
        }
    }
    of.profile.iter().try_for_each(of_profile)?;
    for (index, run) in of.sanitizer.iter().enumerate() {
        let named = |problem: String| format!("`{}` {}, {}: {problem}", run.version, run.dtype, run.tool);
        let same =
            |other: &SanitizerRun| (&other.version, other.dtype, other.tool) == (&run.version, run.dtype, run.tool);
        require(!of.sanitizer[..index].iter().any(same), || named("it is there twice".to_owned()))?;
        of_sanitizer(of, run).map_err(named)?;
    }
    Ok(())
}

/// What a tool found it found in a version that was measured, and what it did not get to say is not nothing.
fn of_sanitizer(of: &StepRun, run: &SanitizerRun) -> Audit {
    let measured = of.versions.iter().find(|it| (&it.version, it.dtype) == (&run.version, run.dtype));
    let measured = measured.ok_or("no such version was measured")?;
    require(measured.source_sha256 == run.source_sha256, || {
        "`source_sha256` is not that of the version that was measured".to_owned()
    })?;
    let (ran, reason) = (run.errors.is_some(), run.not_run.is_some());
    require(ran != reason, || "exactly one of `errors` and `not_run` must be there".to_owned())?;
    let reported = run.first.is_some();
    require(!reported || run.errors.is_some_and(|errors| errors > 0), || {
        "`first` reports an error, and `errors` counts none".to_owned()
    })?;
    require(!ran || !run.program.is_empty(), || "`program` does not say what ran".to_owned())?;
    // Of what never came back, nobody knows the size.
    let launched = run.errors != Some(0) || !run.shapes.is_empty();
    require(launched, || "`errors` is 0, and no size was launched".to_owned())
}

fn of_version(operation: Operation, version: &VersionRun) -> Audit {
    if let Some(resources) = &version.resources {
        let fine = (1..=1024).contains(&resources.threads)
            && resources.registers <= 1024
            && resources.shared_bytes <= 1 << 24
            && resources.blocks_per_multiprocessor <= 1024;
        require(fine, || "`resources` are those of no GPU".to_owned())?;
    }
    let limit = Problem { operation, dtype: version.dtype, shape: Shape::Vector(0) }.limit();
    for (index, case) in version.cases.iter().enumerate() {
        let known = version.cases[..index].iter().all(|other| other.case != case.case);
        require(known, || format!("case `{}` is there twice", case.case))?;
        of_case(case, limit).map_err(|problem| format!("case `{}`: {problem}", case.case))?;
    }
    Ok(())
}

fn of_case(case: &CaseRun, limit: f64) -> Audit {
    require(!case.error.is_sign_negative(), || format!("`error` is {}", case.error))?;
    // What hung or crashed, and what was not taken, has neither sizes nor a limit of its own.
    if case.failure.is_some() {
        return Ok(());
    }
    // A run from when less was allowed is as good.
    let strict = (0.0..=limit).contains(&case.limit);
    require(strict, || format!("`limit` is {}, and at most {limit} passes", case.limit))?;
    require(!case.shapes.is_empty() || case.not_taken.is_some(), || "no size was tried".to_owned())
}

fn of_point(step: &Step, problem: &Problem, point: &PointRun, machine: &Machine) -> Audit {
    let (operation, dtype, shape) = (problem.operation, problem.dtype, problem.shape);
    let fits = match operation {
        Operation::Saxpy | Operation::Reduction => matches!(shape, Shape::Vector(_)),
        Operation::Transpose => matches!(shape, Shape::Matrix { .. }),
        Operation::Gemm => matches!(shape, Shape::Product { .. }),
    };
    require(fits, || format!("this is no shape of a {}", operation.kernel()))?;
    for (field, said, is) in [
        ("elements", point.elements, shape.elements()),
        ("bytes", point.bytes, operation.bytes(dtype, shape)),
        ("flops", point.flops, operation.flops(shape)),
    ] {
        require(said == is, || format!("`{field}` is {said}, and the shape has {is}"))?;
    }
    let is = label(problem, machine.l2_bytes);
    require(point.label == is, || {
        format!("`label` is {:?}, and beside {} bytes of cache it is {is:?}", point.label, machine.l2_bytes)
    })?;
    let planned = step.points_of(dtype).find(|planned| (planned.shape, planned.sweep) == (shape, point.sweep));
    let ceiling = planned.map_or(point.ceiling, |planned| planned.ceiling);
    require(point.ceiling == ceiling, || format!("`ceiling` is {}, and the step's is {ceiling}", point.ceiling))?;
    require((point.ceiling == Ceiling::Cublas) == (operation == Operation::Gemm), || {
        format!("`ceiling` is {}, which says nothing of a {}", point.ceiling, operation.kernel())
    })?;
    samples("`milliseconds`", &point.milliseconds)?;
    samples("`host_milliseconds`", &point.host_milliseconds)?;
    samples("`ceiling_samples`", &point.ceiling_samples)?;
    if point.failure.is_none() {
        let (launches, hosts, ceilings) =
            (point.milliseconds.len(), point.host_milliseconds.len(), point.ceiling_samples.len());
        require(hosts == launches, || format!("{launches} `milliseconds` and {hosts} `host_milliseconds`"))?;
        let paired = ceilings == launches || ceilings == 0;
        require(paired, || format!("{launches} `milliseconds` and {ceilings} `ceiling_samples`"))?;
    }
    let launches = point.milliseconds.len();
    require(point.verified as usize <= launches, || format!("`verified` is {} of {launches}", point.verified))?;
    let in_flight = point.in_flight_bytes.unwrap_or(0);
    require(in_flight <= 1 << 40, || format!("`in_flight_bytes` is {in_flight}"))
}

fn samples(name: &str, samples: &[f64]) -> Audit {
    require(samples.len() <= MOST_SAMPLES, || format!("{name}: {} samples are too many", samples.len()))?;
    let wrong = samples.iter().find(|&&sample| sample <= 0.0 || !sensible(sample));
    wrong.map_or(Ok(()), |sample| Err(format!("{name}: {sample} is not a positive number that can be")))
}

/// A main size's ceiling against the one that the step measured by itself: nobody may be compared with a slower one.
fn beside(of: &StepRun, point: &PointRun) -> Audit {
    if point.sweep || point.ceiling == Ceiling::Cublas || point.ceiling_samples.is_empty() {
        return Ok(());
    }
    let own = of.ceilings.iter().find(|ceiling| ceiling.name == point.ceiling);
    let own = own.ok_or_else(|| format!("the step has no {} ceiling beside its samples", point.ceiling))?;
    let (own, here) = (median(&own.samples), median(&point.ceiling_samples));
    require((here - own).abs() <= CEILINGS_AGREE * own, || {
        format!("`ceiling_samples` are {here:.0} GB/s, and the step's own {} ceiling is {own:.0} GB/s", point.ceiling)
    })
}

fn of_profile(profile: &ProfileRun) -> Audit {
    let optional = [
        profile.dram_bytes_read,
        profile.dram_bytes_written,
        profile.bank_conflicts,
        profile.shared_passes,
        profile.sectors_per_request,
        profile.occupancy_percent,
    ];
    let tables = profile.sol.values().chain(profile.stalls.values()).copied();
    // Bytes may be more than a million millions.
    let fine = optional.into_iter().flatten().chain(tables).chain([profile.duration_us]);
    let fine = fine.into_iter().all(|value| (0.0..1e18).contains(&value));
    require(fine, || format!("the profile of `{}` has a number that cannot be", profile.version))
}

#[cfg(test)]
mod tests;
