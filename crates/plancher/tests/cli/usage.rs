//! Wrong input: one line that names what was wrong, and the exit status.

use crate::common::{LLAMA, run};

#[test]
fn values_out_of_range_are_named_with_their_flag() {
    let generate = |flag: &str, value: &str| run(&["generate", "-m", LLAMA, "--ids", "1", flag, value]).error(2);
    let messages = [
        generate("--temperature", "nan"),
        generate("--temperature", "-1"),
        generate("--temperature", "inf"),
        generate("--temperature", "warm"),
        generate("--top-p", "0"),
        generate("--top-p", "1.5"),
        generate("--min-p", "-0.1"),
        generate("--min-p", "NaN"),
        generate("--repetition-penalty", "0"),
        generate("--top-k", "-1"),
        generate("--seed", "x"),
        generate("--threads", "0"),
        generate("--threads", "257"),
        generate("--context", "0"),
        generate("--context", "100000000"),
        generate("--max-tokens", "-1"),
        generate("--temp", "1"),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn negative_numbers_are_named_with_their_flag() {
    let bench = |flag: &str| run(&["bench", "-m", LLAMA, flag, "-1"]).error(2);
    let perplexity = |flag: &str| run(&["perplexity", LLAMA, "Cargo.toml", flag, "-1"]).error(2);
    let messages = [
        bench("-p"),
        bench("-n"),
        bench("-pg"),
        bench("-d"),
        bench("-r"),
        bench("-b"),
        bench("-t"),
        perplexity("-c"),
        perplexity("--chunks"),
        perplexity("-t"),
        run(&["logits", LLAMA, "--ids", "1", "--out", "/proc/nothing/x", "-t", "-1"]).error(2),
        run(&["doctor", "-t", "-1"]).error(2),
        run(&["kernels", "compile", "-t", "-1"]).error(2),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn requests_that_make_no_sense_say_what_would() {
    let messages = [
        run(&["generate", "-m", LLAMA, "hello"]).error(2),
        run(&["generate", "-m", LLAMA, "--ids", "1,x"]).error(2),
        run(&["generate", "-m", LLAMA, "--ids", ""]).error(1),
        run(&["generate", "-m", LLAMA, "--ids", "512"]).error(1),
        run(&["generate", "-m", LLAMA, "--ids", "1", "--stop", "x"]).error(2),
        run(&["generate", "-m", LLAMA, "--ids", "1", "prompt"]).error(2),
        run(&["generate", "-m", LLAMA, "--raw", "--chat", "x"]).error(2),
        run(&["chat", "-m", LLAMA]).error(2),
        run(&["bench", "-m", LLAMA, "-p", "0", "-n", "0"]).error(2),
        run(&["bench", "-m", LLAMA, "-p", "5-"]).error(2),
        run(&["bench", "-m", LLAMA, "-p", "5-4"]).error(2),
        run(&["bench", "-m", LLAMA, "-pg", "5"]).error(2),
        run(&["bench", "-m", LLAMA, "-t", "0"]).error(2),
        run(&["bench", "-m", LLAMA, "-t", "2,257"]).error(2),
        run(&["bench", "-m", LLAMA, "-d", "100000"]).error(2),
        run(&["generate", "-m", LLAMA, "--ids", "1,2,3", "--context", "2"]).error(1),
        run(&["logits", LLAMA, "--ids", &vec!["1"; 2049].join(","), "--out", "/proc/nothing/x"]).error(2),
        run(&["perplexity", LLAMA, "--ids-file", "Cargo.toml", "--context", "3"]).error(2),
        run(&["perplexity", LLAMA]).error(2),
        run(&["logits", LLAMA, "--ids", "1"]).error(2),
        run(&["frobnicate"]).error(2),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let messages = [
        run(&["inspect", "tests/golden/nothing-here"]).error(1),
        run(&["logits", LLAMA, "--ids", "1,2", "--out", "/proc/nothing/x"]).error(1),
        run(&["perplexity", LLAMA, "--ids-file", "tests/golden/none.txt"]).error(1),
        run(&["bench", "-m", LLAMA, "-p", "8", "-n", "0", "--trace", "/proc/nothing/x"]).error(1),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
