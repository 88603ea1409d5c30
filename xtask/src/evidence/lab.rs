//! Figures of the lab: a run's file (`NAME-lab.json`, as `plancher lab run --out` writes it) holds the raw samples of every
//! version; the ones that README shows become records like all others, and are held to the same rules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use plancher_lab::record::{LabRun, PointRun, StepRun, VersionRun};
use plancher_lab::step::{Ceiling, Test};
use plancher_lab::verdict::{
    Rightness, Sanitized, Status, best, counts, criterion, explanations, of_explanations, point, rates, rightness,
    sanitized, unit,
};
use plancher_lab::{Dtype, Shape, Step, catalogue, read_run};

use super::record::{Bar, Check, Kernel, Record};

/// How the files' names end.
const ENDING: &str = "-lab.json";

/// A figure that is wanted of a run.
struct Wanted {
    /// Behind `MACHINE/lab/`.
    name: &'static str,
    title: &'static str,
    step: &'static str,
    /// A version, else the best one.
    version: Option<&'static str>,
    dtype: Dtype,
    shape: Shape,
    /// Its samples are compared with this.
    ceiling: Ceiling,
}

const SIDE: Shape = Shape::square(16_384);
const ODD: Shape = Shape::Matrix { rows: 8191, columns: 8193 };

const WANTED: &[Wanted] = &[
    Wanted {
        name: "saxpy/fraction_of_triad",
        title: "SAXPY of 2^28 numbers: bytes a second over the triad ceiling",
        step: "saxpy",
        version: None,
        dtype: Dtype::F32,
        shape: Shape::Vector(1 << 28),
        ceiling: Ceiling::Triad,
    },
    Wanted {
        name: "transpose/fp32_fraction_of_copy",
        title: "Transpose, 16384 x 16384, f32: bytes a second over the copy ceiling",
        step: "transpose",
        version: None,
        dtype: Dtype::F32,
        shape: SIDE,
        ceiling: Ceiling::Copy,
    },
    Wanted {
        name: "transpose/bf16_fraction_of_copy",
        title: "Transpose, 16384 x 16384, bf16: bytes a second over the copy ceiling",
        step: "transpose",
        version: None,
        dtype: Dtype::Bf16,
        shape: SIDE,
        ceiling: Ceiling::Copy,
    },
    Wanted {
        name: "transpose/fp32_odd_fraction_of_copy",
        title: "Transpose, 8191 x 8193, f32: bytes a second over the copy ceiling",
        step: "transpose",
        version: None,
        dtype: Dtype::F32,
        shape: ODD,
        ceiling: Ceiling::Copy,
    },
    Wanted {
        name: "transpose/bf16_odd_fraction_of_copy",
        title: "Transpose, 8191 x 8193, bf16: bytes a second over the copy ceiling",
        step: "transpose",
        version: None,
        dtype: Dtype::Bf16,
        shape: ODD,
        ceiling: Ceiling::Copy,
    },
    Wanted {
        name: "reduction/fraction_of_read",
        title: "Sum of 2^30 numbers: bytes a second over the read ceiling",
        step: "reduction",
        version: None,
        dtype: Dtype::F32,
        shape: Shape::Vector(1 << 30),
        ceiling: Ceiling::Read,
    },
    Wanted {
        name: "reduction/deterministic_fraction_of_read",
        title: "Sum of 2^30 numbers, the same bits on every card: bytes a second over the read ceiling",
        step: "reduction",
        version: Some("deterministic"),
        dtype: Dtype::F32,
        shape: Shape::Vector(1 << 30),
        ceiling: Ceiling::Read,
    },
    Wanted {
        name: "gemm/tiled_of_cublas",
        title: "Product from a tile in shared memory, 4096^3, f32: FLOP/s over cuBLAS's",
        step: "gemm",
        version: None,
        dtype: Dtype::F32,
        shape: Shape::cube(4096),
        ceiling: Ceiling::Cublas,
    },
    Wanted {
        name: "gemm/fp32_4096_of_cublas",
        title: "Product, 4096^3, f32: FLOP/s over cuBLAS's",
        step: "gemm_fast",
        version: None,
        dtype: Dtype::F32,
        shape: Shape::cube(4096),
        ceiling: Ceiling::Cublas,
    },
    Wanted {
        name: "gemm/fp32_8192_of_cublas",
        title: "Product, 8192^3, f32: FLOP/s over cuBLAS's",
        step: "gemm_fast",
        version: None,
        dtype: Dtype::F32,
        shape: Shape::cube(8192),
        ceiling: Ceiling::Cublas,
    },
    Wanted {
        name: "gemm/bf16_8192_of_cublas",
        title: "Product, 8192^3, bf16: FLOP/s over cuBLAS's",
        step: "gemm_fast",
        version: None,
        dtype: Dtype::Bf16,
        shape: Shape::cube(8192),
        ceiling: Ceiling::Cublas,
    },
];

