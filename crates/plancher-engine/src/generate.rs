//! One request from prompt to finished text, handed out as it comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::sampling::{Sampler, SamplingParams, TokenLogprobs, logprobs};
use crate::{EngineError, Result, Sequence, TextStream};

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// Stop after this many tokens; `None` goes on until an end token or the end of the context.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Texts that end the generation; they are not part of the result.
    pub stop: Vec<String>,
    /// Tokens that end the generation; they are not part of the result. Empty to ignore them.
    pub end_tokens: Vec<u32>,
    /// Report the log-probabilities of the chosen and of this many most likely tokens.
    pub logprobs: Option<usize>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// `max_tokens`, or the end of the context.
    Length,
    /// The caller asked.
    Cancelled,
}

impl FinishReason {
    /// The word used in messages and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What happens during a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// `done` of `total` prompt tokens are in the cache.
    Prefill {
        /// Tokens done.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// Text to append to what was shown; it may be empty while part of a character or of a stop string is held back.
    Text(&'a str),
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The text, stop string and end token excluded.
    pub text: String,
    /// The tokens; with a stop string, those that formed it are included.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// One entry a token when asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// What it took.
    pub timing: Timing,
}

/// What a generation took. Showing the text is not included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Prompt tokens that were computed.
    pub prompt_computed: usize,
    /// Prompt tokens found in the cache.
    pub prompt_reused: usize,
    /// Time of the prompt's computation.
    pub prefill: Duration,
    /// Decode steps: one a token, less the first, which comes from the prompt's logits.
    pub steps: usize,
    /// Time of the decode steps, sampling included.
    pub decode: Duration,
    /// Sum over steps of the positions attended to.
    pub context_sum: u64,
}

impl Timing {
    /// Mean positions attended to by a decode step; 0 without any.
    #[must_use]
    pub fn mean_context(&self) -> usize {
        self.context_sum.checked_div(self.steps as u64).unwrap_or(0) as usize
    }
}

/// Generates. `token_bytes` gives the bytes of a generated token, in order of generation; `cancel` is looked at
/// between tokens and between chunks of the prompt; `events` receives the text as it comes.
///
/// # Errors
/// When a setting is out of range, the prompt is empty, too long or has unknown tokens, or a step fails.
pub fn generate(
    sequence: &mut Sequence,
    request: &Request,
    token_bytes: &mut dyn FnMut(u32) -> Vec<u8>,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Generation> {
    let mut sampler = Sampler::new(request.sampling)?;
    request.prompt.iter().for_each(|&token| sampler.observe(token));
    let mut stream = TextStream::new(&request.stop);
    let mut timing = Timing::default();
    let (mut ids, mut all_logprobs) = (Vec::new(), Vec::new());

    let started = Instant::now();
    let total = request.prompt.len();
    let prefill = sequence.prefill(&request.prompt, &mut |done| {
        events(Event::Prefill { done, total });
        !cancel.load(Ordering::Relaxed)
    })?;
    timing.prefill = started.elapsed();
    timing.prompt_computed = prefill.computed;
    timing.prompt_reused = prefill.reused;

    let capacity = sequence.backend().capacity();
    let finish_reason = loop {
        if !prefill.complete || cancel.load(Ordering::Relaxed) {
            break FinishReason::Cancelled;
        }
        if request.max_tokens.is_some_and(|max| ids.len() >= max) {
            break FinishReason::Length;
        }
        let started = Instant::now();
        if let Some(&token) = ids.last() {
            if sequence.tokens().len() >= capacity {
                break FinishReason::Length;
            }
            sequence.decode(token)?;
            timing.steps += 1;
            timing.context_sum += sequence.tokens().len() as u64;
        }
        let position = sequence.tokens().len() - 1;
        let token = sampler.sample(sequence.last_logits()).ok_or(EngineError::NotFinite { position })?;
        if !ids.is_empty() {
            timing.decode += started.elapsed();
        }
        if request.end_tokens.contains(&token) {
            break FinishReason::Stop;
        }
        sampler.observe(token);
        ids.push(token);
        if let Some(top) = request.logprobs {
            all_logprobs.push(logprobs(sequence.last_logits(), token, top));
        }
        events(Event::Text(stream.push(&token_bytes(token))));
        if stream.is_stopped() {
            break FinishReason::Stop;
        }
    };
    events(Event::Text(stream.finish()));
    Ok(Generation { text: stream.text().to_owned(), ids, finish_reason, logprobs: all_logprobs, timing })
}
