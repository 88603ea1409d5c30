//! `lab sanitize`: compute-sanitizer's tools on every version at small sizes. What did not run to its end is never clean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plancher_lab::engine::{ChildCommand, Small, SmallOptions, launch_small};
use plancher_lab::record::{LabRun, SanitizerRun};
use plancher_lab::sanitizer::{Log, Tool, read_log};
use plancher_lab::{Step, plural};

use super::{Subject, child, evidence, tool};
use crate::file::write_whole;
use crate::progress::Progress;
use crate::{output, table};

/// Run compute-sanitizer's tools (memcheck, initcheck, synccheck, racecheck) on a step's versions, or on all, at small sizes
///
/// Needs an NVIDIA GPU, NVRTC and compute-sanitizer. Each array has an allocation of exactly its size. Racecheck sees shared
/// memory only. Ends with status 1 when something is found, or a tool does not run to its end.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: super::Chosen,
    /// Where compute-sanitizer is [default: `compute-sanitizer` in PATH, or in CUDA's folders]
    #[arg(long, value_name = "PROGRAM")]
    sanitizer: Option<PathBuf>,
    /// Put what was found into this recorded run, in place of what it has of the same versions
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: super::Measuring,
}

const NAME: &str = "compute-sanitizer";

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (steps, mut subjects) = arguments.chosen.subjects()?;
    let into = arguments.into.as_deref().map(|path| evidence::to_be_extended(path, &steps)).transpose()?;
    evidence::require_same(into.as_ref(), &subjects)?;
    if let Some(recorded) = &into {
        // What is found belongs to a version that was measured.
        subjects.retain(|of| evidence::version(&recorded.run, of.step.id, of.version.id, of.dtype).is_some());
        anyhow::ensure!(!subjects.is_empty(), "{}: none of these versions was measured", recorded.from);
    }
    let Some(program) = tool::find(arguments.sanitizer.as_deref(), NAME) else {
        let named = arguments.sanitizer.as_deref().unwrap_or(Path::new(NAME)).display();
        anyhow::bail!("there is no program `{named}`: `--sanitizer` names it");
    };
    child::require_gpu()?;
    let watch = Watch { source: tool::version(&program, NAME), program, silence: arguments.measuring.silence() };
    let mut progress = Progress::words();
    let mut found = Vec::new();
    for of_step in subjects.chunk_by(|a, b| a.step.id == b.step.id) {
        for tool in Tool::ALL {
            let mut say = |line: &str| progress.say(&format!("{} {tool} {line}", of_step[0].step.id));
            found.extend(watch.all(tool, of_step, &mut say));
        }
    }
    if let (Some(path), Some(recorded)) = (&arguments.into, into) {
        let run = put(recorded.run, &found);
        write_whole(path, &(serde_json::to_string(&run)? + "\n")).map_err(anyhow::Error::msg)?;
        output::note(&format!("put {} into `{}`", plural(found.len(), "finding"), path.display()));
    }
    if arguments.json {
        let rows = found.iter().map(|(subject, run)| serde_json::json!({"step": subject.step.id, "run": run}));
        output::json(&rows.collect::<Vec<_>>())?;
    } else {
        output::shown(&report(&subjects, &found))?;
        output::note("racecheck sees shared memory only");
    }
    judge(&found)
}

/// How versions are watched.
struct Watch {
    program: PathBuf,
    source: String,
    silence: Duration,
}

