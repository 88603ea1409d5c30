//! Running the program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A golden checkpoint, relative to where the program runs.
pub(crate) const LLAMA: &str = "tests/golden/llama-gqa-tied";

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Standard output of a run that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.stderr);
        self.stdout
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON on standard output")
    }

    /// The message of a run that must have failed with `status`: one line, and nothing that looks like a result.
    #[track_caller]
    pub(crate) fn error(self, status: i32) -> String {
        assert_eq!((self.status, self.stdout.as_str()), (status, ""), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        self.stderr.trim_end().to_owned()
    }
}

/// The workspace's root, in which the program runs.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program with a clean environment, in which no GPU is to be seen.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plancher"));
    command
        .args(arguments)
        .current_dir(root())
        .env("NO_COLOR", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("CUDA_VISIBLE_DEVICES", "");
    for name in ["PLANCHER_MODEL", "PLANCHER_LOG"] {
        command.env_remove(name);
    }
    command
}

/// Runs the program with nothing on standard input.
pub(crate) fn run(arguments: &[&str]) -> Run {
    run_with_input(arguments, "")
}

/// Runs the program with `input` on standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &str) -> Run {
    finish(&mut command(arguments), input)
}

/// Runs a prepared program with nothing on standard input.
pub(crate) fn output(command: &mut Command) -> Run {
    finish(command, "")
}

fn finish(command: &mut Command, input: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input may have closed it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { status: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

/// Replaces every number that depends on the machine's speed by `#`.
pub(crate) fn mask_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let is_number = c.is_ascii_digit() || (in_number && c == '.');
        if is_number && !in_number {
            out.push('#');
        }
        if !is_number {
            out.push(c);
        }
        in_number = is_number;
    }
    out
}
