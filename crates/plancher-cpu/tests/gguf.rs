//! Golden logits again, from the golden checkpoints converted to GGUF: the other names, the other order of rows and
//! fused tensors lead to the same results.

mod common;

use common::{GoldenFile, executor, golden, options, prefill_all, relative_error};
use plancher_model::DType;
use plancher_model::testing::convert_to_gguf;

/// The largest relative difference of the logits of any golden prompt.
fn error_of(name: &str) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, convert_to_gguf(&golden(name), DType::BF16).finish()).unwrap();
    let mut executor = executor(&path, &options(2));
    let file = GoldenFile::open(&golden(name).join("golden.safetensors"));
    let errors = (0..).map_while(|n| {
        let prompt = file.tokens(&format!("prompt.{n}"))?;
        executor.truncate(0);
        Some(relative_error(&prefill_all(&mut executor, &prompt), &file.floats(&format!("logits.{n}"))))
    });
    errors.fold(0.0, f64::max)
}

#[test]
fn every_architecture_gives_the_golden_logits() {
    for name in [
        "gemma3",
        "llama-bias",
        "llama-gqa-tied",
        "llama-rope-linear",
        "llama-rope-llama3",
        "llama-rope-yarn",
        "mistral-window",
        "phi3-partial",
        "qwen2-bias",
        "qwen2-window",
        "qwen3-qknorm",
    ] {
        let error = error_of(name);
        assert!(error < 5e-3, "{name}: logits differ by {error:.2e}");
    }
}
