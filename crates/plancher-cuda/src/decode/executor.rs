//! What runs the steps of one sequence.

use std::fmt;

/// What runs the steps of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Executor {
    /// The megakernel where it is possible, else the graph.
    #[default]
    Auto,
    /// A CUDA graph of kernels, one replay a step.
    Graph,
    /// One persistent kernel, many steps a launch.
    Mega,
}

impl Executor {
    /// The word for it in options and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Graph => "graph",
            Self::Mega => "mega",
        }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
