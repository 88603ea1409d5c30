//! Choosing the next token from logits.
//!
//! The order is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, draw. Top-p therefore looks at the
//! probabilities at temperature 1 of the tokens that top-k left. (Hugging Face applies the temperature first, so with
//! a temperature other than 1 its top-p keeps another set.) The repetition penalty covers the whole sequence, prompt
//! included, as Hugging Face's does: logits of tokens that occurred are divided by it when positive and multiplied by
//! it when negative.
//!
//! Ties go to the smaller token. The same parameters, seed and logits give the same tokens on every machine.

#![expect(clippy::inline_always, reason = "what vectors pass through must be one function: see `lanes`")]

mod candidates;
mod lanes;
mod logprobs;
mod mass;
mod params;
mod place;
mod random;
mod sample;
mod sampler;
mod whole;

pub use logprobs::{TokenLogprobs, log_sum_exp, logprobs};
pub use params::SamplingParams;
pub use random::Random;
pub use sampler::Sampler;
