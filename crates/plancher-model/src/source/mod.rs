//! Where models are found: a name on the command line to a path, and what is not there yet fetched.
//!
//! A name is a path, a preset, or a hub repository, `org/name[@revision][:file]`, where `file` is a GGUF file or
//! its quantisation (`:Q4_K_M`). Repositories live in the Hugging Face cache, in its own layout, so that other
//! tools see them; presets in `$XDG_CACHE_HOME/plancher/models`, since a preset that came from a package has no
//! revision of the hub to be filed under.

mod cache;
mod download;
mod hub;
mod name;
mod package;
mod preset;
mod pull;
mod resolve;
mod settings;
mod store;

pub(crate) use name::is_shard;
pub use name::{ModelName, RepositoryName};
pub use preset::{PRESETS, Preset};
pub use pull::{PullEvent, Pulling, pull};
pub use resolve::resolve;
pub use settings::SourceSettings;
#[cfg(test)]
pub(crate) use store::hex;
