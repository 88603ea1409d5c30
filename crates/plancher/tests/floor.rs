//! `plancher floor` as users meet it: the tables of known models, JSON keys, files, and what is refused.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn floor(arguments: &[&str]) -> Output {
    floor_in(Path::new("."), arguments)
}

fn floor_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plancher"));
    command.arg("floor").args(arguments).current_dir(directory).env("NO_COLOR", "1").env("HF_HUB_CACHE", "/nowhere");
    command.output().expect("the binary runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = floor(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    serde_json::from_str(&printed(&arguments)).expect("JSON")
}

/// The one line of an error with status 2 and nothing on standard output.
fn refused_in(directory: &Path, arguments: &[&str]) -> String {
    let output = floor_in(directory, arguments);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    assert_eq!(message.lines().count(), 1, "{message}");
    message.trim().to_owned()
}

fn refused(arguments: &[&str]) -> String {
    refused_in(Path::new("."), arguments)
}

#[test]
fn llama_3_1_8b_on_an_h200() {
    insta::assert_snapshot!(printed(&["llama-3.1-8b", "--on", "h200", "--context", "8192", "--prompt", "2048"]));
}

#[test]
fn qwen3_0_6b_has_heads_wider_than_its_hidden_size() {
    insta::assert_snapshot!(printed(&["qwen3-0.6b", "--on", "h100-sxm"]));
}

#[test]
fn mixtral_reads_the_expected_experts() {
    insta::assert_snapshot!(printed(&["mixtral-8x7b", "--on", "h200", "--batch", "16", "--explain"]));
}

#[test]
fn deepseek_v3_on_eight_devices() {
    let arguments =
        ["deepseek-v3", "--on", "h200", "--tp", "8", "--context", "8k", "--draft", "mtp", "--acceptance", "0.85"];
    insta::assert_snapshot!(printed(&arguments));
}

#[test]
fn gpt_oss_20b_alternates_windows() {
    insta::assert_snapshot!(printed(&["gpt-oss-20b", "--on", "h100-sxm", "--context", "8k"]));
}

#[test]
fn a_measured_time_is_split() {
    let arguments =
        ["llama-3.2-1b", "--on", "h200", "--context", "32", "--measured", "760us", "--executor", "megakernel"];
    insta::assert_snapshot!(printed(&arguments));
}

#[test]
fn training_says_flop_memory_and_time() {
    let arguments =
        ["llama-3.1-8b", "--on", "h100-sxm", "--train", "--context", "4096", "--zero", "3", "--devices", "8"];
    insta::assert_snapshot!(printed(&[&arguments[..], &["--checkpointing", "full", "--tokens", "15e12"]].concat()));
}

#[test]
fn what_fits_and_comparisons_are_tables() {
    insta::assert_snapshot!(printed(&["fit", "llama-3.1-8b", "--on", "l4", "--context", "8k"]));
    insta::assert_snapshot!(printed(&["compare", "llama-3.1-8b", "h100-sxm", "h200"]));
}

#[test]
fn sweeps_mark_what_does_not_fit() {
    let arguments = ["llama-3.1-8b", "--on", "l4", "--sweep", "batch=1..64", "--context", "8k"];
    insta::assert_snapshot!(printed(&arguments));
}

#[test]
fn the_seed_tables_are_all_there() {
    insta::assert_snapshot!(printed(&["--seed-tables"]));
}

