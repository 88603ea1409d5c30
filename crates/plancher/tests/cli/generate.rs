//! `generate` on token ids: limits, samplers, JSON, and that the same input gives the same output.

use crate::common::{LLAMA, command, run, run_with_input};

fn ids(arguments: &[&str]) -> String {
    let mut all = vec!["generate", "-m", LLAMA, "--ids", "1,2,3,4,5", "-n", "12"];
    all.extend(arguments);
    run(&all).ok().trim_end().to_owned()
}

#[test]
fn greedy_ids_are_the_same_on_any_number_of_threads() {
    let one = ids(&["--threads", "1"]);
    assert_eq!(one.split(',').count(), 12, "{one}");
    assert_eq!(ids(&["--threads", "2"]), one);
    assert_eq!(ids(&["--threads", "3"]), one);
}

#[test]
fn a_seed_decides_what_is_drawn() {
    let draw = |seed: &str| ids(&["--temperature", "1.5", "--seed", seed]);
    assert_eq!(draw("7"), draw("7"));
    assert!((0..5).any(|seed: i32| draw(&seed.to_string()) != draw("7")));
    // Filters that leave one token make any temperature greedy.
    for filter in [["--top-k", "1"], ["--top-p", "0.000001"], ["--min-p", "1"]] {
        assert_eq!(ids(&["--temperature", "1.5", filter[0], filter[1]]), ids(&[]), "{filter:?}");
    }
}

#[test]
fn more_logprobs_than_tokens_are_all_of_them() {
    let table = run(&["generate", "-m", LLAMA, "--ids", "1", "-n", "1", "--logprobs", "100000"]).ok();
    let row = table.lines().last().expect("a row");
    assert_eq!(row.matches("\"\" -").count(), 513, "the token and the vocabulary of 512");
}

#[test]
fn json_has_every_documented_key() {
    let value = run(&["generate", "-m", LLAMA, "--ids", "1 2 3", "-n", "4", "--json", "--logprobs", "2"]).json();
    let keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = [
        "text",
        "ids",
        "prompt_ids",
        "finish_reason",
        "tokens_per_s",
        "bytes_per_token",
        "gb_per_s",
        "ceiling_gb_per_s",
        "floor_ms",
        "measured_ms",
        "prompt_tokens_per_s",
        "time_to_first_token_ms",
        "logprobs",
    ];
    assert_eq!(keys, expected);
    assert_eq!(value["prompt_ids"], serde_json::json!([1, 2, 3]));
    assert_eq!(value["finish_reason"], "length");
    assert_eq!(value["ids"].as_array().map(Vec::len), Some(4));
    let number = |key: &str| value[key].as_f64().expect("a number");
    // The floor is the bytes at the ceiling.
    let floor = number("bytes_per_token") / number("ceiling_gb_per_s") / 1e6;
    assert!((number("floor_ms") / floor - 1.0).abs() < 1e-9);
    let first = &value["logprobs"][0];
    assert_eq!(first["id"], value["ids"][0]);
    assert_eq!(first["top"].as_array().map(Vec::len), Some(2));
    assert_eq!(first["top"][0]["logprob"], first["logprob"]);
}

#[test]
fn ids_may_come_from_standard_input() {
    let piped = run_with_input(&["generate", "-m", LLAMA, "--ids", "-", "-n", "12"], "1,2,3\n4 5\n").ok();
    assert_eq!(piped.trim_end(), ids(&[]));
}

#[test]
fn nothing_is_generated_when_nothing_is_asked_for() {
    let value = run(&["generate", "-m", LLAMA, "--ids", "1", "-n", "0", "--json"]).json();
    assert_eq!((&value["ids"], &value["finish_reason"]), (&serde_json::json!([]), &serde_json::json!("length")));
    assert_eq!(value["tokens_per_s"], serde_json::Value::Null);
}

#[test]
fn the_context_bounds_prompt_and_answer() {
    let value = run(&["generate", "-m", LLAMA, "--ids", "1,2,3", "--context", "5", "--ignore-eos", "--json"]).json();
    assert_eq!(value["finish_reason"], "length");
    assert_eq!(value["ids"].as_array().map(Vec::len), Some(3));
    let error = run(&["generate", "-m", LLAMA, "--ids", "1,2,3", "--context", "2"]).error(1);
    assert_eq!(error, "plancher: the prompt has 3 tokens but the context holds 2; `--context` can be up to 2048");
}

#[test]
fn statistics_go_to_standard_error_unless_quiet() {
    let arguments = ["generate", "-m", LLAMA, "--ids", "1,2,3", "-n", "3"];
    let plain = run(&arguments);
    assert!(plain.stderr.contains("of the floor's speed"), "{}", plain.stderr);
    assert_eq!(plain.stderr.lines().count(), 1);
    let quiet = run(&[&arguments[..], &["-q"]].concat());
    assert_eq!((quiet.stderr.as_str(), quiet.stdout), ("", plain.stdout));
}

#[test]
#[cfg(unix)]
fn a_reader_that_leaves_ends_the_program_quietly() {
    use std::process::Stdio;
    let mut child = command(&["man"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
