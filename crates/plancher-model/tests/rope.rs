//! Rotary tables equal those that transformers builds from the same `config.json`.

mod common;

use common::{golden, open};
use safetensors::SafeTensors;

fn floats(file: &SafeTensors<'_>, name: &str) -> Option<Vec<f32>> {
    let tensor = file.tensor(name).ok()?;
    Some(tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn assert_close(name: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{name}");
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        // transformers computes in f32: a power and two products, each rounded.
        assert!((a - b).abs() <= 1e-6 * b.abs(), "{name}: element {i} is {a}, transformers has {b}");
    }
}

#[test]
fn tables_equal_those_of_transformers() {
    let names = [
        "fp8-block",
        "gemma3",
        "llama-bias",
        "llama-gqa-tied",
        "llama-rope-linear",
        "llama-rope-llama3",
        "llama-rope-yarn",
        "llama-rope-yarn-mscale",
        "mistral-window",
        "phi3-partial",
        "qwen2-bias",
        "qwen2-window",
        "qwen3-qknorm",
        "smollm3-nope",
    ];
    for name in names {
        let config = open(name).config;
        let bytes = std::fs::read(golden(name).join("rope.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let suffixes: &[&str] = if name == "gemma3" { &[".full_attention", ".sliding_attention"] } else { &[""] };
        assert_eq!(config.ropes.len(), suffixes.len(), "{name}");
        for (rope, suffix) in config.ropes.iter().zip(suffixes) {
            let frequencies = floats(&file, &format!("inv_freq{suffix}")).unwrap();
            assert_close(name, &rope.inverse_frequencies, &frequencies);
            let factor = floats(&file, &format!("attention_factor{suffix}")).unwrap();
            assert_close(name, &[rope.attention_factor], &factor);
        }
    }
}

#[test]
fn stretched_tables_differ_from_plain_ones() {
    let plain = open("llama-gqa-tied").config.ropes;
    let linear = open("llama-rope-linear").config.ropes;
    assert_close(
        "linear",
        &linear[0].inverse_frequencies,
        &plain[0].inverse_frequencies.iter().map(|f| f / 4.0).collect::<Vec<_>>(),
    );
    let yarn = open("llama-rope-yarn").config.ropes;
    assert!(yarn[0].attention_factor > 1.0);
    let mscale = open("llama-rope-yarn-mscale").config.ropes;
    assert_ne!(yarn[0].inverse_frequencies, mscale[0].inverse_frequencies);
    assert!((yarn[0].attention_factor - mscale[0].attention_factor).abs() > 0.01);
}
