//! `logits` and `perplexity` against the golden values of Hugging Face transformers.

use std::collections::HashMap;
use std::path::Path;

use crate::common::{LLAMA, command, root, run, run_with_input};

/// The tensors of a safetensors file, as f64.
fn read(path: &Path) -> HashMap<String, Vec<f64>> {
    let bytes = std::fs::read(path).expect("the file is there");
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).expect("a JSON header");
    let data = &bytes[8 + header_bytes..];
    let tensor = |value: &serde_json::Value| {
        let offset = |index: usize| value["data_offsets"][index].as_u64().expect("an offset") as usize;
        let data = &data[offset(0)..offset(1)];
        match value["dtype"].as_str() {
            Some("F32") => data.as_chunks().0.iter().map(|&x| f64::from(f32::from_le_bytes(x))).collect(),
            Some("I64") => data.as_chunks().0.iter().map(|&x| i64::from_le_bytes(x) as f64).collect(),
            other => panic!("{other:?}"),
        }
    };
    let entries = header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__");
    entries.map(|(name, value)| (name.clone(), tensor(value))).collect()
}

fn ids(values: &[f64]) -> String {
    values.iter().map(|id| format!("{id:.0}")).collect::<Vec<_>>().join(",")
}

fn relative_error(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    square(&mut got.iter().zip(want).map(|(a, b)| a - b)) / square(&mut want.iter().copied())
}

#[test]
fn both_executors_write_the_golden_logits() {
    let golden = read(&root().join(LLAMA).join("golden.safetensors"));
    let directory = tempfile::tempdir().expect("a directory");
    for (executor, decode, tolerance) in
        [("reference", None, 1e-5), ("program", None, 1e-2), ("program", Some("--decode"), 1e-2)]
    {
        for prompt in 0..3 {
            let out = directory.path().join(format!("{executor}{}.{prompt}", decode.unwrap_or_default()));
            let prompt_ids = &golden[&format!("prompt.{prompt}")];
            let path = out.to_str().expect("UTF-8");
            let (prompt_ids_text, more) = (ids(prompt_ids), decode.as_slice());
            let command = ["logits", "--ids", &prompt_ids_text, "--out", path, "--executor", executor];
            run(&[&command, more, &[LLAMA]].concat()).ok();
            let got = read(&out);
            assert_eq!(&got["ids"], prompt_ids);
            let error = relative_error(&got["logits"], &golden[&format!("logits.{prompt}")]);
            assert!(error < tolerance, "{executor} {prompt}: {error:e}");
        }
    }
    // Nothing but the results is left.
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 9);
}

#[test]
#[cfg(unix)]
fn what_is_no_regular_file_is_written_to_and_links_are_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let logits = |path: &Path| run(&["logits", LLAMA, "--ids", "1,2", "--out", path.to_str().expect("UTF-8")]);
    let (file, link) = (directory.path().join("file"), directory.path().join("link"));
    std::fs::write(&file, "old").expect("writable");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    logits(&link).ok();
    assert!(link.is_symlink() && read(&file).contains_key("logits"));

    // A pipe stays a pipe and gets the bytes. (A device in its place would be replaced just the same.)
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let from = pipe.clone();
    let reader = std::thread::spawn(move || std::fs::read(from));
    logits(&pipe).ok();
    let came = reader.join().expect("no panic").expect("bytes came");
    assert_eq!(came, std::fs::read(file).expect("a file"));
}

#[test]
#[cfg(unix)]
fn an_interrupt_ends_with_the_shells_status() {
    use std::io::Read;

    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let ids = vec!["1"; 2048].join(",");
    let mut child = command(&["logits", LLAMA, "--ids", &ids, "--out", pipe.to_str().expect("UTF-8")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The first byte shows that it writes; it cannot end before the other 4 MB are read.
    let mut reader = std::fs::File::open(&pipe).expect("opened");
    reader.read_exact(&mut [0]).expect("a byte");
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let _ = std::io::copy(&mut reader, &mut std::io::sink());
    let mut message = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut message).expect("UTF-8");
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    assert_eq!(message, "plancher: interrupted\n");
}

#[test]
fn perplexity_follows_from_the_logits() {
    let directory = tempfile::tempdir().expect("a directory");
    let golden = read(&root().join(LLAMA).join("golden.safetensors"));
    let (prompt, logits) = (&golden["prompt.2"], &golden["logits.2"]);
    // Two windows of 22 tokens from the 45 of the prompt; only the first is computed from what the golden logits saw.
    let path = directory.path().join("ids.txt");
    std::fs::write(&path, ids(&prompt[..44])).expect("writable");
    let arguments = ["perplexity", LLAMA, "--ids-file", path.to_str().expect("UTF-8"), "-c", "22", "--chunks", "1"];
    let value = run(&[&arguments[..], &["--executor", "reference", "--json"]].concat()).json();

    let vocab_size = logits.len() / prompt.len();
    let loss = |position: usize| {
        let row = &logits[position * vocab_size..(position + 1) * vocab_size];
        row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[prompt[position + 1] as usize]
    };
    let losses: Vec<f64> = (11..21).map(loss).collect();
    let want = (losses.iter().sum::<f64>() / losses.len() as f64).exp();
    let got = value["perplexity"].as_f64().expect("a number");
    assert!((got / want - 1.0).abs() < 1e-4, "{got} instead of {want}");
    assert_eq!((value["tokens"].as_u64(), value["windows"].as_u64()), (Some(10), Some(1)));

    let piped =
        ["perplexity", LLAMA, "--ids-file", "-", "-c", "22", "--chunks", "1", "--executor", "reference", "--json"];
    let piped = run_with_input(&piped, &ids(&prompt[..44])).json();
    assert_eq!(piped["perplexity"], value["perplexity"]);

    let fast = run(&arguments).ok();
    assert!(fast.starts_with("Final estimate: PPL = ") && fast.contains(" +/- "), "{fast}");
}
