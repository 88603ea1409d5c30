//! Running steps: a process of its own measures each, so that a kernel that faults or never ends takes only that one with it.

mod bounds;
mod check;
mod child;
mod date;
mod launches;
mod machine;
mod parent;
mod profile;
mod protocol;
mod run;
mod sanitize;
mod session;

pub use bounds::Bounds;
pub use check::{CheckOptions, CheckReport, LARGEST_FILE, check, dtypes, read};
pub use child::child_main;
pub use parent::ChildCommand;
pub use profile::{LaunchOptions, Launched, launch_only};
pub use run::{RunOptions, run_steps};
pub use sanitize::{Small, SmallOptions, launch_small};
