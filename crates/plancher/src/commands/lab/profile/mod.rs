//! `lab profile`: explanations held against what Nsight Compute sees, or against counted bytes and times where there is none.

pub(super) mod ncu;

use std::path::PathBuf;

use clap::Args;
use plancher_lab::profile::{counted, explanation};
use plancher_lab::record::{LabRun, ProfileRun, StepRun};
use plancher_lab::verdict::{Explained, explanations};
use plancher_lab::{Dtype, catalogue, plural};

use super::evidence::{self, EvidenceOption, Recorded};
use super::{Subject, child, text};
use crate::failure::usage;
use crate::file::{read_text, write_whole};
use crate::progress::Progress;
use crate::{output, table};

/// Profile a step, or `all`: check each version's explanation with Nsight Compute, or by counting where there is none
///
/// With `ncu` installed, every version is launched below it (clocks are left as they are). Without it, bytes and times of
/// the recorded run say what they can. Ends with status 1 when an explanation does not hold.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: super::Chosen,
    /// Read this table of `ncu --csv --page raw` instead of profiling; it is about one version, named with `--only`
    #[arg(long, value_name = "FILE", requires = "only", conflicts_with_all = ["ncu", "counted"])]
    report: Option<PathBuf>,
    /// The numbers that the table is about [default: the version's first]
    #[arg(long, value_name = "TYPE", value_parser = text::dtype, requires = "report")]
    dtype: Option<Dtype>,
    /// Where Nsight Compute's command line is [default: `ncu` in PATH, or in CUDA's folders]
    #[arg(long, value_name = "PROGRAM")]
    ncu: Option<PathBuf>,
    /// Count only, even if Nsight Compute is installed
    #[arg(long, conflicts_with = "ncu")]
    counted: bool,
    /// Put the profiles into this recorded run, in place of those that it has of the same versions
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: super::Measuring,
    #[command(flatten)]
    evidence: EvidenceOption,
}

/// Where a profile comes from that no profiler saw.
const COUNTED: &str = "counted";

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (steps, subjects) = arguments.chosen.subjects()?;
    // What cannot be written to is said before anything is profiled.
    let into = arguments.into.as_deref().map(|path| evidence::to_be_extended(path, &steps)).transpose()?;
    let mut failures = Vec::new();
    let profiles = match &arguments.report {
        Some(file) => {
            evidence::require_same(into.as_ref(), &subjects)?;
            vec![read_report(arguments, file, &subjects)?]
        }
        None => match ncu::find(arguments.ncu.as_deref()).filter(|_| !arguments.counted) {
            Some(program) => {
                evidence::require_same(into.as_ref(), &subjects)?;
                profiled(arguments, &program, &subjects, &mut failures)?
            }
            None if arguments.ncu.is_some() => {
                anyhow::bail!(
                    "`--ncu`: there is no program `{}`",
                    arguments.ncu.as_deref().unwrap_or(&program_name()).display()
                )
            }
            None => from_record(arguments, into.as_ref(), &subjects)?,
        },
    };
    if let (Some(path), Some(recorded)) = (&arguments.into, into) {
        let (run, count) = put(recorded.run, &profiles);
        write_whole(path, &(serde_json::to_string(&run)? + "\n")).map_err(anyhow::Error::msg)?;
        output::note(&format!("put {} into `{}`", plural(count, "profile"), path.display()));
    }
    let explained: Vec<Explained> = profiles.into_iter().map(|(subject, profile)| explain(&subject, profile)).collect();
    if arguments.json {
        let rows = explained.iter().map(|one| {
            serde_json::json!({
                "step": one.step, "version": one.version, "dtype": one.dtype, "holds": one.explanation.holds(),
                "checks": one.explanation.checks, "profile": one.profile,
            })
        });
        output::json(&rows.collect::<Vec<_>>())?;
    } else {
        output::shown(&report(&explained))?;
    }
    for failure in &failures {
        output::note(&format!("not profiled: {failure}"));
    }
    judge(&explained)?;
    anyhow::ensure!(failures.is_empty(), "{} of {} could not be profiled", failures.len(), subjects.len());
    Ok(())
}

fn program_name() -> PathBuf {
    "ncu".into()
}

fn read_report(
    arguments: &Arguments,
    file: &std::path::Path,
    subjects: &[Subject],
) -> anyhow::Result<(Subject, ProfileRun)> {
    let [first, rest @ ..] = subjects else {
        return Err(usage("`--report` is about one version: name it with `--only`"));
    };
    if rest.iter().any(|other| other.version.id != first.version.id || other.step.id != first.step.id) {
        return Err(usage("`--report` is about one version of one step: name one with `--only`"));
    }
    let dtype = arguments.dtype.unwrap_or(first.dtype);
    if !first.version.dtypes.contains(&dtype) {
        return Err(usage(format!("`--dtype` is {dtype}, but `{}` has no kernels in it", first.version.id)));
    }
    let subject = Subject { dtype, ..*first };
    let text = read_text(file).map_err(anyhow::Error::msg)?;
    let profile = ncu::profile(&file.display().to_string(), &text, subject.step, (subject.version.id, dtype), "ncu")?;
    Ok((subject, profile))
}

