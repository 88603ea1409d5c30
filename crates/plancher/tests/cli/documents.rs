//! What the program says about itself: help, manual pages, completions.

use crate::common::run;

#[test]
fn help_is_as_reviewed() {
    insta::assert_snapshot!("help", run(&["--help"]).ok());
    for command in
        ["generate", "chat", "bench", "doctor", "inspect", "kernels", "lab", "logits", "perplexity", "program", "pull"]
    {
        insta::assert_snapshot!(format!("help_{command}"), run(&[command, "--help"]).ok());
    }
}

#[test]
fn manual_pages_and_completions_know_every_command() {
    let page = run(&["man"]).ok();
    let directory = tempfile::tempdir().expect("a directory");
    run(&["man", "--out", directory.path().to_str().expect("UTF-8")]).ok();
    for command in
        ["generate", "chat", "bench", "doctor", "inspect", "kernels", "lab", "logits", "perplexity", "program", "pull"]
    {
        assert!(page.contains(&format!("plancher\\-{command}(1)")), "{command}");
        assert!(directory.path().join(format!("plancher-{command}.1")).is_file(), "{command}");
        for shell in ["bash", "zsh", "fish"] {
            assert!(run(&["completions", shell]).ok().contains(command), "{shell} {command}");
        }
    }
    assert_eq!(run(&["--version"]).ok(), format!("plancher {}\n", env!("CARGO_PKG_VERSION")));
}
