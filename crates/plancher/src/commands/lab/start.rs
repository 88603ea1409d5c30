//! `lab start`: a file to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use plancher_lab::{Dtype, Step};

use super::{operation, skeleton, step, text};
use crate::failure::usage;
use crate::output;

/// Write a skeleton of a step's kernel: its task, its signature, and how it is launched
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The step, by name or number
    #[arg(value_name = "STEP", value_parser = step)]
    step: &'static Step,
    /// Where to; `-` is standard output [default: the step's name with `.cu`]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The numbers, where the step has more than one kernel: `f32` or `bf16`
    #[arg(long, value_name = "TYPE", value_parser = text::dtype)]
    dtype: Option<Dtype>,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let step = arguments.step;
    let operation = operation(step)?;
    let dtypes = step.dtypes();
    let dtype = match arguments.dtype {
        Some(dtype) if !dtypes.contains(&dtype) && !dtypes.is_empty() => {
            let known = dtypes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(usage(format!("`--dtype` is {dtype}, but `{}` has {known}", step.id)));
        }
        Some(dtype) => dtype,
        None => dtypes.first().copied().unwrap_or(Dtype::F32),
    };
    let file = arguments.out.clone().unwrap_or_else(|| format!("{}.cu", step.id).into());
    let text = skeleton::text(step, operation, dtype, &file.display().to_string());
    if file == Path::new("-") {
        return Ok(output::shown(&text)?);
    }
    write_new(&file, &text)?;
    output::note(&format!("wrote `{0}`; judge it with `plancher lab check {1} {0}`", file.display(), step.id));
    Ok(())
}

/// A learner's work is never overwritten.
fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        anyhow::bail!("`{}` is there already, and is left as it is: name another with `--out`", file.display());
    }
    let cannot = || format!("cannot write `{}`", file.display());
    opened.with_context(cannot)?.write_all(text.as_bytes()).with_context(cannot)
}