#[test]
fn json_has_the_documented_keys() {
    let keys = [
        "params_total",
        "params_read",
        "weight_bytes_read",
        "kv_bytes_per_token",
        "kv_bytes_read",
        "flops",
        "bytes",
        "intensity",
        "ridge",
        "limiter",
        "floor_ms",
        "tokens_per_s",
        "operations",
        "comm_ms",
        "activation_ms",
        "step_ms",
    ];
    let found = json(&["llama-3.1-8b", "--on", "h200", "--draft", "llama-3.2-1b", "--k", "5", "--acceptance", "0.7"]);
    for key in keys.iter().chain(&["tokens_per_pass", "speedup"]) {
        assert!(!found[*key].is_null(), "{key}");
    }
    assert_eq!(found["params_total"], 8_030_261_248_u64);
    assert_eq!(found["weight_bytes_read"], 15_009_849_344_u64);
    assert_eq!(found["kv_bytes_read"], 1024 * 131_072);
    let training = json(&["llama-3.1-8b", "--on", "h100-sxm", "--train", "--zero", "3", "--devices", "8"]);
    for key in ["flops_per_token", "mfu", "hfu", "memory_bytes"] {
        assert!(training[key].is_number(), "{key}");
    }
    assert_eq!(json(&["deepseek-v3", "--on", "h200", "--tp", "8"])["kv_bytes_per_token"], 70_272);
}

#[test]
fn full_acceptance_is_k_plus_one() {
    let found = json(&["llama-3.1-8b", "--draft", "llama-3.2-1b", "--k", "5", "--acceptance", "1.0"]);
    assert_eq!(found["tokens_per_pass"], 6.0);
    let listed = json(&["llama-3.1-8b", "--draft", "llama-3.2-1b", "--k", "2", "--acceptance", "0.8,0.5"]);
    assert!((listed["tokens_per_pass"].as_f64().unwrap() - 2.2).abs() < 1e-12);
}

