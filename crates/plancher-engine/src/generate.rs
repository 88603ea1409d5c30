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
    /// Time of the decode steps, sampling included; with a token loop of the backend's, from the first token to the last.
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
/// between tokens and between chunks of the prompt; `events` receives the text as it comes. Where the backend has a
/// token loop of its own, it chooses the tokens, unless log-probabilities are asked for.
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
    let mut timing = Timing::default();

    let started = Instant::now();
    let total = request.prompt.len();
    let prefill = sequence.prefill(&request.prompt, &mut |done| {
        events(Event::Prefill { done, total });
        !cancel.load(Ordering::Relaxed)
    })?;
    timing.prefill = started.elapsed();
    timing.prompt_computed = prefill.computed;
    timing.prompt_reused = prefill.reused;

    let most = request.max_tokens.unwrap_or(usize::MAX);
    let in_loop = prefill.complete
        && most > 0
        && request.logprobs.is_none()
        && sequence.start_loop(request.sampling, &request.prompt, most, &request.end_tokens)?;
    let mut run = Run {
        request,
        chooser: if in_loop { Chooser::Backend } else { Chooser::Host(Box::new(sampler)) },
        stream: TextStream::new(&request.stop),
        timing,
        ids: Vec::new(),
        logprobs: Vec::new(),
    };
    let finished =
        if prefill.complete { run.decode(sequence, token_bytes, cancel, events) } else { Ok(FinishReason::Cancelled) };
    // Whatever happened, the cache must hold what the sequence says.
    let stopped = if in_loop { sequence.stop_loop() } else { Ok(()) };
    let finish_reason = finished?;
    stopped?;
    events(Event::Text(run.stream.finish()));
    let Run { stream, ids, logprobs, timing, .. } = run;
    Ok(Generation { text: stream.text().to_owned(), ids, finish_reason, logprobs, timing })
}

/// Who chooses the tokens.
enum Chooser {
    /// The sampler here, from logits that the backend hands over.
    Host(Box<Sampler>),
    /// The backend's own loop.
    Backend,
}

/// A generation after its prompt.
struct Run<'a> {
    request: &'a Request,
    chooser: Chooser,
    stream: TextStream,
    timing: Timing,
    ids: Vec<u32>,
    logprobs: Vec<TokenLogprobs>,
}

impl Run<'_> {
    /// Decodes until something ends it.
    fn decode(
        &mut self,
        sequence: &mut Sequence,
        token_bytes: &mut dyn FnMut(u32) -> Vec<u8>,
        cancel: &AtomicBool,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<FinishReason> {
        let capacity = sequence.backend().capacity();
        let mut first_token: Option<Instant> = None;
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Ok(FinishReason::Cancelled);
            }
            if self.request.max_tokens.is_some_and(|max| self.ids.len() >= max) {
                return Ok(FinishReason::Length);
            }
            let last = self.ids.last().copied();
            if last.is_some() && sequence.tokens().len() >= capacity {
                return Ok(FinishReason::Length);
            }
            let started = Instant::now();
            let token = self.choose(sequence, last)?;
            if last.is_some() {
                self.timing.steps += 1;
                self.timing.context_sum += sequence.tokens().len() as u64;
                match (&self.chooser, first_token) {
                    // The device goes on while the host shows a token: only all of the time is the steps' time.
                    (Chooser::Backend, Some(first)) => self.timing.decode = first.elapsed(),
                    _ => self.timing.decode += started.elapsed(),
                }
            }
            first_token.get_or_insert_with(Instant::now);
            if self.request.end_tokens.contains(&token) {
                return Ok(FinishReason::Stop);
            }
            self.ids.push(token);
            if let Some(top) = self.request.logprobs {
                self.logprobs.push(logprobs(sequence.last_logits(), token, top));
            }
            events(Event::Text(self.stream.push(&token_bytes(token))));
            if self.stream.is_stopped() {
                return Ok(FinishReason::Stop);
            }
        }
    }

    /// The token that follows, after `last` was appended where there is one.
    fn choose(&mut self, sequence: &mut Sequence, last: Option<u32>) -> Result<u32> {
        let chosen = match &mut self.chooser {
            Chooser::Backend => sequence.next_of_loop(last)?,
            Chooser::Host(sampler) => {
                if let Some(last) = last {
                    sampler.observe(last);
                    sequence.decode(last)?;
                }
                sampler.sample(sequence.last_logits_mut())
            }
        };
        chosen.ok_or_else(|| EngineError::NotFinite { position: sequence.tokens().len().saturating_sub(1) })
    }
}
