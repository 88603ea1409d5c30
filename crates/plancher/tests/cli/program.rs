//! `program`: what would run, told without running it.

use crate::common::{LLAMA, run};

const LLAMA_1B: [&str; 6] = ["program", "llama-3.2-1b", "--load-format", "dummy", "--device", "cuda"];

#[test]
fn without_a_gpu_the_program_is_an_h200s_and_says_so() {
    let plain = run(&LLAMA_1B);
    let note =
        "planned for an H200 (132 multiprocessors, 232448 bytes of shared memory a block): no NVIDIA GPU was found\n";
    assert_eq!(plain.stderr, note);
    let text = plain.ok();
    let quiet = run(&[&LLAMA_1B[..], &["-q"]].concat());
    assert_eq!((quiet.stderr.as_str(), &quiet.stdout), ("", &text));
    insta::assert_snapshot!(text);
}

#[test]
fn another_gpu_is_described_by_two_numbers() {
    let small = ["--multiprocessors", "24", "--shared-memory", "101376"];
    let run = run(&["program", LLAMA, small[0], small[1], small[2], small[3]]);
    assert_eq!(run.stderr, "", "nothing is assumed");
    insta::assert_snapshot!(run.ok());
}

#[test]
fn one_number_changes_the_gpu_that_is_assumed() {
    let run = run(&[&LLAMA_1B[..], &["--multiprocessors", "64"]].concat());
    assert!(run.stderr.starts_with("planned for an H200 (64 multiprocessors, 232448 bytes"), "{}", run.stderr);
    assert!(run.ok().contains("like NVIDIA H200: 64 multiprocessors"));
}

#[test]
fn json_adds_up() {
    let value = run(&[&LLAMA_1B[..], &["--json"]].concat()).json();
    assert_eq!(value["checked"], true);
    let program = &value["program"];
    let workers = program["by_worker"].as_array().expect("a list");
    assert_eq!(Some(workers.len() as u64), program["workers"].as_u64());
    let streams: Vec<u64> = workers.iter().filter_map(|worker| worker["stream_bytes"].as_u64()).collect();
    assert_eq!(program["stream_bytes"].as_u64(), Some(streams.iter().sum()));
    assert_eq!(program["balance"]["max"].as_u64(), streams.iter().max().copied());
    assert_eq!(program["balance"]["min"].as_u64(), streams.iter().min().copied());
    assert_eq!(program["ring_stages"], 12);
    let long = run(&[&LLAMA_1B[..], &["--json", "--context", "131072"]].concat()).json();
    assert!(long["program"]["fixed_bytes"].as_u64() > program["fixed_bytes"].as_u64(), "a longer table of pages");
    assert_eq!(value["device"]["assumed"], "no NVIDIA GPU was found");
    let token = &program["estimate"]["token_us"];
    assert!(token["idle"].as_f64() <= token["loaded"].as_f64());
}

#[test]
fn the_cpus_program_is_the_one_that_runs() {
    let arguments = ["program", LLAMA, "--device", "cpu", "-t", "2"];
    insta::assert_snapshot!(run(&arguments).ok());
    let value = run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!((&value["device"], &value["checked"]), (&"cpu".into(), &true.into()));
    assert_eq!(value["decode"]["stream_bytes"], value["prefill"]["stream_bytes"]);
    // Threads mean the CPU, here as elsewhere.
    assert_eq!(run(&["program", LLAMA, "-t", "2"]).ok(), run(&arguments).ok());
}

#[test]
fn a_model_without_weights_can_be_planned() {
    let of = |model: &str| run(&["program", model, "--device", "cuda", "--json"]).json()["program"]["layers"].clone();
    assert_eq!(of(&format!("{LLAMA}/config.json")), of(LLAMA));
    assert_eq!(of("llama-3.1-8b"), 32);
    let error = run(&["program", "no-such-model", "--device", "cuda"]).error(1);
    assert!(error.contains("`no-such-model`"), "{error}");
}

#[test]
fn what_cannot_be_planned_is_refused_in_one_line() {
    let gpu =
        |arguments: &[&str], status| run(&[&["program", LLAMA, "--device", "cuda"], arguments].concat()).error(status);
    let messages = [
        run(&["program", "tests/golden/gemma3", "--device", "cuda"]).error(1),
        gpu(&["--shared-memory", "1000"], 1),
        gpu(&["--multiprocessors", "4000000000"], 2),
        gpu(&["--multiprocessors", "0"], 2),
        gpu(&["--shared-memory", "-1"], 2),
        gpu(&["--context", "5000"], 2),
        gpu(&["--threads", "2"], 2),
        run(&["program", LLAMA, "--device", "cpu", "--multiprocessors", "3"]).error(2),
        run(&["program", LLAMA, "-t", "2", "--shared-memory", "100000"]).error(2),
        run(&["program", LLAMA, "--device", "tpu"]).error(2),
        run(&["program", "tests/golden/nothing-here", "--device", "cuda"]).error(1),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
