//! From a model argument to something that computes: open, pack, and the context to hold.

use std::sync::Arc;

use clap::ValueEnum;
use plancher_cpu::{Executor, Machine, Options};
use plancher_engine::{Backend, CpuBackend, CudaOptions, Executor as StepExecutor, Sequence};
use plancher_model::{DummyFill, Model};

use crate::arguments::RunOptions;
use crate::failure::usage;
use crate::placement::{self, LoadFormat, Placement, PlacementOptions, Restrictions};
use crate::progress::Progress;
use crate::{gpu, output};

/// The context when none is asked for: enough for conversations, and memory is only taken as it is used.
const DEFAULT_CONTEXT: usize = 8192;

/// What computes the logits on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutorKind {
    /// Plain f32 loops over the dequantized weights: slow, and what the other is compared with
    Reference,
    /// The scheduled program on pinned threads with vector kernels
    Program,
}

/// A model, and where it is to be computed.
pub(crate) struct Session {
    /// The model. Its matrices may not be there yet, where the GPU makes them.
    pub(crate) model: Arc<Model>,
    /// Where.
    pub(crate) placement: Placement,
    argument: String,
    load_format: LoadFormat,
}

impl Session {
    /// Opens the model that `argument` names, to be computed where `options` and `restrictions` say.
    pub(crate) fn open(argument: &str, options: &PlacementOptions, restrictions: Restrictions) -> anyhow::Result<Self> {
        let placement = placement::decide(options.device, restrictions)?;
        Self::open_on(argument, options.load_format, placement)
    }

    /// The same where the place has been decided.
    pub(crate) fn open_on(argument: &str, load_format: LoadFormat, placement: Placement) -> anyhow::Result<Self> {
        let model = match load_format {
            LoadFormat::Auto => open_model(argument)?,
            LoadFormat::Dummy => Arc::new(Model::dummy(argument, DummyFill::Vectors)?),
        };
        Ok(Self { model, placement, argument: argument.to_owned(), load_format })
    }

    /// Something that computes `context` positions of up to `batch` sequences; `executor` is a GPU's.
    pub(crate) fn backend(
        &mut self,
        threads: Option<usize>,
        context: usize,
        batch: usize,
        executor: StepExecutor,
    ) -> anyhow::Result<Box<dyn Backend>> {
        if let Placement::Cuda { ordinal, may_fall_back } = self.placement {
            let options = CudaOptions { ordinal, context, batch, executor };
            match gpu::backend(&self.model, options) {
                Err(error) if may_fall_back && batch == 1 => {
                    output::note(&format!("computing on the CPU: {error:#}"));
                    self.placement = Placement::Cpu;
                }
                made => return made,
            }
        }
        Ok(Box::new(CpuBackend::new(self.executor(threads, context)?)))
    }

    /// An empty sequence of up to `context` positions.
    pub(crate) fn sequence(&mut self, options: &RunOptions, context: usize) -> anyhow::Result<Sequence> {
        Ok(Sequence::new(self.backend(options.threads, context, 1, options.executor.into())?))
    }

    /// The program executor on the CPU.
    pub(crate) fn executor(&mut self, threads: Option<usize>, context: usize) -> anyhow::Result<Executor> {
        self.fill_dummy()?;
        executor(&self.model, threads, context)
    }

    /// Makes a dummy model's matrices, which the CPU needs in memory, if that holds them twice: as they are made and as
    /// they are packed.
    pub(crate) fn fill_dummy(&mut self) -> anyhow::Result<()> {
        if self.load_format == LoadFormat::Auto {
            return Ok(());
        }
        let needed = 2 * self.model.facts().weight_bytes;
        if let Some(available) = Machine::detect().available_memory.filter(|&available| available < needed) {
            let (needed, available) = (output::bytes(needed), output::bytes(available));
            anyhow::bail!(
                "dummy weights of `{}` take {needed} of memory on the CPU, and {available} are available",
                self.argument
            );
        }
        self.model = Arc::new(Model::dummy(&self.argument, DummyFill::All)?);
        Ok(())
    }
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
fn executor(model: &Arc<Model>, threads: Option<usize>, context: usize) -> anyhow::Result<Executor> {
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
