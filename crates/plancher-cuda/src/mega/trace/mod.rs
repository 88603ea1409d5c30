//! What every worker did during one token, and where the time went: [`StepTrace`] reads what the kernel wrote,
//! [`Publications`] says who published what last, [`critical_path`] walks back from the end of the step through what
//! each thing on the way was waiting for, and [`Attribution`] adds it up against the floor.
//!
//! All of it is arithmetic on times: no GPU is needed.

mod attribution;
mod dependency;
mod layout;
mod path;
#[cfg(feature = "testing")]
pub mod simulate;

pub use attribution::{Attribution, MemoryView, PathRow, Reference, TOLERANCE, WorkerRow};
pub use dependency::{Place, Publication, Publications, Vector};
pub use layout::{Phases, StepTrace, Times, Traced, WorkerTrace, buffer_words};
pub use path::{Leg, Parts, Stretch, critical_path};

#[cfg(test)]
mod tests;
