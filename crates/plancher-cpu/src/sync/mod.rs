//! The protocol between workers: dependency counters that are signalled by release and waited for by acquire.
//!
//! Everything is generic over a [`Platform`], so that the very same code runs on the machine's atomics, under loom
//! and under shuttle, and so that deliberately broken platforms show that the models would notice.

mod counters;
mod patience;
mod platform;

pub use counters::{Counters, WaitError};
pub use patience::Patience;
pub use platform::{Machine, Platform, Word};
