//! Decoding on the GPU: one step of up to 8 sequences is a CUDA graph of five kernels a layer, each of which reads its
//! weights once and starts reading them while the kernel before it still ends.
//!
//! - `embed`: the tokens' rows become residual streams (f32);
//! - `matvec`, four times a layer and once for the head: norm, product, bias, activation, residual;
//! - `attention_decode`: head norms, rotary embedding, append to the paged cache, attention;
//! - `choose` or `choose_greedy`: the next tokens, where the loop runs on the device.
//!
//! Steps of one sequence may instead be the megakernel's ([`Executor`], `crate::mega`), on the same weights, cache and
//! settings.
//!
//! A step of more sequences than `matvec` takes is put together from matrix products as prefill's is (`wide`).
//!
//! The arithmetic of a sequence does not depend on how many others (of up to 8) are in the step, nor on earlier steps' timing: the
//! same tokens give the same bits. The host either gives tokens and gets logits ([`Decoder::decode`]), or starts a loop
//! that chooses tokens on the device and reads them as they come ([`Decoder::start`], [`Decoder::next_tokens`],
//! [`Decoder::stop`]), a few steps behind.

mod attention;
mod buffers;
mod decoder;
mod embed;
mod executor;
mod matvec;
mod persistent;
mod sampling;
mod shape;
mod step;
mod token_loop;
mod wide;

pub(crate) use attention::ATTENTION_DECODE;
pub use decoder::{DecodeOptions, Decoder};
pub(crate) use embed::EMBED;
pub use executor::Executor;
pub(crate) use matvec::MATVEC;
pub(crate) use sampling::SAMPLE;
pub use sampling::Sampling;
pub use token_loop::StepTimes;

use self::shape::Shape;
pub(crate) use self::step::Prepared;
