//! `generate`: one prompt in, its continuation out, and what it cost.

use std::time::Instant;

use clap::Args;
use plancher_engine::{EngineError, Executor, FinishReason, Generation, Request};
use plancher_model::{ChatMessage, Model};
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::arguments::{ModelOption, RunOptions, SamplingOptions};
use crate::failure::usage;
use crate::prompt::{self, Prompt};
use crate::session::{self, Session};
use crate::{output, table};

/// Continue a prompt and say how far from the floor it ran
///
/// The prompt is an argument, standard input, or token ids. With a chat template in the model it becomes a user's
/// message, else it is continued as it is. The answer appears on standard output as it is produced; then one line on
/// standard error gives its speed, the bytes read a token, and the floor: the time those bytes take at the rate at
/// which this machine can only read them.
///
/// Without sampling options the model's own apply (`generation_config.json`), and without those the most likely token
/// is taken.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Arguments {
    /// The text to continue; `-` or nothing reads standard input
    #[arg(value_name = "PROMPT", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids instead of text, separated by commas; `-` reads them from standard input
    #[arg(long, value_name = "IDS", conflicts_with_all = ["chat", "raw", "system"])]
    ids: Option<String>,
    #[command(flatten)]
    model: ModelOption,
    /// Send the prompt through the model's chat template [default when the model has one]
    #[arg(long, conflicts_with = "raw")]
    chat: bool,
    /// Continue the prompt as it is
    #[arg(long)]
    raw: bool,
    /// System message before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Stop after N tokens [default: at an end token or the end of the context]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    max_tokens: Option<usize>,
    /// Go on after end tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Show the log-probabilities of each token and of the N most likely ones
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    #[command(flatten)]
    run: RunOptions,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingOptions,
}

/// What `--json` prints. Rates and times are null when fewer than two tokens were produced.
#[derive(Serialize)]
struct Output<'a> {
    text: &'a str,
    ids: &'a [u32],
    prompt_ids: &'a [u32],
    finish_reason: FinishReason,
    tokens_per_s: Option<f64>,
    bytes_per_token: Option<u64>,
    gb_per_s: Option<f64>,
    ceiling_gb_per_s: Option<f64>,
    floor_ms: Option<f64>,
    measured_ms: Option<f64>,
    prompt_tokens_per_s: Option<f64>,
    time_to_first_token_ms: f64,
    /// What ran the decode steps on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenEntry>>,
}

/// A token with its log-probability.
#[derive(Serialize)]
struct TokenEntry {
    id: u32,
    text: String,
    logprob: f32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top: Vec<TokenEntry>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let prompt = Prompt::read(arguments.prompt.as_deref(), arguments.ids.as_deref())?;
    let mut session = Session::open(&arguments.model.model, &arguments.run.placement, arguments.run.restrictions())?;
    let request = request(arguments, &session.model, prompt)?;
    let context = session::context(&session.model, arguments.run.context)?;
    fits(&session.model, request.prompt.len(), context)?;
    let mut sequence = session.sequence(&arguments.run, context)?;
    let model = session.model;

    let answer = answer::produce(&model, &mut sequence, &request, started, !arguments.json)?;
    let generation = &answer.generation;
    if arguments.json {
        return output::json(&json(&model, &request, &answer));
    }
    if model.tokenizer.is_none() {
        output::line(&generation.ids.iter().map(u32::to_string).collect::<Vec<_>>().join(","))?;
    } else if !generation.text.is_empty() && !generation.text.ends_with('\n') {
        output::text("\n")?;
    }
    if arguments.logprobs.is_some() {
        output::text(&logprob_table(&model, generation))?;
    }
    output::note(&answer.summary());
    Ok(())
}

/// Refuses a prompt longer than `context` before the weights are packed for it.
fn fits(model: &Model, prompt: usize, context: usize) -> anyhow::Result<()> {
    if prompt <= context {
        return Ok(());
    }
    let most = model.config.context_length;
    let hint = if prompt < most { format!("; `--context` can be up to {most}") } else { String::new() };
    Err(anyhow::anyhow!(EngineError::PromptTooLong { prompt, context }.to_string() + &hint))
}

fn request(arguments: &Arguments, model: &Model, prompt: Prompt) -> anyhow::Result<Request> {
    let has_template = model.chat_template.is_some();
    let chat = arguments.chat || arguments.system.is_some() || (has_template && !arguments.raw);
    let prompt = match prompt {
        Prompt::Ids(ids) => ids,
        Prompt::Text(text) if chat => {
            let system = arguments.system.iter().map(|text| ChatMessage::new("system", text));
            let messages: Vec<ChatMessage> = system.chain([ChatMessage::new("user", text)]).collect();
            prompt::chat_tokens(model, &messages)?
        }
        Prompt::Text(text) => prompt::raw_tokens(model, &text)?,
    };
    if !arguments.stop.is_empty() && model.tokenizer.is_none() {
        return Err(usage("`--stop` needs a model with a tokenizer"));
    }
    Ok(Request {
        prompt,
        max_tokens: arguments.max_tokens,
        sampling: arguments.sampling.resolve(&model.generation),
        stop: arguments.stop.clone(),
        end_tokens: if arguments.ignore_eos { Vec::new() } else { prompt::end_tokens(model) },
        logprobs: arguments.logprobs,
    })
}

fn json<'a>(model: &Model, request: &'a Request, answer: &'a Answer) -> Output<'a> {
    let Answer { generation, report, .. } = answer;
    let timing = &generation.timing;
    let prompt_seconds = timing.prefill.as_secs_f64();
    Output {
        text: &generation.text,
        ids: &generation.ids,
        prompt_ids: &request.prompt,
        finish_reason: generation.finish_reason,
        tokens_per_s: report.as_ref().map(|report| report.tokens_per_s),
        bytes_per_token: report.as_ref().map(|report| report.bytes_per_token),
        gb_per_s: report.as_ref().map(|report| report.gb_per_s),
        ceiling_gb_per_s: report.as_ref().map(|report| report.ceiling_gb_per_s),
        floor_ms: report.as_ref().map(|report| report.floor_ms),
        measured_ms: report.as_ref().map(|report| report.measured_ms),
        prompt_tokens_per_s: (prompt_seconds > 0.0).then(|| timing.prompt_computed as f64 / prompt_seconds),
        time_to_first_token_ms: 1e3 * answer.first_token,
        executor: answer.executor.map(Executor::name),
        logprobs: request.logprobs.map(|_| logprobs(model, generation)),
    }
}

fn logprobs(model: &Model, generation: &Generation) -> Vec<TokenEntry> {
    let token_text = |id| {
        let bytes = model.tokenizer.as_ref().map(|tokenizer| tokenizer.token_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let entry = |id, logprob, top| TokenEntry { id, text: token_text(id), logprob, top };
    let entries = generation.logprobs.iter().map(|token| {
        let top = token.top.iter().map(|&(id, logprob)| entry(id, logprob, Vec::new())).collect();
        entry(token.token, token.logprob, top)
    });
    entries.collect()
}

fn logprob_table(model: &Model, generation: &Generation) -> String {
    let show = |entry: &TokenEntry| format!("{} {:?} {:.4}", entry.id, entry.text, entry.logprob);
    let rows: Vec<Vec<String>> = logprobs(model, generation)
        .iter()
        .map(|entry| vec![show(entry), entry.top.iter().map(show).collect::<Vec<_>>().join(", ")])
        .collect();
    format!("\n{}", table::markdown(&["token", "most likely"], 2, &rows))
}