impl Watch {
    /// What a tool found in each version of a step: in one process for all, and where that is not clean in one for each.
    fn all<'a>(
        &self,
        tool: Tool,
        subjects: &'a [Subject],
        say: &mut dyn FnMut(&str),
    ) -> Vec<(&'a Subject, SanitizerRun)> {
        let together = self.together(tool, subjects, say);
        if subjects.len() < 2 || together.iter().all(|run| run.errors == Some(0)) {
            return subjects.iter().zip(together).collect();
        }
        let alone = |one: &'a [Subject]| (&one[0], self.together(tool, one, say).remove(0));
        subjects.chunks(1).map(alone).collect()
    }

    /// The same for versions of one step in one process, of which the log says what it says of all of them.
    fn together(&self, tool: Tool, subjects: &[Subject], say: &mut dyn FnMut(&str)) -> Vec<SanitizerRun> {
        let launched = self.launched(tool, subjects, say);
        let of = |(index, subject): (usize, &Subject)| {
            let small = launched.as_ref().map(|(_, launched)| &launched[index]).map_err(String::as_str);
            let log = launched.as_ref().map(|(log, _)| log).map_err(String::as_str);
            finding(tool, subject, &self.source, small, log)
        };
        subjects.iter().enumerate().map(of).collect()
    }

    /// What its log says, and what became of each version below it.
    fn launched(
        &self,
        tool: Tool,
        subjects: &[Subject],
        say: &mut dyn FnMut(&str),
    ) -> Result<(Result<Log, String>, Vec<Small>), String> {
        let log = tool::Log::new(tool.name());
        let ChildCommand { program, arguments: hidden, environment } =
            child::command().map_err(|error| error.to_string())?;
        let options = [tool.options(), vec!["--log-file".to_owned(), log.path().display().to_string()]].concat();
        let arguments = options.into_iter().chain([program.display().to_string()]).chain(hidden).collect();
        let options = SmallOptions {
            kernels: subjects.iter().map(|subject| (subject.version.id.to_owned(), subject.dtype)).collect(),
            read_back: tool.sees_bulk_copies(),
            child: ChildCommand { program: self.program.clone(), arguments, environment },
            silence: self.silence,
        };
        let step: &Step = subjects[0].step;
        let launched = launch_small(step, &options, say).map_err(|error| error.to_string())?;
        Ok((read_log(&log.text()), launched))
    }
}

/// What is recorded of one version. Errors count whatever else went wrong; that there are none counts only if all was done.
fn finding(
    tool: Tool,
    subject: &Subject,
    program: &str,
    small: Result<&Small, &str>,
    log: Result<&Result<Log, String>, &str>,
) -> SanitizerRun {
    let (errors, first, not_run) = match (log, small) {
        (Err(reason), _) | (_, Err(reason)) => (None, None, Some(reason.to_owned())),
        (Ok(Ok(Log { errors, first })), _) if *errors > 0 => (Some(*errors), first.clone(), None),
        (_, Ok(Small { failure: Some(failure), .. })) => (None, None, Some(failure.clone())),
        (Ok(Err(reason)), _) => (None, None, Some(reason.clone())),
        (Ok(Ok(_)), Ok(_)) => (Some(0), None, None),
    };
    SanitizerRun {
        version: subject.version.id.to_owned(),
        dtype: subject.dtype,
        source_sha256: subject.version.sha256(),
        tool,
        program: program.to_owned(),
        shapes: small.map(|small| small.shapes.clone()).unwrap_or_default(),
        errors,
        first,
        not_run,
    }
}

/// The run with these findings in place of those of the same versions by the same tools.
fn put(mut run: LabRun, found: &[(&Subject, SanitizerRun)]) -> LabRun {
    for (subject, finding) in found {
        let Some(of_step) = run.steps.iter_mut().find(|of| of.step == subject.step.id) else { continue };
        let same = |other: &SanitizerRun| {
            (&other.version, other.dtype, other.tool) == (&finding.version, finding.dtype, finding.tool)
        };
        of_step.sanitizer.retain(|other| !same(other));
        of_step.sanitizer.push(finding.clone());
    }
    run
}

