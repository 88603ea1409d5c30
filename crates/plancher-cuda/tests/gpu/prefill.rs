//! Prefill on a GPU against golden checkpoints: logits of every position, with cuBLASLt and with our own products, in one
//! chunk and in many, from a cache whose blocks lie anywhere.

use plancher_cuda::{Element, KvCache, LoadOptions, MatmulChoice, Prefill, PrefillLogits, Result};
use plancher_model::Model;

use crate::common::{Golden, Gpu, golden_checkpoints, relative_difference};

/// As for every fast executor (ARCHITECTURE.md).
const TOLERANCE: f64 = 1e-2;

fn run(
    prefill: &mut Prefill,
    cache: &mut KvCache,
    position: usize,
    tokens: &[u32],
    logits: PrefillLogits,
) -> Result<Vec<f32>> {
    let prefilled = prefill.run(cache, 1, position, tokens, logits, &mut |_| true)?;
    assert_eq!(prefilled.tokens, tokens.len());
    Ok(prefilled.logits)
}

fn differences(gpu: &Gpu, choice: MatmulChoice, options: LoadOptions, chunk: usize) -> Vec<(String, f64)> {
    let check = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let model = Model::open(&path).expect("a golden checkpoint");
        let weights = gpu.load(&model, options);
        let mut prefill = gpu.prefill(&weights, chunk, choice);
        let mut worst: f64 = 0.0;
        for golden in Golden::all(&path) {
            let mut cache = gpu.cache(&weights, golden.prompt.len());
            let logits = run(&mut prefill, &mut cache, 0, &golden.prompt, PrefillLogits::All).expect("all logits");
            worst = worst.max(relative_difference(&logits, &golden.logits));
            // The last position alone, after the others: what is cached is what was computed.
            let (last, before) = golden.prompt.split_last().expect("a prompt");
            let mut cache = gpu.cache(&weights, golden.prompt.len());
            if !before.is_empty() {
                run(&mut prefill, &mut cache, 0, before, PrefillLogits::Last).expect("all but one");
            }
            let logits = run(&mut prefill, &mut cache, before.len(), &[*last], PrefillLogits::Last).expect("one");
            let expected = &golden.logits[before.len() * model.config.vocab_size..];
            worst = worst.max(relative_difference(&logits, expected));
        }
        (name, worst)
    };
    golden_checkpoints().into_iter().map(check).collect()
}

fn assert_close(differences: &[(String, f64)], tolerance: f64) {
    for (name, difference) in differences {
        eprintln!("{name}: {difference:.1e}");
    }
    assert!(!differences.is_empty());
    assert!(differences.iter().all(|(_, difference)| *difference < tolerance), "{differences:?}");
}

#[test]
fn golden_logits_with_our_own_products() {
    let Some(gpu) = Gpu::open() else { return };
    assert_close(&differences(&gpu, MatmulChoice::Own, LoadOptions::default(), 2048), TOLERANCE);
}

#[test]
fn golden_logits_with_cublaslt() {
    let Some(gpu) = Gpu::open() else { return };
    if !gpu.has_cublaslt() {
        return;
    }
    assert_close(&differences(&gpu, MatmulChoice::CublasLt, LoadOptions::default(), 2048), TOLERANCE);
}

#[test]
fn golden_logits_in_chunks_that_cut_blocks_and_windows() {
    let Some(gpu) = Gpu::open() else { return };
    assert_close(&differences(&gpu, MatmulChoice::Own, LoadOptions::default(), 19), TOLERANCE);
}

#[test]
fn bf16_elements_compute_the_same_less_exactly() {
    let Some(gpu) = Gpu::open() else { return };
    let options = LoadOptions { element: Some(Element::Bf16), ..LoadOptions::default() };
    // Hugging Face's own bf16 differs from its float32 by up to 3.4e-2 on these checkpoints.
    assert_close(&differences(&gpu, MatmulChoice::Own, options, 2048), 4e-2);
}

#[test]
fn a_stopped_prefill_keeps_its_chunks_and_goes_on() {
    let Some(gpu) = Gpu::open() else { return };
    let path = golden_checkpoints().into_iter().find(|path| path.ends_with("mistral-window")).expect("there");
    let model = Model::open(&path).expect("a golden checkpoint");
    let weights = gpu.load(&model, LoadOptions::default());
    let mut prefill = gpu.prefill(&weights, 16, MatmulChoice::Own);
    let golden = Golden::all(&path).pop().expect("there");
    let mut cache = gpu.cache(&weights, golden.prompt.len());
    let stopped = prefill.run(&mut cache, 1, 0, &golden.prompt, PrefillLogits::Last, &mut |done| done < 32);
    let stopped = stopped.expect("two chunks");
    assert_eq!(stopped.tokens, 32);
    let vocab = model.config.vocab_size;
    assert!(relative_difference(&stopped.logits, &golden.logits[31 * vocab..32 * vocab]) < TOLERANCE);
    let rest = run(&mut prefill, &mut cache, 32, &golden.prompt[32..], PrefillLogits::All).expect("the rest");
    assert!(relative_difference(&rest, &golden.logits[32 * vocab..]) < TOLERANCE);
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let Some(gpu) = Gpu::open() else { return };
    let path = golden_checkpoints().swap_remove(0);
    let model = Model::open(&path).expect("a golden checkpoint");
    let weights = gpu.load(&model, LoadOptions { positions: Some(64), ..LoadOptions::default() });
    let mut prefill = gpu.prefill(&weights, 16, MatmulChoice::Own);
    let mut cache = gpu.cache(&weights, 96);
    let mut refused = |position: usize, tokens: &[u32]| {
        run(&mut prefill, &mut cache, position, tokens, PrefillLogits::Last).expect_err("impossible").to_string()
    };
    assert_eq!(refused(0, &[]), "a prefill of no tokens");
    assert_eq!(refused(0, &[512]), "`token` is 512, and at most 511 is possible");
    assert_eq!(refused(60, &[1; 5]), "`positions of a sequence` is 65, and at most 64 is possible");
    let error = prefill.run(&mut cache, 2, 0, &[1], PrefillLogits::Last, &mut |_| true).expect_err("no such sequence");
    assert_eq!(error.to_string(), "`sequence` is 2, and at most 1 is possible");
    let other = golden_checkpoints().into_iter().find(|path| path.ends_with("gemma3")).expect("there");
    let other = gpu.load(&Model::open(&other).expect("a golden checkpoint"), LoadOptions::default());
    let error = run(&mut prefill, &mut gpu.cache(&other, 64), 0, &[1], PrefillLogits::Last).expect_err("another model");
    assert_eq!(error.to_string(), "the cache of keys and values is that of another model");
    assert!(run(&mut prefill, &mut cache, 60, &[1; 4], PrefillLogits::Last).is_ok());
    let error = Prefill::new(&gpu.device, &gpu.compiler, weights, usize::MAX, MatmulChoice::Own).expect_err("too many");
    assert!(error.to_string().starts_with("`positions of a chunk` is "), "{error}");
}
