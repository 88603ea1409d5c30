//! `logits`: the logits of every position in a file that any tool reads.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use plancher_engine::{Backend, Executor, LogitsOf, ReferenceBackend};

use crate::arguments::StepExecutor;
use crate::failure::{Interrupted, usage};
use crate::interrupt::Interruptible;
use crate::output;
use crate::placement::{PlacementOptions, Restrictions};
use crate::progress::Progress;
use crate::prompt::{self, Prompt};
use crate::session::{self, ExecutorKind, Session};

/// Positions computed between two writes: bounds memory, whatever the prompt's length.
const SLICE: usize = 64;

/// Write the logits of every position as safetensors, to compare with another engine
///
/// The file holds `logits`, float32 (positions, vocabulary), and `ids`, int64 (positions).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The model: a path, a preset, or org/name[@revision]
    #[arg(value_name = "MODEL")]
    model: String,
    /// Token ids, separated by commas; `-` reads them from standard input
    #[arg(long, value_name = "IDS", conflicts_with = "prompt", required_unless_present = "prompt")]
    ids: Option<String>,
    /// Text, tokenised as it is; `-` reads standard input
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Where to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// What computes them on the CPU [default: program]
    #[arg(long, value_enum)]
    executor: Option<ExecutorKind>,
    /// Take one step for each position, as `generate` does, instead of computing them together; on a GPU by this executor
    /// [default: auto]
    #[arg(long, value_enum, value_name = "EXECUTOR", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    decode: Option<StepExecutor>,
    /// Worker threads of the program executor [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = crate::arguments::worker_count, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    placement: PlacementOptions,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let input = Prompt::read(arguments.prompt.as_deref(), arguments.ids.as_deref())?;
    let (executor, threads) = (arguments.executor, arguments.threads);
    let cpu = executor.map(|_| "--executor").or(threads.map(|_| "--threads"));
    let gpu = match arguments.decode {
        None | Some(StepExecutor::Auto) => None,
        Some(StepExecutor::Graph) => Some("--decode=graph"),
        Some(StepExecutor::Mega) => Some("--decode=mega"),
    };
    let mut session = Session::open(&arguments.model, &arguments.placement, Restrictions { cpu, gpu })?;
    let model = Arc::clone(&session.model);
    let ids = match input {
        Prompt::Ids(ids) => ids,
        Prompt::Text(text) => prompt::raw_tokens(&model, &text)?,
    };
    let vocab_size = model.config.vocab_size;
    if ids.is_empty() {
        return Err(usage("there are no tokens to compute logits of"));
    }
    if let Some(token) = ids.iter().find(|&&token| token as usize >= vocab_size) {
        return Err(usage(format!("token {token} is not in the model's vocabulary of {vocab_size}")));
    }
    session::check_positions(&model, "the input", ids.len())?;
    let mut backend: Box<dyn Backend + '_> = match executor {
        Some(ExecutorKind::Reference) => {
            session.fill_dummy()?;
            Box::new(ReferenceBackend::new(&session.model, ids.len())?)
        }
        _ => session.backend(threads, ids.len(), 1, arguments.decode.map_or(Executor::Graph, Executor::from))?,
    };

    let interruptible = Interruptible::begin()?;
    let mut writer = Writer::create(&arguments.out, &ids, vocab_size)?;
    let mut progress = Progress::count("logits");
    let mut done = 0;
    let together = if arguments.decode.is_some() { 1 } else { SLICE };
    for slice in ids.chunks(together) {
        let logits = match slice {
            &[token] if arguments.decode.is_some() => backend.decode(token),
            _ => backend.prefill(slice, LogitsOf::All, &mut |_| true),
        };
        writer.write(logits.map_err(|error| anyhow::anyhow!(error))?)?;
        if interruptible.is_cancelled() {
            return Err(Interrupted.into());
        }
        done += slice.len();
        progress.set(done as u64, ids.len() as u64);
    }
    writer.finish()?;
    output::note(&format!("wrote ({done}, {vocab_size}) float32 logits to `{}`", arguments.out.display()));
    Ok(())
}

/// A safetensors file that is written row by row: beside its final name, and moved there when complete; or, into
/// what is there and is no regular file (a pipe, `/dev/stdout`), directly.
struct Writer {
    path: PathBuf,
    partial: Option<PathBuf>,
    file: BufWriter<File>,
}

impl Writer {
    fn create(path: &Path, ids: &[u32], vocab_size: usize) -> anyhow::Result<Self> {
        let (n, ids_bytes) = (ids.len(), ids.len() * size_of::<i64>());
        let logits_bytes = n.checked_mul(vocab_size).and_then(|n| n.checked_mul(size_of::<f32>()));
        let end = logits_bytes.and_then(|bytes| bytes.checked_add(ids_bytes)).context("the logits are too large")?;
        let mut header = serde_json::json!({
            "ids": { "dtype": "I64", "shape": [n], "data_offsets": [0, ids_bytes] },
            "logits": { "dtype": "F32", "shape": [n, vocab_size], "data_offsets": [ids_bytes, end] },
        })
        .to_string();
        // The format wants the data to begin at a multiple of 8.
        header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
        // The file that a link leads to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let partial = if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            None
        } else {
            let name = path.file_name().with_context(|| format!("`{}` is not a file name", path.display()))?;
            let mut name = name.to_owned();
            name.push(".partial");
            Some(path.with_file_name(name))
        };
        let written = partial.as_ref().unwrap_or(&path);
        let file = File::create(written).with_context(|| format!("cannot write `{}`", written.display()))?;
        let mut writer = Self { path, partial, file: BufWriter::new(file) };
        let ids: Vec<u8> = ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()).collect();
        for bytes in [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &ids] {
            writer.bytes(bytes)?;
        }
        Ok(writer)
    }

    fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    fn write(&mut self, logits: &[f32]) -> anyhow::Result<()> {
        let bytes: Vec<u8> = logits.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(&bytes)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let moved = self.file.flush().and_then(|()| match &self.partial {
            Some(partial) => std::fs::rename(partial, &self.path),
            None => Ok(()),
        });
        moved.with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // After `finish` there is nothing by that name.
            let _ = std::fs::remove_file(partial);
        }
    }
}
