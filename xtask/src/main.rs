//! Project chores that need more than a shell line: `cargo xtask evidence` recomputes every published figure from
//! the raw samples under `evidence/`, `cargo xtask test` runs every test, `cargo xtask kernels` compiles every GPU
//! kernel, and `cargo xtask code-hash` prints the hash that ties a figure to its code.

mod code_hash;
mod evidence;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask test
           fetch the test data and run every test
       cargo xtask kernels
           compile every GPU kernel for every architecture that it is for, without a GPU;
           fails on spills beyond a file's budget and on missing instructions
       cargo xtask evidence [--check | --write]
           print `name value unit` for every figure, from the raw samples;
           --check fails when a record breaks a rule or README differs from the evidence;
           --write brings README's tables up to date
       cargo xtask code-hash CRATE...
           the hash of the sources of these crates, as evidence records it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let outcome = match arguments.as_slice() {
        ["test"] => test::run(&root),
        ["kernels"] => test::kernels(&root),
        ["evidence"] => evidence::run(&root, evidence::Mode::Print),
        ["evidence", "--check"] => evidence::run(&root, evidence::Mode::Check),
        ["evidence", "--write"] => evidence::run(&root, evidence::Mode::Write),
        ["code-hash", crates @ ..] if !crates.is_empty() => {
            code_hash::of_crates(&root, crates).map(|hash| println!("{hash}"))
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
