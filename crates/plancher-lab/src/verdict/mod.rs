//! Verdicts, computed from what was recorded and from nothing else: no GPU is asked, so that anybody can compute them again.

mod criterion;
mod estimate;
mod explanations;
mod point;
mod prediction;
mod ranking;
mod rightness;
mod sanitized;
mod statistics;

pub use criterion::{Outcome, Part, Status, criterion};
pub use estimate::Estimate;
pub use explanations::{Explained, explained, explanations, of_explanations};
pub use point::{MINIMUM_SAMPLES, below_floor, counts, datasheet_fraction, fraction, fraction_of, rate, rates, unit};
pub use prediction::{Held, expected, prediction};
pub use ranking::{best, fastest_first, point};
pub use rightness::{Rightness, rightness};
pub use sanitized::{Sanitized, Sanitizing, sanitized, sanitizing};
pub use statistics::{median, median_interval};
