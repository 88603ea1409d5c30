//! `pull`: models into the cache; and where a model argument leads.

use std::path::PathBuf;

use clap::Args;
use plancher_model::{ModelName, PRESETS, PullEvent, Pulling, SourceSettings};

use crate::failure::Interrupted;
use crate::interrupt::Interruptible;
use crate::output;
use crate::progress::Progress;

/// Fetch a model into the cache
///
/// A preset has several sources, tried in order, and its file is checked by its sha256. An interrupted download goes
/// on where it ended. Prints the path. Without a name, lists the presets.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A preset, or org/name[@revision][:file] on the Hugging Face hub
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(name) = &arguments.name {
        let path = fetch(name, &SourceSettings::from_environment())?;
        return Ok(output::line(&path.display().to_string())?);
    }
    for preset in PRESETS {
        output::line(&format!("{:<20}  {}", preset.name, preset.description))?;
    }
    Ok(())
}

/// Where the model that `argument` names is. A preset that is not here yet is fetched.
pub(crate) fn locate(argument: &str) -> anyhow::Result<PathBuf> {
    let settings = SourceSettings::from_environment();
    match plancher_model::resolve(argument, &settings) {
        Err(_) if matches!(ModelName::parse(argument), Some(ModelName::Preset(_))) => fetch(argument, &settings),
        found => Ok(found?),
    }
}

fn fetch(name: &str, settings: &SourceSettings) -> anyhow::Result<PathBuf> {
    let interruptible = Interruptible::begin()?;
    let mut progress: Option<Progress> = None;
    let mut events = |event: PullEvent<'_>| match event {
        PullEvent::Begin(what) => progress = Some(Progress::bytes(what)),
        PullEvent::Progress(done, total) => {
            if let Some(progress) = &mut progress {
                progress.set(done, total.unwrap_or(done));
            }
        }
        PullEvent::NextSource(reason) => {
            progress = None;
            tracing::info!("trying the next source: {reason}");
        }
    };
    let pulling = Pulling { events: &mut events, cancelled: interruptible.flag() };
    match plancher_model::pull(name, settings, pulling) {
        Err(_) if interruptible.is_cancelled() => Err(Interrupted.into()),
        pulled => Ok(pulled?),
    }
}
