//! `bench`: rows, formats and the trace.

use crate::common::{LLAMA, mask_numbers, run};

const SMALL: [&str; 11] = ["bench", "-m", LLAMA, "-p", "16", "-n", "4", "-r", "2", "-t", "2"];

#[test]
fn the_table_has_llama_benchs_rows() {
    let table = run(&[&SMALL[..], &["-d", "0,8", "-pg", "8,4"]].concat()).ok();
    let cell = |line: &str, column: usize| line.split('|').nth(column).map(|cell| cell.trim().to_owned());
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| llama-gqa-tied")).collect();
    let tests: Vec<String> = rows.iter().filter_map(|row| cell(row, 6)).collect();
    assert_eq!(tests, ["pp16", "tg4", "pp8+tg4", "pp16 @ d8", "tg4 @ d8", "pp8+tg4 @ d8"]);
    let header = table.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let first =
        mask_numbers(rows[1].rsplit_once('|').and_then(|(row, _)| row.rsplit_once('|')).map_or("", |(row, _)| row));
    let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
    insta::assert_snapshot!(format!("{header}\n{first}"));
}

#[test]
fn equal_runs_have_equal_hashes_and_json_has_llama_benchs_keys() {
    let value = run(&[&SMALL[..], &["-o", "json"]].concat()).json();
    let rows = value.as_array().expect("an array");
    assert_eq!(rows.len(), 2);
    for row in rows {
        for key in
            ["model_filename", "model_size", "model_n_params", "n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns"]
        {
            assert!(!row[key].is_null(), "{key}");
        }
        assert_eq!(row["samples_ns"].as_array().map(Vec::len), Some(2));
        assert_eq!(row["reproducible"], true);
    }
    assert!(rows[0]["gb_per_s"].is_null() && rows[1]["gb_per_s"].is_number());
    let again = run(&[&SMALL[..], &["-o", "jsonl"]].concat()).ok();
    let hashes: Vec<serde_json::Value> = again
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object a line")["logits_hash"].clone())
        .collect();
    assert_eq!(hashes, [rows[0]["logits_hash"].clone(), rows[1]["logits_hash"].clone()]);
}

#[test]
fn csv_has_as_many_cells_as_names() {
    let text = run(&[&SMALL[..], &["-o", "csv"]].concat()).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.split(',').count() == lines[0].split(',').count()), "{text}");
}

#[test]
fn a_trace_has_a_row_a_worker_and_its_table_adds_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.json");
    let text = run(&[&SMALL[..], &["-d", "8", "--trace", path.to_str().expect("UTF-8")]].concat()).ok();
    // JSON stays JSON with a trace.
    let json = run(&[&SMALL[..], &["--trace", path.to_str().expect("UTF-8"), "-o", "json"]].concat()).json();
    assert_eq!(json.as_array().map(Vec::len), Some(2));
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    for worker in 0..2 {
        let own = events.iter().filter(|event| event["ph"] == "X" && event["tid"] == worker);
        assert!(own.clone().any(|event| event["name"] == "head"), "worker {worker}");
        assert!(own.clone().any(|event| event["cat"] == "wait"), "worker {worker}");
    }
    let table = text.lines().take_while(|line| line.starts_with('|')).skip(2);
    let columns: Vec<Vec<f64>> =
        table.map(|line| line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect()).collect();
    let (measured, parts) = columns.split_last().expect("rows");
    for (worker, measured) in measured.iter().enumerate() {
        let sum: f64 = parts.iter().map(|row| row[worker]).sum();
        assert!((sum - measured).abs() < 0.1 * parts.len() as f64, "{sum} of {measured}: {text}");
    }
}
