//! A real trained model of 0.26 M parameters, where it is: text in, exactly llama.cpp's greedy text out. It is not part
//! of the project: `PLANCHER_SHARED` names the directory, by default `../shared` beside the checkout.

use std::path::PathBuf;

use crate::common::{root, run, run_with_input};

/// The directory of stories260k, or a line that says that the test was left out.
fn stories() -> Option<PathBuf> {
    let shared = std::env::var_os("PLANCHER_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let directory = shared.join("models/stories260k");
    let found = directory.is_dir();
    if !found {
        eprintln!("skipped: `{}` is not there", directory.display());
    }
    found.then_some(directory)
}

#[test]
fn greedy_text_is_llama_cpps() {
    let Some(directory) = stories() else { return };
    let expected = std::fs::read(directory.join("expected.json")).expect("expected.json");
    let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
    for precision in ["f32", "f16"] {
        let model = directory.join(format!("stories260k-{precision}.gguf"));
        let cases = expected["greedy"][precision].as_array().expect("cases");
        for case in cases {
            let (prompt, want) = (case["prompt"].as_str().expect("a prompt"), &case["tokens"]);
            let n = want.as_array().map_or(0, Vec::len).to_string();
            let model = model.to_str().expect("UTF-8");
            let arguments = ["generate", "-m", model, "--raw", "--ignore-eos", "-n", &n, "--json", prompt];
            let value = run(&arguments).json();
            assert_eq!((&value["ids"], &value["text"]), (want, &case["text"]), "{precision}: {prompt}");
        }
    }
}

#[test]
fn text_streams_whole_and_stops_where_told() {
    let Some(directory) = stories() else { return };
    let model = directory.join("stories260k-f32.gguf");
    let arguments = ["generate", "-m", model.to_str().expect("UTF-8"), "--raw", "-n", "40", "-q"];
    let prompt = "Once upon a time";
    let plain = run(&[&arguments[..], &[prompt]].concat()).ok();
    assert_eq!(run_with_input(&arguments, &format!("{prompt}\n")).ok(), plain);
    let json = run(&[&arguments[..], &["--json", prompt]].concat()).json();
    assert_eq!(json["text"].as_str().map(|text| format!("{text}\n")), Some(plain.clone()));
    let stop = plain.split_whitespace().nth(6).expect("words");
    let stopped = run(&[&arguments[..], &["--stop", stop, prompt]].concat()).ok();
    assert_eq!(stopped.trim_end_matches('\n'), plain.split(stop).next().unwrap_or_default().trim_end_matches('\n'));
}
