//! Requests: tokens in, tokens out. Sampling, stop conditions, the conversation's KV cache, and the measurement of
//! every run against its floor. What computes logits is a [`Backend`].

mod backend;

pub use backend::{Backend, LogitsOf};
