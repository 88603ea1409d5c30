//! `bench --trace`: what each worker did during one token, as a file for Perfetto and as tables that add up to the
//! measured time; on the CPU of the program's threads, on a GPU of the megakernel's blocks, there also as a picture.

mod chrome;
mod cpu;
mod events;
mod mega;
mod picture;
mod table;

use std::path::{Path, PathBuf};

pub(super) use cpu::run as cpu;
pub(super) use mega::run as mega;

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    /// Traces, and pictures by their ending.
    pub(super) traces: &'a [PathBuf],
    /// The tables as JSON.
    pub(super) table: Option<&'a Path>,
}

/// Whether a file is to be a picture.
pub(super) fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}