/// Whether a file is a run of the lab.
pub(super) fn is_run(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ENDING))
}

/// A run and the machine that its figures are named after.
pub(super) struct Run {
    machine: String,
    run: LabRun,
}

impl Run {
    /// Reads one.
    pub(super) fn read(path: &PathBuf) -> Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(path)?;
        let run = read_run(&path.display().to_string(), &text)?;
        Ok(Self { machine: name.trim_end_matches(ENDING).to_owned(), run })
    }

    /// Its figures as records: each with its name, and what keeps it from being one. A step that was not run has none.
    pub(super) fn records(&self) -> Vec<(String, Result<Record>)> {
        let of = |wanted: &Wanted| {
            let step = self.run.steps.iter().find(|step| step.step == wanted.step)?;
            let name = format!("{}/lab/{}", self.machine, wanted.name);
            let record = self.record(&name, wanted, step);
            Some((name, record))
        };
        WANTED.iter().filter_map(of).chain(self.sanitizer()).collect()
    }

    /// Errors that compute-sanitizer counted, version by version, where it was asked at all.
    fn sanitizer(&self) -> Option<(String, Result<Record>)> {
        self.run.steps.iter().any(|of| !of.sanitizer.is_empty()).then(|| {
            let name = format!("{}/lab/sanitizer/errors", self.machine);
            let record = self.sanitizer_record(&name);
            (name, record)
        })
    }

    fn sanitizer_record(&self, name: &str) -> Result<Record> {
        let (mut samples, mut kernels) = (Vec::new(), Vec::new());
        for of in &self.run.steps {
            let step = catalogue::step(&of.step)?;
            for version in &of.versions {
                let errors = match sanitized(of, &version.version, version.dtype) {
                    Sanitized::Clean => 0,
                    Sanitized::Errors(run) => run.errors.unwrap_or(u64::MAX),
                    found => anyhow::bail!("`{}` {} {}: {found}", of.step, version.version, version.dtype),
                };
                samples.push(errors as f64);
                let file = step.version(&version.version)?.file;
                let source = format!("crates/plancher-lab/kernels/{file}");
                kernels.push(Kernel { source, source_sha256: version.source_sha256.clone() });
            }
        }
        Ok(Record {
            // What was found is the figure; that the tools ran to their ends, on all of it, was seen to above.
            check: Some(Check {
                against: "the summaries of memcheck, initcheck, synccheck and racecheck, each to its end".to_owned(),
                error: 0.0,
                tolerance: 0.0,
            }),
            samples,
            kernels: Some(kernels),
            bar: Some(Bar::AtMost(0.0)),
            ..self.common(
                name,
                "errors",
                "The lab's versions under compute-sanitizer at small sizes: memcheck, initcheck, synccheck, racecheck (shared \
                 memory only)",
            )?
        })
    }

    /// What every record of the run has, without samples.
    fn common(&self, name: &str, unit: &str, title: &str) -> Result<Record> {
        Ok(Record {
            schema: 1,
            name: name.to_owned(),
            unit: unit.to_owned(),
            title: title.to_owned(),
            argv: serde_json::json!(self.run.argv),
            commit: self.run.commit.clone(),
            date: self.run.date.clone(),
            machine: serde_json::to_value(&self.run.machine)?,
            ceilings: std::collections::BTreeMap::new(),
            samples: Vec::new(),
            sample_unit: None,
            deduction: None,
            baseline: None,
            baseline_samples: None,
            bytes: None,
            flops: None,
            check: None,
            code: None,
            kernels: None,
            bar: None,
        })
    }

    fn record(&self, name: &str, wanted: &Wanted, of: &StepRun) -> Result<Record> {
        let step = catalogue::step(wanted.step)?;
        let (version, timed) = self.chosen(wanted, of)?;
        ensure!(timed.ceiling == wanted.ceiling, "its samples are beside {}, not {}", timed.ceiling, wanted.ceiling);
        let Rightness::Right { error, .. } = rightness(version) else {
            anyhow::bail!("`{}` is not right", version.version)
        };
        let file = step.version(&version.version)?.file;
        Ok(Record {
            samples: rates(timed),
            sample_unit: Some(unit(timed).to_owned()),
            baseline: Some(wanted.ceiling.to_string()),
            baseline_samples: Some(timed.ceiling_samples.clone()),
            check: Some(Check {
                against: "float64 on the device in five cases, as a part of the error allowed".to_owned(),
                error,
                tolerance: 1.0,
            }),
            kernels: Some(vec![Kernel {
                source: format!("crates/plancher-lab/kernels/{file}"),
                source_sha256: version.source_sha256.clone(),
            }]),
            bar: bar(step, wanted).map(|test| Bar::AtLeast(test.at_least)),
            ..self.common(name, "x", &format!("{} (`{}`)", wanted.title, version.version))?
        })
    }

    /// The version that a figure is about, with its times.
    fn chosen<'a>(&self, wanted: &Wanted, of: &'a StepRun) -> Result<(&'a VersionRun, &'a PointRun)> {
        let machine = &self.run.machine;
        let Some(id) = wanted.version else {
            return best(of, machine, wanted.dtype, wanted.shape).with_context(|| {
                format!(
                    "no version of `{}` is right and validly timed in {} at {}",
                    of.step, wanted.dtype, wanted.shape
                )
            });
        };
        let version = of
            .versions
            .iter()
            .find(|version| version.version == id && version.dtype == wanted.dtype)
            .with_context(|| format!("`{id}` was not run"))?;
        let timed =
            point(version, wanted.shape).with_context(|| format!("`{id}` was not timed at {}", wanted.shape))?;
        counts(machine, wanted.dtype, timed).map_err(|reason| anyhow::anyhow!("`{id}`: {reason}"))?;
        Ok((version, timed))
    }

    /// A line a step: what came of the plan's criterion and of our bar; and how long all of them took.
    pub(super) fn verdicts(&self) -> Vec<String> {
        let has = |step: &&Step| self.run.steps.iter().any(|of| of.step == step.id);
        let is_whole = catalogue::STEPS.iter().filter(|step| step.operation.is_some()).all(has);
        let seconds = is_whole.then(|| format!("{}/lab/run_all_seconds {:.1} s", self.machine, self.run.seconds));
        let line = |step: &str, plan: Status, bar: Status| {
            format!("{}/lab/{step} plan {}, bar {}", self.machine, word(plan), word(bar))
        };
        let of = |run: &StepRun| {
            let step = catalogue::step(&run.step).ok()?;
            let status = |of| criterion(of, Some(run), &self.run.machine).status;
            Some(line(&run.step, status(&step.plan), status(&step.bar)))
        };
        let explained = explanations(&self.run);
        let (plan, bar) = of_explanations(&explained);
        let told: Vec<_> = explained.iter().filter(|one| one.explanation.is_told()).collect();
        let hold = told.iter().filter(|one| one.explanation.holds()).count();
        let corrected = told.iter().filter(|one| one.explanation.is_corrected()).count();
        let profiling = format!(
            "{}: {hold} of {} explanations hold, {corrected} of them corrected since they were predicted",
            line("profiling", plan, bar),
            told.len()
        );
        self.run.steps.iter().filter_map(of).chain([profiling]).chain(seconds).collect()
    }
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Passed => "passed",
        Status::Missed => "missed",
        Status::NotMeasured => "not measured",
        Status::NotCompared => "not compared",
    }
}

