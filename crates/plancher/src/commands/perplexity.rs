//! `perplexity`: how surprised a model is by a text, by llama.cpp's definition.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use plancher_engine::{Backend, Executor, ReferenceBackend, perplexity};
use serde::Serialize;

use crate::arguments::{count, parse_ids, worker_count};
use crate::failure::usage;
use crate::interrupt::Interruptible;
use crate::placement::{PlacementOptions, Restrictions};
use crate::progress::Progress;
use crate::session::{self, ExecutorKind, Session};
use crate::{output, prompt};

/// Measure a model's perplexity on a text, as llama.cpp's llama-perplexity does
///
/// The text is cut into windows of `--context` tokens, each computed from an empty cache; the tokens of a window's
/// second half are scored. Ctrl-C ends with the estimate so far.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The model: a path, a preset, or org/name[@revision]
    #[arg(value_name = "MODEL")]
    model: String,
    /// The text; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "ids_file")]
    file: Option<PathBuf>,
    /// Token ids instead of a text, separated by commas or white space, begin token included; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    ids_file: Option<PathBuf>,
    /// Tokens of a window
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = window, allow_negative_numbers = true)]
    context: usize,
    /// Score only the first N windows
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    chunks: Option<usize>,
    /// What computes the logits on the CPU [default: program]
    #[arg(long, value_enum)]
    executor: Option<ExecutorKind>,
    /// Worker threads of the program executor [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = worker_count, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    placement: PlacementOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    estimate: plancher_engine::Perplexity,
    context: usize,
    seconds: f64,
}

/// A window's tokens: its second half must hold a token to score and one to score it from.
fn window(text: &str) -> Result<usize, String> {
    match count(text)? {
        window if window < plancher_engine::LEAST_WINDOW => {
            Err(format!("must be {} or more", plancher_engine::LEAST_WINDOW))
        }
        window => Ok(window),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (executor, threads) = (arguments.executor, arguments.threads);
    let cpu = executor.map(|_| "--executor").or(threads.map(|_| "--threads"));
    let mut session = Session::open(&arguments.model, &arguments.placement, Restrictions { cpu, gpu: None })?;
    let model = Arc::clone(&session.model);
    let tokens = match (&arguments.ids_file, &arguments.file) {
        (Some(path), _) => {
            parse_ids(&read(path)?).map_err(|problem| usage(format!("`{}`: {problem}", path.display())))?
        }
        (None, Some(path)) => prompt::raw_tokens(&model, &read(path)?)?,
        (None, None) => return Err(usage("there is no text to score")),
    };
    session::context(&model, Some(arguments.context))?;
    // A text begins with the begin token where the tokenizer adds one; so then does every window.
    let begin = model.generation.begin_token.filter(|&begin| tokens.first() == Some(&begin));
    let mut backend: Box<dyn Backend + '_> = match executor {
        Some(ExecutorKind::Reference) => {
            session.fill_dummy()?;
            Box::new(ReferenceBackend::new(&session.model, arguments.context)?)
        }
        _ => session.backend(threads, arguments.context, 1, Executor::Graph)?,
    };

    let started = std::time::Instant::now();
    let interruptible = Interruptible::begin()?;
    let mut bar = Progress::count("perplexity");
    let mut progress = |estimate: plancher_engine::Perplexity, windows: usize| {
        bar.message(&format!("perplexity {:.4} +/- {:.4}", estimate.perplexity, estimate.standard_error));
        let windows = arguments.chunks.map_or(windows, |most| most.min(windows));
        bar.set(estimate.windows as u64, windows as u64);
        tracing::info!("[{}/{windows}] {:.4}", estimate.windows, estimate.perplexity);
        estimate.windows < windows && !interruptible.is_cancelled()
    };
    let estimate = perplexity(backend.as_mut(), &tokens, arguments.context, begin, &mut progress)?;
    drop(bar);
    if arguments.json {
        let seconds = started.elapsed().as_secs_f64();
        return output::json(&Output { estimate, context: arguments.context, seconds });
    }
    output::line(&format!("Final estimate: PPL = {:.4} +/- {:.5}", estimate.perplexity, estimate.standard_error))?;
    output::note(&format!(
        "{} tokens scored in {} windows of {}; {:.0} tokens/s",
        estimate.tokens,
        estimate.windows,
        arguments.context,
        (estimate.windows * arguments.context) as f64 / started.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        return prompt::read_stdin();
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("`{}`: byte {} is not UTF-8 text", path.display(), error.utf8_error().valid_up_to())
    })
}