/// What Nsight Compute saw of each, step by step; `failures` gets a line for each that it could not see.
fn profiled(
    arguments: &Arguments,
    program: &std::path::Path,
    subjects: &[Subject],
    failures: &mut Vec<String>,
) -> anyhow::Result<Vec<(Subject, ProfileRun)>> {
    child::require_gpu()?;
    let silence = arguments.measuring.silence();
    let mut progress = Progress::words();
    let mut profiles = Vec::new();
    for of_step in subjects.chunk_by(|a, b| a.step.id == b.step.id) {
        let step = of_step[0].step;
        let kernels = of_step.iter().map(|subject| (subject.version.id.to_owned(), subject.dtype)).collect();
        let asked = ncu::Subjects { step, kernels, text: None };
        let found = ncu::launched(program, &asked, silence, &mut |line| progress.say(&format!("{} {line}", step.id)))?;
        for (subject, profile) in of_step.iter().zip(found) {
            match profile {
                Ok(profile) => profiles.push((*subject, profile)),
                Err(error) => failures.push(format!("{subject}: {error:#}")),
            }
        }
    }
    Ok(profiles)
}

/// What the recorded run has: profiles, or times from which they can be counted.
fn from_record(
    arguments: &Arguments,
    into: Option<&Recorded>,
    subjects: &[Subject],
) -> anyhow::Result<Vec<(Subject, ProfileRun)>> {
    // What is put into a record is counted from that record.
    if into.is_some() && arguments.evidence.path().is_some() {
        return Err(usage("`--into` counts from its own file: leave `--evidence` out"));
    }
    let loaded: Option<Recorded> = if into.is_some() { None } else { arguments.evidence.load()? };
    let Some(recorded) = into.or(loaded.as_ref()) else {
        anyhow::bail!(
            "Nsight Compute (`ncu`) was not found, and there is no recorded run to count from: name one with `--evidence FILE`"
        );
    };
    let all = explanations(&recorded.run);
    let of_subject = |subject: &Subject| {
        let is_it = |one: &&Explained| {
            (one.step, one.version, one.dtype) == (subject.step.id, subject.version.id, subject.dtype)
        };
        let found = all.iter().find(is_it)?;
        let profile = if arguments.counted { recount(&recorded.run, subject)? } else { found.profile.clone() };
        Some((*subject, profile))
    };
    let profiles: Vec<(Subject, ProfileRun)> = subjects.iter().filter_map(of_subject).collect();
    if profiles.is_empty() {
        anyhow::bail!("{}: none of these versions was measured", recorded.from);
    }
    output::note(&format!("without a profiler, from {}", recorded.from));
    let is_stale = |one: &&Explained| evidence::is_stale_explanation(&recorded.run, one);
    let is_meant = |one: &&Explained| {
        profiles.iter().any(|(of, _)| (of.step.id, of.version.id, of.dtype) == (one.step, one.version, one.dtype))
    };
    let stale: Vec<String> = all
        .iter()
        .filter(is_meant)
        .filter(is_stale)
        .map(|one| format!("{}/{} {}", one.step, one.version, one.dtype))
        .collect();
    if !stale.is_empty() {
        output::note(&format!("stale, for the kernels have changed since: {}", stale.join(", ")));
    }
    Ok(profiles)
}

fn recount(run: &LabRun, subject: &Subject) -> Option<ProfileRun> {
    let of_step = evidence::step(run, subject.step.id)?;
    let of = |version: &&plancher_lab::record::VersionRun| {
        version.version == subject.version.id && version.dtype == subject.dtype
    };
    let version = of_step.versions.iter().find(of)?;
    counted(&run.machine, version, version.points.iter().find(|point| !point.sweep)?)
}

fn explain(subject: &Subject, profile: ProfileRun) -> Explained {
    let work = subject.step.operation.zip(profile.shape);
    let changes = catalogue::corrections(subject.step, subject.version, subject.dtype);
    let first = subject.version.dtypes.first().copied();
    let explanation = explanation(&subject.version.prediction, changes, first, &profile, work);
    Explained { step: subject.step.id, version: subject.version.id, dtype: subject.dtype, profile, explanation }
}

/// The run with these profiles in place of those of the same versions, and how many there are; what a profiler saw is not
/// replaced by what was counted.
fn put(mut run: LabRun, profiles: &[(Subject, ProfileRun)]) -> (LabRun, usize) {
    let mut count = 0;
    for (subject, profile) in profiles {
        let Some(of_step) = run.steps.iter_mut().find(|of| of.step == subject.step.id) else { continue };
        let StepRun { profile: known, .. } = of_step;
        let same = |other: &ProfileRun| (&other.version, other.dtype) == (&profile.version, profile.dtype);
        if profile.source == COUNTED && known.iter().any(|other| same(other) && other.source != COUNTED) {
            continue;
        }
        known.retain(|other| !same(other));
        known.push(profile.clone());
        count += 1;
    }
    (run, count)
}

/// A line for every part of every explanation.
fn report(explained: &[Explained]) -> String {
    let rows = explained.iter().flat_map(|one| {
        one.explanation.checks.iter().enumerate().map(|(index, check)| {
            let name = if index == 0 { format!("{}/{} {}", one.step, one.version, one.dtype) } else { String::new() };
            let source = if index == 0 { one.profile.source.clone() } else { String::new() };
            let holds = match check.holds {
                Some(true) => "holds",
                Some(false) => "DOES NOT HOLD",
                None => "",
            };
            let said = match &check.predicted {
                Some(predicted) => format!("{} (predicted: {predicted})", check.declared),
                None => check.declared.clone(),
            };
            vec![name, source, check.what.to_owned(), said, check.found.clone(), holds.to_owned()]
        })
    });
    table::wrapped(&["kernel", "by", "part", "said", "found", ""], &rows.collect::<Vec<_>>())
}

fn judge(explained: &[Explained]) -> anyhow::Result<()> {
    let wrong = explained.iter().filter(|one| one.explanation.checks.iter().any(|check| check.holds == Some(false)));
    let wrong: Vec<String> = wrong.map(|one| format!("{}/{} {}", one.step, one.version, one.dtype)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    anyhow::bail!("{} of {} explanations do not hold: {}", wrong.len(), explained.len(), wrong.join(", "))
}