/// The comparison of our bar that a figure is about.
fn bar(step: &Step, wanted: &Wanted) -> Option<&'static Test> {
    let same = |test: &&Test| {
        (test.version, test.dtype, test.shape, test.ceiling)
            == (wanted.version, wanted.dtype, wanted.shape, wanted.ceiling)
    };
    step.bar.tests.iter().find(same)
}

#[cfg(test)]
mod tests {
    use plancher_lab::record::{Case, CaseRun, Label, Machine, Peaks, SCHEMA, SanitizerRun};
    use plancher_lab::sanitizer::Tool;

    use super::super::figure::Figure;
    use super::*;

    /// SAXPY by one version at so large a part of the triad ceiling.
    fn saxpy(id: &str, fraction: f64) -> VersionRun {
        let version = catalogue::step("saxpy").and_then(|step| step.version(id)).expect("there");
        let case = |case| CaseRun { case, shapes: Vec::new(), error: 0.5, limit: 1.0, failure: None, not_taken: None };
        let bytes: u32 = 3 << 30;
        let milliseconds = 1e3 * f64::from(bytes) / (4.0e12 * fraction);
        VersionRun {
            version: id.to_owned(),
            dtype: Dtype::F32,
            source_sha256: version.sha256(),
            options: Vec::new(),
            resources: None,
            not_run: None,
            cases: Case::ALL.map(case).into(),
            points: vec![PointRun {
                shape: Shape::Vector(1 << 28),
                elements: 1 << 28,
                bytes: bytes.into(),
                flops: 1 << 29,
                milliseconds: vec![milliseconds; 7],
                host_milliseconds: vec![milliseconds; 7],
                ceiling: Ceiling::Triad,
                ceiling_samples: vec![4000.0; 7],
                label: Label::Memory,
                verified: 2,
                in_flight_bytes: None,
                sweep: false,
                failure: None,
            }],
        }
    }