#[test]
fn impossible_input_is_refused_in_one_line() {
    let cases: [(&[&str], &str); 22] = [
        (&["llama-3.1-8b", "--batch", "0"], "'0' for '--batch <N>': must be 1 or more"),
        (&["llama-3.1-8b", "--batch", "-1"], "'-1' for '--batch <N>'"),
        (&["llama-3.1-8b", "--batch", "1e30"], "'1e30' for '--batch <N>'"),
        (&["llama-3.1-8b", "--batch", "4294967296", "--ignore-memory"], "`batch`: `4294967296`"),
        (&["llama-3.1-8b", "--context", "0"], "'--context <N>'"),
        (&["llama-3.1-8b", "--tp", "3"], "`3` does not divide the 32 query heads"),
        (&["llama-3.1-70b", "--on", "h100-sxm"], "61442957312 bytes too many"),
        (&["fit", "llama-3.1-70b", "--on", "h100-sxm"], "61442957312 bytes too many"),
        (&["llama-3.1-8b", "--draft", "llama-3.2-1b", "--k", "5", "--acceptance", "1.1"], "`acceptance`: `1.1`"),
        (&["llama-3.1-8b", "--draft", "llama-3.2-1b", "--k", "5"], "`--acceptance`"),
        (&["llama-3.1-8b", "--draft", "mtp", "--acceptance", "0.9"], "`llama-3.1-8b` has no prediction layer"),
        (&["llama-3.1-8b", "--k", "5"], "belong to `--draft`"),
        (&["llama-9"], "no model preset `llama-9`"),
        (&["org/none"], "`org/none`"),
        (&[], "name a MODEL"),
        (&["llama-3.1-8b", "--on", "h300"], "no hardware preset `h300`"),
        (&["llama-3.1-8b", "--weights", "int3"], "no format `int3`"),
        (&["llama-3.1-8b", "--ceiling", "measured"], "no measured ceiling is known for `h100-sxm`"),
        (&["llama-3.1-8b", "--measured", "1us"], "below the floor"),
        (&["llama-3.1-8b", "--measured", "5"], "neither a time"),
        (&["llama-3.1-8b", "--sweep", "batch=8..1"], "begins at 8, above its end 1"),
        (&["llama-3.1-8b", "--train", "--on", "h100-sxm"], "does not fit on `h100-sxm`"),
    ];
    for (arguments, expected) in cases {
        let message = refused(arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn malformed_files_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases = [
        ("hw.toml", "bandwidth = 0", "`bandwidth`: `0`"),
        ("hw.toml", "bandwidth = -1e12", "`bandwidth`: `-1000000000000`"),
        ("hw.toml", "bandwidth = 1e30", "`bandwidth`"),
        ("hw.toml", "bandwidth = nan", "`bandwidth`: `NaN`"),
        ("hw.toml", "bandwidth = = 3", "`hw.toml`"),
        ("hw.toml", "name = 'x'\nspeed = 3", "`speed`"),
        ("hw.json", "{\"bandwidth\": 1e12, \"peaks\": {\"bf16\": 0}}", "`peaks.bf16`: `0`"),
        ("hw.json", "{\"bandwidth\": 1e12", "`hw.json`"),
        ("hw.json", "{\"bandwidth\": 1e12, \"memory_bytes\": 16e9}", "194740224 bytes too many"),
        ("none.json", "", "`none.json`"),
    ];
    for (name, content, expected) in cases {
        if !content.is_empty() {
            fs::write(directory.path().join(name), content).expect("written");
        }
        let message = refused_in(directory.path(), &["llama-3.1-8b", "--on", name]);
        assert!(message.contains(expected), "{content}: {message}");
    }
    let configs = [
        ("{", "config.json`: EOF"),
        ("[]", "is not a JSON object"),
        ("{\"architectures\": [\"MambaForCausalLM\"]}", "architecture `MambaForCausalLM` is not understood"),
        ("{\"model_type\": \"llama\", \"hidden_size\": 1e30}", "`hidden_size`: `1e+30`"),
    ];
    for (content, expected) in configs {
        fs::write(directory.path().join("config.json"), content).expect("written");
        for model in ["config.json", "."] {
            let message = refused_in(directory.path(), &[model]);
            assert!(message.contains(expected), "{content}: {message}");
        }
    }
}

#[test]
fn a_hardware_file_gives_the_same_as_its_preset() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = "name = 'mine'\nbandwidth = 4.8e12\nmemory_bytes = 141e9\npeaks = { bf16 = 989.4e12 }\n\
                link = { bandwidth = 450e9, latency = 0.6e-6 }\nmeasured = { bandwidth = 4.5e12 }\n";
    fs::write(directory.path().join("mine.toml"), file).expect("written");
    let arguments = ["llama-3.1-8b", "--tp", "2", "--json", "--on"];
    let of = |machine| {
        let output = floor_in(directory.path(), &[&arguments[..], &[machine]].concat());
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let (preset, mine) = (of("h200"), of("mine.toml"));
    for key in ["floor_ms", "comm_ms", "step_ms", "ridge", "bytes"] {
        assert_eq!(preset[key], mine[key], "{key}");
    }
    let output = floor_in(directory.path(), &["llama-3.1-8b", "--on", "mine.toml", "--ceiling", "measured"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("mine (measured ceiling): 4.500 TB a second"));
}

#[test]
fn a_configuration_in_the_cache_is_enough() {
    let cache = tempfile::tempdir().expect("a directory");
    let repository = cache.path().join("models--some--model");
    let snapshot = repository.join("snapshots/abc");
    fs::create_dir_all(&snapshot).and_then(|()| fs::create_dir_all(repository.join("refs"))).expect("made");
    fs::write(repository.join("refs/main"), "abc").expect("written");
    let config = "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"intermediate_size\": 128, \
                  \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 100, \"torch_dtype\": \"float16\"}";
    fs::write(snapshot.join("config.json"), config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plancher"));
    let output =
        command.args(["floor", "some/model", "--json"]).env("HF_HUB_CACHE", cache.path()).output().expect("runs");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["params_total"], 2 * (4 * 64 * 64 + 3 * 128 * 64 + 2 * 64) + 64 + 2 * 100 * 64);
}

#[test]
fn pages_and_drawings_are_self_contained() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = [
        "mixtral-8x7b",
        "--on",
        "h200",
        "--prompt",
        "2k",
        "--context",
        "4k",
        "--sweep",
        "batch=1..512",
        "--sweep",
        "context=1k..128k",
        "--measured",
        "9ms",
        "--html",
        "page.html",
        "--svg",
        "figure.svg",
    ];
    let output = floor_in(directory.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(directory.path().join("page.html")).expect("a page");
    let figure = fs::read_to_string(directory.path().join("figure.svg")).expect("a figure");
    for text in [&page, &figure] {
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:") && !elsewhere.contains("<script"));
        assert!(text.contains("prefers-color-scheme:dark") && text.contains("routed experts"));
    }
    assert!(page.contains("width=device-width") && page.matches("<svg").count() == 3);
    assert_eq!(page.matches("<table").count(), 5);
    assert_eq!(figure.matches("<g ").count(), figure.matches("</g>").count());
}

#[test]
fn files_without_end_and_times_that_no_step_takes_are_refused() {
    if cfg!(target_os = "linux") {
        let error = refused(&["llama-3.2-1b", "--measured", "/dev/zero"]);
        assert!(error.contains("`/dev/zero` has more than"), "{error}");
    }
    for time in ["0s", "1e300s", "1e400s", "nanms", "infs"] {
        for regime in [None, Some("--train")] {
            let arguments: Vec<&str> =
                ["llama-3.2-1b", "--ignore-memory", "--measured", time].into_iter().chain(regime).collect();
            let error = refused(&arguments);
            assert!(error.contains(&format!("`--measured {time}`")), "{error}");
        }
    }
}

#[test]
fn a_hardware_file_in_other_units_or_with_a_name_of_several_lines_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases = [
        (r#"{"bandwidth": 3350}"#, "`bandwidth`: `3350`"),
        (r#"{"bandwidth": 1e12, "peaks": {"bf16": 989.4}}"#, "`peaks.bf16`: `989.4`"),
        ("{\"bandwidth\": 1e12, \"name\": \"a\\nb\"}", "`name`: `a\\nb`"),
        ("{\"bandwidth\": 1e12, \"name\": \"\\u001b[31m\"}", "`name`: `\\u{1b}[31m`"),
        (r#"{"bandwidth": 1e12, "source": ""}"#, "`source`: ``"),
    ];
    for (content, expected) in cases {
        fs::write(directory.path().join("machine.json"), content).expect("written");
        let error = refused_in(directory.path(), &["llama-3.2-1b", "--on", "machine.json"]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    for arguments in [
        &["llama-3.2-1b", "--train", "--kv", "fp8"][..],
        &["llama-3.2-1b", "--train", "--measured", "1s", "--executor", "cpu"],
        &["--seed-tables", "--html", "page.html"],
        &["--seed-tables", "--batch", "2"],
        &["llama-3.2-1b", "--svg", "same", "--html", "same"],
    ] {
        refused(arguments);
    }
}

#[test]
fn a_draft_must_fit_beside_its_model() {
    // 24e9 − 16,060,522,496 − 1024 × 131,072 leave 7,805,259,776 bytes; the 3B takes 6,425,499,648 and 117,440,512 of KV.
    let draft = ["--on", "l4", "--k", "3", "--acceptance", "0.7", "--draft"];
    let with = |name| [&["llama-3.1-8b"], &draft[..], &[name]].concat();
    assert!(printed(&with("llama-3.2-3b")).contains("speculation, k = 3"));
    let error = refused(&with("qwen3-8b"));
    assert!(error.contains("with the draft qwen3-8b") && error.ends_with("bytes too many"), "{error}");
}

#[test]
fn a_context_beyond_the_models_own_is_named() {
    let note = "made for 131072 positions, fewer than the 131073 asked for";
    assert!(printed(&["llama-3.1-8b", "--context", "131073"]).contains(note));
    assert!(!printed(&["llama-3.1-8b", "--context", "131072"]).contains("positions, fewer"));
}
