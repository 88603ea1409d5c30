//! What the tests on a GPU share: the device, and the measuring process, which is this program too.

use std::time::Duration;

use plancher_cuda::{Compiler, Device};
use plancher_lab::engine::{ChildCommand, child_main};

/// Set for the measuring process.
const CHILD: &str = "PLANCHER_LAB_CHILD";

/// How long the measuring process may be silent. A product of 8192 by the slowest version takes about a second.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// The first GPU with a compiler; nothing where there is none, unless `PLANCHER_REQUIRE_GPU` is set.
pub(crate) fn gpu() -> Option<(Device, Compiler)> {
    let open = || -> plancher_cuda::Result<_> { Ok((Device::open(0)?, Compiler::find()?)) };
    match open() {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var_os("PLANCHER_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// This program, started so that it runs only the test below.
pub(crate) fn child() -> ChildCommand {
    ChildCommand {
        program: std::env::current_exe().expect("this program has a path"),
        arguments: ["common::measuring_process", "--exact", "--nocapture"].map(str::to_owned).to_vec(),
        environment: vec![(CHILD.to_owned(), "1".to_owned())],
    }
}

#[test]
fn measuring_process() {
    if std::env::var_os(CHILD).is_some() {
        std::process::exit(child_main().into());
    }
}