    fn run(versions: Vec<VersionRun>) -> Run {
        let machine = Machine {
            datasheet_bandwidth_gb_per_s: Some(4800.0),
            datasheet_tflops: Peaks { fp32: Some(67.0), bf16: Some(989.0) },
            ..Machine::default()
        };
        let step = StepRun::measured("saxpy", versions, Vec::new());
        let run = LabRun {
            schema: SCHEMA,
            argv: vec!["lab".to_owned()],
            commit: "abc".to_owned(),
            dirty: false,
            date: "2026-11-30T02:00:00Z".to_owned(),
            machine,
            steps: vec![step],
            seconds: 1.0,
        };
        Run { machine: "h200".to_owned(), run }
    }

    fn figure(run: &Run) -> Result<Figure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut records = run.records();
        assert_eq!(records.len(), 1, "only what was run has figures");
        let (name, record) = records.remove(0);
        assert_eq!(name, "h200/lab/saxpy/fraction_of_triad");
        Figure::compute(&record?, &root)
    }

    #[test]
    fn the_best_version_is_the_figure_with_its_bar() {
        let run = run(vec![saxpy("scalar", 0.8), saxpy("vectors", 0.97)]);
        let figure = figure(&run).expect("a figure");
        assert_eq!(figure.to_string(), "h200/lab/saxpy/fraction_of_triad 0.970 x");
        assert_eq!(figure.reached(), Some(true));
        assert!(figure.title.ends_with("(`vectors`)"), "{}", figure.title);
        let profiling = "h200/lab/profiling plan passed, bar not measured: 1 of 1 explanations hold, 0 of them corrected \
                         since they were predicted";
        assert_eq!(run.verdicts(), ["h200/lab/saxpy plan passed, bar passed", profiling]);
    }

    #[test]
    fn a_changed_kernel_makes_a_stale_figure_and_a_wrong_one_none() {
        let stale = VersionRun { source_sha256: "0".repeat(64), ..saxpy("vectors", 0.97) };
        assert!(figure(&run(vec![stale])).expect("a figure").stale);
        let mut wrong = saxpy("vectors", 0.97);
        wrong.cases[0].error = 2.0;
        let fallback = figure(&run(vec![wrong.clone(), saxpy("scalar", 0.8)])).expect("another version's");
        assert_eq!(fallback.reached(), Some(false));
        let error = figure(&run(vec![wrong])).expect_err("nothing is right").to_string();
        assert_eq!(error, "no version of `saxpy` is right and validly timed in f32 at 268435456");
    }

    #[test]
    fn versions_are_clean_only_under_all_tools() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let ids = ["scalar", "grid_stride", "vectors", "unrolled", "bulk_ring"];
        let of = |tools: &[Tool], errors: u64| {
            let mut run = run(ids.map(|id| saxpy(id, 0.9)).into());
            for version in run.run.steps[0].versions.clone() {
                run.run.steps[0].sanitizer.extend(tools.iter().map(|&tool| SanitizerRun {
                    version: version.version.clone(),
                    dtype: version.dtype,
                    source_sha256: version.source_sha256.clone(),
                    tool,
                    program: "compute-sanitizer 1".to_owned(),
                    shapes: vec![Shape::Vector(1)],
                    errors: Some(errors),
                    first: None,
                    not_run: None,
                }));
            }
            let (name, record) = run.records().pop()?;
            (name == "h200/lab/sanitizer/errors").then(|| {
                record
                    .and_then(|record| Figure::compute(&record, &root))
                    .map_or_else(|e| e.to_string(), |f| f.to_string())
            })
        };
        assert_eq!(of(&[], 0), None);
        assert_eq!(of(&Tool::ALL, 0).as_deref(), Some("h200/lab/sanitizer/errors 0.0000 errors"));
        let missing = "`saxpy` scalar f32: clean in 3 of 4 tools; racecheck not run: it was not asked";
        assert_eq!(of(&Tool::ALL[..3], 0).as_deref(), Some(missing));
        assert_eq!(of(&Tool::ALL, 2).as_deref(), Some("h200/lab/sanitizer/errors 10.00 errors"));
    }

    #[test]
    fn every_figure_that_is_wanted_is_timed_and_most_have_a_bar() {
        for wanted in WANTED {
            let step = catalogue::step(wanted.step).expect("there");
            let timed = step.points.iter().any(|point| {
                (point.dtype, point.shape, point.ceiling) == (wanted.dtype, wanted.shape, wanted.ceiling)
                    && !point.sweep
            });
            assert!(timed, "{}", wanted.name);
            assert!(bar(step, wanted).is_some(), "{} has no bar", wanted.name);
        }
    }
}
