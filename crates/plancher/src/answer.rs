//! An answer as it is produced: progress while the prompt is computed, text as it comes, Ctrl-C for a clean end, and the
//! line that says what it cost.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plancher_engine::{DecodeReport, Event, Executor, Generation, Request, Sequence, generate, model_shape};
use plancher_model::Model;

use crate::interrupt::Interruptible;
use crate::progress::Progress;
use crate::{output, prompt};

/// What came out and what it took.
pub(crate) struct Answer {
    pub(crate) generation: Generation,
    /// Seconds from the command's or the turn's beginning to the first token.
    pub(crate) first_token: f64,
    /// Speed beside its floor; `None` when only one token, or none, came, or nobody would see it.
    pub(crate) report: Option<DecodeReport>,
    /// What ran the decode steps, where there was a choice.
    pub(crate) executor: Option<Executor>,
}

/// Generates, and with `print` shows the text as it comes. Times count from `started`.
pub(crate) fn produce(
    model: &Model,
    sequence: &mut Sequence,
    request: &Request,
    started: Instant,
    print: bool,
) -> anyhow::Result<Answer> {
    let interruptible = Interruptible::begin()?;
    let mut progress = Some(Progress::count("prompt"));
    let mut first_token = None;
    let mut printed: io::Result<()> = Ok(());
    let mut token_bytes = |token| prompt::shown_bytes(model, token);
    let mut events = |event: Event<'_>| match event {
        Event::Prefill { done, total } => {
            if let Some(progress) = &mut progress {
                progress.set(done as u64, total as u64);
            }
        }
        Event::Text(text) => {
            progress = None;
            first_token.get_or_insert_with(|| started.elapsed());
            if print && !text.is_empty() && printed.is_ok() {
                printed = output::text(text);
                if printed.is_err() {
                    // Nobody reads any more: the rest need not be computed.
                    interruptible.flag().store(true, Ordering::SeqCst);
                }
            }
        }
    };
    let generation = generate(sequence, request, &mut token_bytes, interruptible.flag(), &mut events)?;
    printed?;
    let first_token = first_token.unwrap_or_else(|| started.elapsed()).as_secs_f64();
    // Nobody sees the report of a quiet run that prints its text: the ceiling need not be measured.
    let report = if print && crate::logging::is_quiet() {
        None
    } else {
        let ceiling = sequence.read_ceiling()?;
        let storage = sequence.backend().storage();
        DecodeReport::of_generation(&model_shape(model), storage, &generation.timing, ceiling)?
    };
    Ok(Answer { generation, first_token, report, executor: sequence.backend().executor() })
}

impl Answer {
    /// The line on standard error.
    pub(crate) fn summary(&self) -> String {
        let (generation, timing) = (&self.generation, &self.generation.timing);
        let prompt_rate = timing.prompt_computed as f64 / timing.prefill.as_secs_f64().max(1e-9);
        let head = format!(
            "{} tokens ({}); prompt {} tokens, {} computed at {prompt_rate:.0} tokens/s, first token after {:.2} s",
            generation.ids.len(),
            generation.finish_reason.name(),
            timing.prompt_computed + timing.prompt_reused,
            timing.prompt_computed,
            self.first_token,
        );
        let Some(report) = self.report else { return head };
        let by = self.executor.map_or_else(String::new, |executor| format!(" by the {executor} executor,"));
        format!(
            "{head}; {:.1} tokens/s{by} reading {} a token = {:.1} of {:.1} GB/s; floor {:.2} ms, measured {:.2} ms: \
             {:.0} % of the floor's speed",
            report.tokens_per_s,
            output::bytes(report.bytes_per_token),
            report.gb_per_s,
            report.ceiling_gb_per_s,
            report.floor_ms,
            report.measured_ms,
            100.0 * report.fraction(),
        )
    }
}
