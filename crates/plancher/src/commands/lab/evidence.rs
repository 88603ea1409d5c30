//! Recorded runs of the lab: a file that the user names, else the one that the program was built with.

use std::path::{Path, PathBuf};

use clap::Args;
use plancher_lab::record::{LabRun, StepRun, VersionRun};
use plancher_lab::step::Criterion;
use plancher_lab::verdict::{Explained, Outcome};
use plancher_lab::{Dtype, Step, catalogue, read_run};

use super::Subject;
use crate::file::{Kind, read_text, require_writable};

/// What was recorded on one H200 when the program was built; empty where nothing was.
const BUILT_IN: &str = include_str!(concat!(env!("OUT_DIR"), "/lab-evidence.json"));

/// Which run.
#[derive(Debug, Args)]
pub(super) struct EvidenceOption {
    /// A run recorded by `lab run --out FILE` [default: the one on an H200 that the program was built with]
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
}

/// A run and where it comes from.
pub(super) struct Recorded {
    pub(super) run: LabRun,
    /// For people: a path, or that it came with the program.
    pub(super) from: String,
}

impl EvidenceOption {
    /// The file, where one is named.
    pub(super) fn path(&self) -> Option<&Path> {
        self.evidence.as_deref()
    }

    /// The run; `None` where none is named and the program has none.
    pub(super) fn load(&self) -> anyhow::Result<Option<Recorded>> {
        match &self.evidence {
            Some(path) => read(path).map(Some),
            None if BUILT_IN.trim().is_empty() => Ok(None),
            None => {
                let run = read_run("the recorded evidence", BUILT_IN)?;
                Ok(Some(Recorded { run, from: "recorded when the program was built".to_owned() }))
            }
        }
    }

    /// The run, for a command that is about nothing else.
    pub(super) fn require(&self) -> anyhow::Result<Recorded> {
        self.load()?.ok_or_else(|| {
            anyhow::anyhow!(
                "this program was built without recorded evidence: name a run with `--evidence FILE` (`lab run --out FILE` \
                 writes one, on a GPU)"
            )
        })
    }
}

/// The run in a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Recorded> {
    let run = read_run(&path.display().to_string(), &read_text(path).map_err(anyhow::Error::msg)?)?;
    Ok(Recorded { run, from: path.display().to_string() })
}

/// What a run measured of a step.
pub(super) fn step<'a>(run: &'a LabRun, id: &str) -> Option<&'a StepRun> {
    run.steps.iter().find(|step| step.step == id)
}

/// Whether the version's file has changed since it was measured, or is no longer there.
pub(super) fn is_stale(step: &str, version: &VersionRun) -> bool {
    let now = catalogue::step(step).and_then(|step| step.version(&version.version));
    now.map_or(true, |now| now.sha256() != version.source_sha256)
}

/// The version in numbers of a type as it was measured.
pub(super) fn version<'a>(run: &'a LabRun, id: &str, version: &str, dtype: Dtype) -> Option<&'a VersionRun> {
    step(run, id)?.versions.iter().find(|of| (of.version.as_str(), of.dtype) == (version, dtype))
}

/// A run that something is to be put into, once it is known that all of these steps are in it and that it can be written.
pub(super) fn to_be_extended(path: &Path, steps: &[&'static Step]) -> anyhow::Result<Recorded> {
    let recorded = read(path)?;
    require_writable(path, Kind::Record).map_err(anyhow::Error::msg)?;
    match steps.iter().find(|wanted| step(&recorded.run, wanted.id).is_none()) {
        Some(missing) => anyhow::bail!("`{}` has no step `{}`", path.display(), missing.id),
        None => Ok(recorded),
    }
}

/// Refuses a run of other texts than these: what is found out about a kernel now belongs to this one only.
pub(super) fn require_same(recorded: Option<&Recorded>, subjects: &[Subject]) -> anyhow::Result<()> {
    let Some(Recorded { run, from }) = recorded else { return Ok(()) };
    let changed = |subject: &&Subject| {
        let measured = version(run, subject.step.id, subject.version.id, subject.dtype);
        measured.is_some_and(|measured| is_stale(subject.step.id, measured))
    };
    match subjects.iter().find(changed) {
        Some(subject) => {
            anyhow::bail!("{subject} has changed since `{from}` was measured: `lab run` measures it again")
        }
        None => Ok(()),
    }
}

/// Whether an explanation is of a version whose file has changed since it was measured.
pub(super) fn is_stale_explanation(run: &LabRun, explained: &Explained) -> bool {
    version(run, explained.step, explained.version, explained.dtype)
        .is_some_and(|version| is_stale(explained.step, version))
}

/// Whether a version by which a criterion was decided is stale.
pub(super) fn decided_by_stale(step: &Step, of: &StepRun, criterion: &Criterion, outcome: &Outcome) -> bool {
    criterion.tests.iter().zip(&outcome.parts).any(|(test, part)| {
        let decided =
            |version: &&VersionRun| part.version.as_ref() == Some(&version.version) && version.dtype == test.dtype;
        of.versions.iter().filter(decided).any(|version| is_stale(step.id, version))
    })
}
