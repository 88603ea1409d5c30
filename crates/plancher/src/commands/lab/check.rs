//! `lab check`: the learner's kernel under the same harness as ours, and what is said of it: whether it is right, how fast
//! it is, what limits it, and what to try next.

use std::path::PathBuf;

use clap::Args;
use plancher_cuda::{Architecture, Compiler};
use plancher_lab::engine::{CheckOptions, CheckReport, check, dtypes, read};
use plancher_lab::verdict::{counts, rightness};
use plancher_lab::{CompileReport, Step, Target, compile_only, plural};
use serde_json::json;

use super::evidence::EvidenceOption;
use super::profile::ncu;
use super::{bounded, child, judgement, step};
use crate::output;
use crate::progress::Progress;

/// Judge a kernel file: is it right, how fast is it, what limits it, what to try next
///
/// Needs an NVIDIA GPU; with `--compile-only` only NVRTC. Ends with status 1 when the kernel is wrong or its times are
/// invalid.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    /// The step, by name or number
    #[arg(value_name = "STEP", value_parser = step)]
    step: &'static Step,
    /// The kernel; `lab start STEP` writes one to begin with
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only compile it: registers, spills, shared memory, instructions, hints; needs no GPU
    #[arg(long)]
    compile_only: bool,
    /// For which architecture it is compiled with `--compile-only`
    #[arg(long, value_name = "ARCH", default_value = "sm_90a", requires = "compile_only")]
    arch: Architecture,
    /// The compiling process
    #[arg(long, hide = true, requires = "compile_only")]
    in_process: bool,
    /// Fewer samples, and nobody asks Nsight Compute, where it is installed
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: super::Measuring,
    #[command(flatten)]
    evidence: EvidenceOption,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let step = arguments.step;
    super::operation(step)?;
    if arguments.compile_only {
        return only_compile(arguments);
    }
    // What is wrong with the file is said before what is wrong with the machine.
    dtypes(step, &arguments.file.display().to_string(), &read(&arguments.file)?)?;
    child::require_gpu()?;
    let recorded = arguments.evidence.load()?;
    let options =
        CheckOptions { quick: arguments.quick, child: child::command()?, silence: arguments.measuring.silence() };
    let mut progress = Progress::words();
    let mut report = check(step, &arguments.file, &options, &mut |line| progress.say(line))?;
    if !arguments.quick {
        look_closer(arguments, &mut report, &mut progress);
    }
    drop(progress);
    let ours = recorded.as_ref().map(|recorded| &recorded.run);
    let judgements = judgement::of_run(step, &report.run, ours);
    if arguments.json {
        output::json(&json!({ "step": step.id, "verdicts": judgements, "run": report.run }))?;
    } else {
        let name = arguments.file.display().to_string();
        let texts = judgements.iter().map(|judgement| judgement.text(&name, step)).collect::<Vec<_>>();
        output::shown(&texts.join("\n"))?;
    }
    let wrong = report.run.steps.iter().flat_map(|of| &of.versions).filter(|version| !rightness(version).is_right());
    anyhow::ensure!(wrong.count() == 0, "`{}` is not right", arguments.file.display());
    let machine = &report.run.machine;
    let invalid = report.run.steps.iter().flat_map(|of| &of.versions).find_map(|version| {
        version.points.iter().filter(|point| !point.sweep).find_map(|point| counts(machine, version.dtype, point).err())
    });
    invalid.map_or(Ok(()), |reason| anyhow::bail!("`{}`: the times are INVALID: {reason}", arguments.file.display()))
}

/// Adds what Nsight Compute sees of right kernels, where it is installed.
fn look_closer(arguments: &Arguments, report: &mut CheckReport, progress: &mut Progress) {
    let Some(program) = ncu::find(None) else { return };
    for of in &mut report.run.steps {
        let right = of.versions.iter().filter(|version| rightness(version).is_right());
        let kernels: Vec<_> = right.map(|version| (version.version.clone(), version.dtype)).collect();
        if kernels.is_empty() {
            continue;
        }
        let subjects = ncu::Subjects { step: arguments.step, kernels, text: Some(&report.text) };
        let silence = arguments.measuring.silence();
        let profiles = ncu::launched(&program, &subjects, silence, &mut |line| progress.say(line));
        for profile in profiles.unwrap_or_else(|error| vec![Err(error)]) {
            match profile {
                Ok(profile) => of.profile.push(profile),
                // The verdict stands without it.
                Err(error) => output::note(&format!("{error:#}")),
            }
        }
    }
}

fn only_compile(arguments: &Arguments) -> anyhow::Result<()> {
    let (step, file) = (arguments.step, &arguments.file);
    let operation = super::operation(step)?;
    let text = read(file)?;
    if !arguments.in_process {
        let status = bounded::again("--compile-only", "--in-process")?;
        // What was wrong, the other process has said.
        std::process::exit(status.code().unwrap_or(1));
    }
    let name = file.file_stem().map_or_else(|| "kernel".to_owned(), |name| name.to_string_lossy().into_owned());
    let numbers = dtypes(step, &file.display().to_string(), &text)?;
    let compiler = Compiler::find()?;
    let target = Target::without_device(arguments.arch);
    let reports: Vec<CompileReport> = numbers
        .into_iter()
        .map(|dtype| compile_only(&compiler, (&name, &text), operation, dtype, &target))
        .collect::<Result<_, _>>()?;
    if arguments.json {
        return output::json(&json!({ "step": step.id, "file": file.display().to_string(), "reports": reports }));
    }
    Ok(output::shown(&reports.iter().map(compiled).collect::<Vec<_>>().join("\n"))?)
}

/// What the machine code says, in lines.
fn compiled(report: &CompileReport) -> String {
    let resources = &report.resources;
    let spills = if resources.spill_bytes == 0 {
        "none".to_owned()
    } else {
        format!("{} a thread", plural(resources.spill_bytes, "byte"))
    };
    let mut fields = vec![
        ("kernel", format!("{} in {} for {}", report.name, report.dtype, report.architecture)),
        ("registers", resources.registers.to_string()),
        ("spills", spills),
        ("shared memory", format!("{} a block", plural(resources.shared_bytes, "byte"))),
        (
            "occupancy",
            format!(
                "{} of {} on a multiprocessor, limited by {}",
                plural(resources.blocks_per_multiprocessor, "block"),
                plural(resources.threads, "thread"),
                resources.limiter
            ),
        ),
    ];
    if !report.instructions.is_empty() {
        let instructions = report.instructions.iter().map(|(name, count)| format!("{name} {count}"));
        fields.push(("instructions", instructions.collect::<Vec<_>>().join(", ")));
    }
    fields.extend(report.warnings.iter().map(|warning| ("warning", warning.replace('\n', " "))));
    fields.extend(report.hints.iter().map(|hint| ("hint", hint.clone())));
    crate::table::fields(&fields)
}
