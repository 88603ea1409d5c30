//! Drawings and pages as text: what `floor`, `lab` and traces show of themselves. Nothing is loaded from elsewhere.

pub(crate) mod bars;
pub(crate) mod chart;
pub(crate) mod page;
