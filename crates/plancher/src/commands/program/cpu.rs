//! The programs that the CPU's workers run.

use plancher_cpu::kernels::{ATTENTION_CHUNK, Kernels, TILE_ROWS};
use plancher_cpu::physical_cores;
use plancher_model::Model;
use plancher_program::{Phase, Summary, Target, check, lower, schedule, summary};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    device: &'static str,
    /// A program that is not safe to run is not shown: the checker's finding is the command's error.
    checked: bool,
    decode: Summary,
    prefill: Summary,
}

/// Schedules and checks both programs of `model`.
pub(super) fn report(model: &Model, threads: Option<usize>) -> anyhow::Result<Report> {
    let kernels = Kernels::detect()?;
    let lowered = lower(&model.config, &model.weights)?;
    let workers = threads.unwrap_or_else(physical_cores);
    let of = |phase| -> anyhow::Result<Summary> {
        let target = Target { workers, tile_rows: TILE_ROWS, kv_chunk: ATTENTION_CHUNK, phase };
        let program = schedule(&lowered, target, &kernels)?;
        check(&program, &kernels)?;
        Ok(summary(&program))
    };
    let (decode, prefill) = (of(Phase::Decode)?, of(Phase::Prefill)?);
    Ok(Report { model: model.path.display().to_string(), device: "cpu", checked: true, decode, prefill })
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        format!("{}\n{}\nboth programs passed the checker\n", self.decode, self.prefill)
    }
}
