//! `inspect` and `doctor`.

use crate::common::{LLAMA, mask_numbers, run};

#[test]
fn a_model_is_described() {
    insta::assert_snapshot!(run(&["inspect", LLAMA]).ok());
    insta::assert_snapshot!("gemma3", run(&["inspect", "tests/golden/gemma3"]).ok());
}

#[test]
fn json_agrees_with_the_tensors_it_lists() {
    let value = run(&["inspect", LLAMA, "--json", "--tensors"]).json();
    let tensors = value["tensors"].as_array().expect("a list");
    let sum = |key: &str| tensors.iter().filter_map(|tensor| tensor[key].as_u64()).sum::<u64>();
    assert_eq!(Some(sum("bytes")), value["weight_bytes"].as_u64());
    let count = |tensor: &serde_json::Value| tensor["rows"].as_u64().zip(tensor["columns"].as_u64());
    let parameters: u64 = tensors.iter().filter_map(count).map(|(rows, columns)| rows * columns).sum();
    assert_eq!(Some(parameters), value["parameters"].as_u64());
    // Tied: the table is stored once and read once, as the head.
    assert_eq!(value["parameters"], value["parameters_read_per_token"]);
}

#[test]
fn doctor_names_the_machine_and_its_bandwidth() {
    let text = run(&["doctor", "--no-bandwidth"]).ok();
    for field in ["CPU", "cores", "memory", "GPU driver", "NVRTC", "would use"] {
        assert!(text.lines().any(|line| line.starts_with(field)), "{field}: {text}");
    }
    let value = run(&["doctor", "--no-bandwidth", "--json"]).json();
    assert!(value["would_use"]["threads"].as_u64().is_some_and(|threads| threads >= 1));
    assert_eq!(mask_numbers("12.5 GB, 3 of 4."), "# GB, # of #");
}
