//! `--device` and `--load-format` on a machine without a GPU.

use crate::common::{LLAMA, run};

const GENERATE: [&str; 7] = ["generate", "-m", LLAMA, "--ids", "1,2,3", "-n", "4"];

#[test]
fn without_a_gpu_auto_says_so_only_when_asked() {
    let plain = run(&GENERATE);
    assert_eq!(plain.stderr.lines().count(), 1, "{}", plain.stderr);
    let auto = run(&[&GENERATE[..], &["--device", "auto"]].concat());
    assert!(auto.stderr.starts_with("computing on the CPU: no NVIDIA GPU was found"), "{}", auto.stderr);
    assert_eq!(auto.stderr.lines().count(), 2);
    let cpu = run(&[&GENERATE[..], &["--device", "cpu"]].concat());
    assert_eq!(cpu.stderr.lines().count(), 1);
    let ids = plain.ok();
    assert_eq!((auto.ok(), cpu.ok()), (ids.clone(), ids));
    let quiet = run(&[&GENERATE[..], &["--device", "auto", "-q"]].concat());
    assert_eq!(quiet.stderr, "");
}

#[test]
fn what_needs_a_gpu_says_what_is_missing() {
    let on_gpu = |arguments: &[&str], status| run(&[arguments, &["--device", "cuda"]].concat()).error(status);
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("x").display().to_string();
    let logits = ["logits", LLAMA, "--ids", "1", "--out", out.as_str()];
    let messages = [
        on_gpu(&GENERATE, 1),
        run(&[&GENERATE[..], &["--device", "cuda:7"]].concat()).error(1),
        on_gpu(&["bench", "-m", LLAMA, "-p", "8", "-n", "4"], 1),
        on_gpu(&logits, 1),
        on_gpu(&["perplexity", LLAMA, "--ids-file", "Cargo.toml"], 1),
        on_gpu(&[&GENERATE[..], &["--threads", "2"]].concat(), 2),
        on_gpu(&[&logits[..], &["--executor", "reference"]].concat(), 2),
        run(&[&logits[..], &["--decode=mega"]].concat()).error(1),
        run(&[&logits[..], &["--decode=graph", "--device", "cpu"]].concat()).error(2),
        on_gpu(&["bench", "-m", LLAMA, "--trace", out.as_str()], 1),
        run(&["bench", "-m", LLAMA, "--trace", "layer.svg"]).error(2),
        run(&["bench", "-m", LLAMA, "--trace", out.as_str(), "--trace-table", "t.json", "--device", "cpu"]).error(2),
        run(&["bench", "-m", LLAMA, "--trace-table", "t.json"]).error(2),
        run(&["bench", "-m", LLAMA, "-b", "1,8"]).error(2),
        run(&["bench", "-m", LLAMA, "-b", "0"]).error(2),
        run(&[&GENERATE[..], &["--device", "gpu"]].concat()).error(2),
        run(&[&GENERATE[..], &["--load-format", "random"]].concat()).error(2),
        run(&["generate", "-m", "llama-9", "--load-format", "dummy", "--ids", "1"]).error(1),
        run(&["generate", "-m", LLAMA, "--load-format", "dummy", "hello"]).error(2),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn an_executor_of_the_gpu_is_refused_where_it_makes_no_sense() {
    let generate = |more: &[&str], status| run(&[&GENERATE[..], more].concat()).error(status);
    let bench = |more: &[&str]| run(&[&["bench", "-m", LLAMA, "-p", "0", "-n", "4"][..], more].concat());
    let messages = [
        generate(&["--executor", "mega"], 1),
        generate(&["--executor", "graph", "--device", "auto"], 1),
        generate(&["--executor", "mega", "--device", "cuda:3"], 1),
        generate(&["--executor", "mega", "--device", "cpu"], 2),
        generate(&["--executor", "graph", "--threads", "2"], 2),
        generate(&["--executor", "warp"], 2),
        run(&["chat", "-m", LLAMA, "--executor", "mega", "--device", "cpu"]).error(2),
        bench(&["--executor", "mega,graph"]).error(1),
        bench(&["--executor", "auto,graph", "--device", "cpu"]).error(2),
        bench(&["--executor", "graph,mega", "-b", "1,8"]).error(2),
    ];
    insta::assert_snapshot!(messages.join("\n"));
    // On the CPU there is no choice.
    assert_eq!(run(&[&GENERATE[..], &["--executor", "auto"]].concat()).ok(), run(&GENERATE).ok());
    let rows = bench(&["--executor", "auto", "-r", "1", "-o", "json"]).json();
    assert!(rows[0]["executor"].is_null() && rows[0]["ratio"].is_null());
    assert_eq!(rows[0]["ratio_samples"], serde_json::json!([]));
}

#[test]
fn a_configuration_alone_can_be_measured() {
    let configuration = format!("{LLAMA}/config.json");
    let dummy = |arguments: &[&str]| {
        run(&[arguments, &["-m", configuration.as_str(), "--load-format", "dummy", "-t", "2"]].concat())
    };
    let ids = ["generate", "--ids", "1,2,3", "-n", "8"];
    let first = dummy(&ids).ok();
    assert_eq!(first.trim_end().split(',').count(), 8);
    assert_eq!(dummy(&ids).ok(), first);
    assert_ne!(run(&[&ids[..], &["-m", LLAMA, "-t", "2"]].concat()).ok(), first);

    let rows = dummy(&["bench", "-p", "16", "-n", "4", "-r", "2", "-o", "json"]).json();
    let decode = &rows[1];
    assert_eq!((decode["n_batch"].as_u64(), decode["backends"].as_str()), (Some(1), Some("CPU")));
    assert_eq!(decode["device_ms_per_token"], serde_json::json!([]));
    assert!(decode["gpu_info"].is_null() && decode["gpu_before"].is_null() && decode["gpu_after"].is_null());
    assert_eq!(decode["reproducible"], true);
}

#[test]
fn both_executors_agree_on_dummy_weights() {
    let directory = tempfile::tempdir().expect("a directory");
    let logits = |executor: &str| {
        let path = directory.path().join(executor);
        let out = path.to_str().expect("UTF-8");
        run(&["logits", LLAMA, "--load-format", "dummy", "--ids", "5,6,7", "--executor", executor, "--out", out]).ok();
        let bytes = std::fs::read(&path).expect("written");
        let floats = bytes[bytes.len() - 3 * 512 * 4..].chunks_exact(4);
        floats.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect::<Vec<f32>>()
    };
    let (reference, program) = (logits("reference"), logits("program"));
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let difference = norm(&mut reference.iter().zip(&program).map(|(a, b)| a - b));
    let size = norm(&mut reference.iter().copied());
    assert!(size > 1.0 && difference < 1e-2 * size, "{difference} of {size}");
}
