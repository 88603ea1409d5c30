//! From a model argument to something that computes: open, pack, and the context to hold.

use std::sync::Arc;

use clap::ValueEnum;
use plancher_cpu::{Executor, Options};
use plancher_engine::{Backend, CpuBackend, ReferenceBackend, Sequence};
use plancher_model::Model;

use crate::arguments::RunOptions;
use crate::failure::usage;
use crate::progress::Progress;

/// The context when none is asked for: enough for conversations, and memory is only taken as it is used.
const DEFAULT_CONTEXT: usize = 8192;

/// What computes the logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutorKind {
    /// Plain f32 loops over the dequantized weights: slow, and what the other is compared with
    Reference,
    /// The scheduled program on pinned threads with vector kernels
    #[default]
    Program,
}

/// Opens the model that `argument` names: a path, a preset, or a repository in the cache.
pub(crate) fn open_model(argument: &str) -> anyhow::Result<Arc<Model>> {
    let started = std::time::Instant::now();
    let path = crate::commands::pull::locate(argument)?;
    let model = Model::open(&path)?;
    tracing::info!("opened {} in {:.0} ms", path.display(), 1e3 * started.elapsed().as_secs_f64());
    Ok(Arc::new(model))
}

/// The number of positions to hold: what was asked for, if the model can.
pub(crate) fn context(model: &Model, requested: Option<usize>) -> anyhow::Result<usize> {
    let most = model.config.context_length;
    match requested {
        Some(context) if context > most => {
            Err(usage(format!("`--context` is {context}, but the model was made for at most {most} positions")))
        }
        Some(context) => Ok(context),
        None => Ok(most.min(DEFAULT_CONTEXT)),
    }
}

/// Refuses to compute more positions than the model was made for; `what` needs them.
pub(crate) fn check_positions(model: &Model, what: &str, positions: usize) -> anyhow::Result<()> {
    let most = model.config.context_length;
    if positions <= most {
        return Ok(());
    }
    Err(usage(format!("{what} takes {positions} positions, but the model was made for at most {most}")))
}

/// Makes the program executor of `model`.
pub(crate) fn executor(model: &Arc<Model>, threads: Option<usize>, context: usize) -> anyhow::Result<Executor> {
    let started = std::time::Instant::now();
    let defaults = Options::default();
    let options = Options { threads: threads.unwrap_or(defaults.threads), context, ..defaults };
    let progress = std::sync::Mutex::new(Progress::bytes("packing"));
    let executor = Executor::new(model, &options, &|done, total| {
        if let Ok(mut progress) = progress.lock() {
            progress.set(done as u64, total as u64);
        }
    })?;
    tracing::info!("packed for {} workers in {:.0} ms", options.threads, 1e3 * started.elapsed().as_secs_f64());
    Ok(executor)
}

/// Makes a backend of `model`.
pub(crate) fn backend(
    model: &Arc<Model>,
    kind: ExecutorKind,
    threads: Option<usize>,
    context: usize,
) -> anyhow::Result<Box<dyn Backend + '_>> {
    Ok(match kind {
        ExecutorKind::Program => Box::new(CpuBackend::new(executor(model, threads, context)?)),
        ExecutorKind::Reference => Box::new(ReferenceBackend::new(model, context)?),
    })
}

/// Makes an empty sequence on the program executor of `model`.
pub(crate) fn sequence(model: &Arc<Model>, run: &RunOptions) -> anyhow::Result<Sequence> {
    let executor = executor(model, run.threads, context(model, run.context)?)?;
    Ok(Sequence::new(Box::new(CpuBackend::new(executor))))
}