/// A line for every version, a column for every tool.
fn report(subjects: &[Subject], found: &[(&Subject, SanitizerRun)]) -> String {
    let header: Vec<&str> = std::iter::once("kernel").chain(Tool::ALL.map(Tool::name)).collect();
    let row = |subject: &Subject| {
        let of = |tool: Tool| {
            let is_it = |(other, run): &&(&Subject, SanitizerRun)| std::ptr::eq(*other, subject) && run.tool == tool;
            let run = found.iter().find(is_it).map(|(_, run)| run);
            match run.map(|run| (run.errors, run)) {
                Some((Some(0), _)) => "clean".to_owned(),
                Some((Some(errors), run)) => format!("{errors}: {}", run.first.as_deref().unwrap_or_default()),
                Some((None, run)) => format!("not run: {}", run.not_run.as_deref().unwrap_or_default()),
                None => "not run".to_owned(),
            }
        };
        std::iter::once(subject.to_string()).chain(Tool::ALL.map(of)).collect()
    };
    table::wrapped(&header, &subjects.iter().map(row).collect::<Vec<_>>())
}

fn judge(found: &[(&Subject, SanitizerRun)]) -> anyhow::Result<()> {
    let of = |is: &dyn Fn(&SanitizerRun) -> bool| -> Vec<String> {
        found.iter().filter(|(_, run)| is(run)).map(|(subject, run)| format!("{subject} by {}", run.tool)).collect()
    };
    let wrong = of(&|run| run.errors.is_some_and(|errors| errors > 0));
    anyhow::ensure!(wrong.is_empty(), "errors found: {}", wrong.join(", "));
    let not_run = of(&|run| run.errors.is_none());
    anyhow::ensure!(not_run.is_empty(), "not run to the end, which is not clean: {}", not_run.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use plancher_lab::{Dtype, Shape, catalogue};

    use super::*;

    fn subject() -> Subject {
        let step = catalogue::step("saxpy").expect("there");
        Subject { step, version: &step.versions[0], dtype: Dtype::F32 }
    }

    #[test]
    fn only_what_ran_to_its_end_is_clean() {
        let small =
            |failure: Option<&str>| Small { shapes: vec![Shape::Vector(1)], failure: failure.map(str::to_owned) };
        let log = |errors| Ok(Log { errors, first: (errors > 0).then(|| "Invalid read".to_owned()) });
        let of = |small: Result<&Small, &str>, log: Result<&Result<Log, String>, &str>| {
            let run = finding(Tool::Memcheck, &subject(), "compute-sanitizer 1", small, log);
            (run.errors, run.not_run)
        };
        assert_eq!(of(Ok(&small(None)), Ok(&log(0))), (Some(0), None));
        assert_eq!(of(Ok(&small(None)), Ok(&log(2))), (Some(2), None));
        assert_eq!(of(Ok(&small(Some("it died"))), Ok(&log(2))), (Some(2), None));
        assert_eq!(of(Ok(&small(Some("it died"))), Ok(&log(0))), (None, Some("it died".to_owned())));
        assert_eq!(of(Ok(&small(None)), Ok(&Err("cut".to_owned()))), (None, Some("cut".to_owned())));
        assert_eq!(of(Err("no GPU"), Err("no GPU")), (None, Some("no GPU".to_owned())));
    }

    #[test]
    fn findings_replace_those_of_the_same_version_and_tool_and_are_told_apart() {
        let subject = subject();
        let run = |tool, errors| {
            let log = Ok(Log { errors, first: None });
            let small = Small { shapes: vec![Shape::Vector(1)], failure: None };
            (&subject, finding(tool, &subject, "compute-sanitizer 1", Ok(&small), Ok(&log)))
        };
        let first = put(super::super::samples::run(Vec::new()), &[run(Tool::Memcheck, 3), run(Tool::Racecheck, 0)]);
        let second = put(first, &[run(Tool::Memcheck, 0)]);
        let kept: Vec<_> = second.steps[0].sanitizer.iter().map(|run| (run.tool, run.errors)).collect();
        assert_eq!(kept, [(Tool::Racecheck, Some(0)), (Tool::Memcheck, Some(0))]);
        assert!(judge(&[run(Tool::Memcheck, 0)]).is_ok());
        let error = judge(&[run(Tool::Memcheck, 0), run(Tool::Racecheck, 2)]).expect_err("hazards").to_string();
        assert_eq!(error, "errors found: saxpy/scalar f32 by racecheck");
    }
}
