//! The recorded run is read; each of its fields, changed, makes it unreadable.

use serde_json::{Value, json};

use super::*;

const RECORDED: &str = include_str!("../../../../evidence/h200-lab.json");

/// What is said of the recorded run with one value changed.
fn changed(path: &str, value: Value) -> String {
    let mut run: Value = serde_json::from_str(RECORDED).expect("JSON");
    *run.pointer_mut(path).expect(path) = value;
    match read_run("run.json", &run.to_string()) {
        Ok(_) => "read".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_recorded_run_is_read() {
    let run = read_run("run.json", RECORDED).expect("it is as it was measured");
    assert!(run.steps.len() >= 5);
}

#[test]
fn what_contradicts_the_rest_is_refused_with_its_place() {
    let point = "/steps/0/versions/0/points/0";
    let case = "/steps/0/versions/0/cases/0";
    for (path, value, part) in [
        ("/schema".to_owned(), json!(2), "`schema` is 2"),
        ("/machine/l2_bytes".to_owned(), json!(0), "`machine.l2_bytes` is 0"),
        ("/machine/multiprocessors".to_owned(), json!(0), "`machine.multiprocessors` is 0"),
        ("/steps/0/step".to_owned(), json!("nothing"), "there is no step `nothing`"),
        ("/steps/1/step".to_owned(), json!("saxpy"), "step `saxpy` is there twice"),
        ("/steps/0/versions/1/version".to_owned(), json!("scalar"), "`scalar` f32: it is there twice"),
        (format!("{point}/bytes"), json!(1u64 << 40), "`bytes` is 1099511627776, and the shape has 3221225472"),
        (format!("{point}/flops"), json!(0), "`flops` is 0"),
        (format!("{point}/elements"), json!(1), "`elements` is 1"),
        (format!("{point}/label"), json!("l2"), "`label` is L2"),
        (format!("{point}/ceiling"), json!("copy"), "`ceiling` is copy, and the step's is triad"),
        (format!("{point}/shape"), json!("16x16"), "no shape of a saxpy"),
        (format!("{point}/host_milliseconds"), json!([1.0]), "and 1 `host_milliseconds`"),
        (format!("{point}/milliseconds/3"), json!(0.0), "`milliseconds`: 0 is not a positive number"),
        (format!("{point}/milliseconds/3"), json!(1e300), "not a positive number that can be"),
        (format!("{point}/verified"), json!(99), "`verified` is 99 of 31"),
        (format!("{point}/ceiling_samples"), json!(vec![3000.0; 31]), "`ceiling_samples` are 3000 GB/s"),
        ("/steps/0/ceilings".to_owned(), json!([]), "no triad ceiling beside"),
        (format!("{case}/limit"), json!(1e9), "`limit` is 1000000000, and at most 1.01 passes"),
        (format!("{case}/error"), json!(-1.0), "`error` is -1"),
        (format!("{case}/shapes"), json!([]), "no size was tried"),
        (format!("{case}/case"), json!("tails"), "case `tails` is there twice"),
    ] {
        let said = changed(&path, value);
        assert!(said.starts_with("`run.json`: ") && said.contains(part) && said.lines().count() == 1, "{path}: {said}");
    }
}

#[test]
fn what_a_sanitizer_is_said_to_have_found_must_fit_together() {
    let said = |change: &[(&str, Value)]| {
        let mut run: Value = serde_json::from_str(RECORDED).expect("JSON");
        let mut finding = json!({
            "version": "scalar", "dtype": "f32", "tool": "racecheck", "program": "compute-sanitizer 2025.3.1.0",
            "source_sha256": run["steps"][0]["versions"][0]["source_sha256"], "errors": 0,
            "shapes": [run["steps"][0]["versions"][0]["points"][0]["shape"]],
        });
        for (field, value) in change {
            finding[field] = value.clone();
        }
        let copies = if change.is_empty() { 2 } else { 1 };
        run["steps"][0]["sanitizer"] = json!(vec![finding; copies]);
        read_run("run.json", &run.to_string()).err().map(|error| error.to_string())
    };
    assert_eq!(said(&[("errors", json!(0))]), None);
    assert_eq!(said(&[("errors", json!(2)), ("first", json!("Race reported"))]), None);
    assert_eq!(said(&[("errors", Value::Null), ("not_run", json!("it gave no summary"))]), None);
    for (change, part) in [
        (vec![], "it is there twice"),
        (vec![("version", json!("nothing"))], "no such version was measured"),
        (vec![("source_sha256", json!("0"))], "`source_sha256` is not that of the version"),
        (vec![("errors", Value::Null)], "exactly one of `errors` and `not_run`"),
        (vec![("not_run", json!("it died"))], "exactly one of `errors` and `not_run`"),
        (vec![("first", json!("Race reported"))], "`errors` counts none"),
        (vec![("program", json!(""))], "`program` does not say what ran"),
        (vec![("shapes", json!([]))], "no size was launched"),
        (vec![("tool", json!("magic"))], "magic"),
    ] {
        let error = said(&change).expect(part);
        assert!(error.starts_with("`run.json`") && error.contains(part), "{error}");
    }
}
