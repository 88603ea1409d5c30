//! The megakernel on a GPU: its packed weights against the plan's packer, its logits and tokens against Hugging Face's and the
//! graph's, its draws against the graph's own choice from the same logits.

use std::path::Path;
use std::sync::Arc;

use plancher_cuda::{
    DecodeOptions, Decoder, DeviceMatrix, DeviceWeights, Element, Executor, LoadOptions, MegaOptions, Sampling,
};
use plancher_model::Model;
use plancher_program::gpu::{Plan, Product, RowMajorBits, Target};

use crate::common::{Golden, Gpu, golden_checkpoints, relative_difference};

/// Positions of a sequence.
pub(crate) const POSITIONS: usize = 256;
/// The bar of the fast executors.
const TOLERANCE: f64 = 1e-2;

/// A decoder with a megakernel; nothing for a model that it does not take.
pub(crate) fn decoder(gpu: &Gpu, weights: &Arc<DeviceWeights>, positions: usize) -> Option<Decoder> {
    let options = DecodeOptions { sequences: 1, positions, executor: Executor::Auto, ..DecodeOptions::default() };
    let decoder = Decoder::new(&gpu.device, &gpu.compiler, Arc::clone(weights), options).expect("a small model");
    if let Some(refusal) = decoder.refusal() {
        assert_eq!(decoder.executor(), Executor::Graph);
        let reason =
            Plan::new(weights.config(), Target::h200(positions)).expect_err("only what no plan can be made for");
        assert_eq!(refusal.to_string(), reason.to_string());
        return None;
    }
    assert_eq!(decoder.executor(), Executor::Mega);
    Some(decoder)
}

/// Every golden model that the megakernel takes, with its prompts. They are made at the same time: each needs a kernel of
/// its own.
pub(crate) fn models(gpu: &Gpu) -> Vec<(String, Decoder, Vec<Golden>)> {
    let make = |checkpoint: &Path| {
        let model = Model::open(checkpoint).expect("a golden checkpoint");
        let decoder = decoder(gpu, &gpu.load(&model, LoadOptions::default()), POSITIONS)?;
        Some((checkpoint.display().to_string(), decoder, Golden::all(checkpoint)))
    };
    let checkpoints = golden_checkpoints();
    let taken: Vec<_> = std::thread::scope(|scope| {
        let made: Vec<_> = checkpoints.iter().map(|checkpoint| scope.spawn(|| make(checkpoint))).collect();
        made.into_iter().filter_map(|made| made.join().expect("a small model")).collect()
    });
    assert!(taken.len() >= 12, "the megakernel takes only {} of the golden models", taken.len());
    taken
}

/// Logits of all positions of `tokens`, one step each.
pub(crate) fn teach(decoder: &mut Decoder, tokens: &[u32]) -> Vec<f32> {
    decoder.truncate(0, 0);
    tokens.iter().flat_map(|&token| decoder.decode(&[token]).expect("a step").to_vec()).collect()
}

/// `count` tokens of the loop after `prompt`.
pub(crate) fn continue_prompt(decoder: &mut Decoder, prompt: &[u32], settings: Sampling, count: usize) -> Vec<u32> {
    teach(decoder, prompt);
    decoder.start(&[settings], &[prompt], count, &[]).expect("room");
    let tokens = (0..count).map(|_| next(decoder)).collect();
    decoder.stop(prompt.len()).expect("it stops");
    tokens
}

pub(crate) fn next(decoder: &mut Decoder) -> u32 {
    decoder.next_tokens().expect("a token")[0].expect("finite")
}

fn argmax(logits: &[f32]) -> usize {
    // The first of equals, as samplers choose.
    let best = logits.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index)
}

fn matrix(weights: &DeviceWeights, product: Product, layer: usize) -> &DeviceMatrix {
    match product {
        Product::QueryKeyValue => &weights.layers()[layer].query_key_value,
        Product::Output => &weights.layers()[layer].attention_output,
        Product::GateUp => &weights.layers()[layer].gate_up,
        Product::Down => &weights.layers()[layer].down,
        Product::Head => weights.head(),
    }
}

#[test]
fn the_device_packs_as_the_plan_does() {
    let Some(gpu) = Gpu::open() else { return };
    for (name, decoder, _) in models(&gpu) {
        let plan = decoder.mega_plan().expect("a plan");
        let weights = decoder.weights();
        let mut current = None;
        // By matrix, so that each is fetched once for all workers.
        let stages =
            (0..plan.stream_stages()).flat_map(|stage| (0..plan.workers.len()).map(move |worker| (worker, stage)));
        for (worker, stage) in stages {
            let Some(location) = plan.locate(worker, stage) else { continue };
            let key = (location.product, location.layer);
            if current.as_ref().is_none_or(|(of, _, _)| *of != key) {
                let matrix = matrix(weights, location.product, location.layer);
                current = Some((key, matrix.elements.download().expect("elements"), matrix.stride));
            }
            let Some((_, elements, stride)) = &current else { continue };
            let expected = location.pack(RowMajorBits { elements, stride: *stride });
            let got = decoder.mega_stage(worker, stage).expect("a stage");
            assert!(got == expected, "{name}: stage {stage} of worker {worker}: {location:?}");
        }
    }
}

#[test]
fn logits_are_hugging_faces_and_bits_repeat() {
    let Some(gpu) = Gpu::open() else { return };
    for (name, mut decoder, goldens) in models(&gpu) {
        let vocab = decoder.weights().config().vocab_size;
        let (mut worst, mut from_graph) = (0.0_f64, 0.0_f64);
        for (index, golden) in goldens.iter().enumerate() {
            decoder.set_executor(Executor::Graph).expect("it is always there");
            let graph = teach(&mut decoder, &golden.prompt);
            decoder.set_executor(Executor::Mega).expect("it was made");
            let mega = teach(&mut decoder, &golden.prompt);
            let rows = mega.chunks(vocab).zip(golden.logits.chunks(vocab)).zip(graph.chunks(vocab));
            for (position, ((got, expected), graph)) in rows.enumerate() {
                let error = relative_difference(got, expected);
                worst = worst.max(error);
                from_graph = from_graph.max(relative_difference(got, graph));
                assert!(error < TOLERANCE, "{name}, prompt {index}, position {position}: logits differ by {error:.2e}");
            }
            assert!(teach(&mut decoder, &golden.prompt) == mega, "{name}, prompt {index}: other bits");
        }
        println!("{name}: {worst:.1e} from Hugging Face, {from_graph:.1e} from the graph");
    }
}

#[test]
fn greedy_tokens_are_the_graphs_however_launches_are_cut() {
    let Some(gpu) = Gpu::open() else { return };
    for (name, mut decoder, goldens) in models(&gpu) {
        let vocab = decoder.weights().config().vocab_size;
        let prompt = &goldens.last().expect("a prompt").prompt;
        let count = 96.min(POSITIONS - prompt.len());
        let tokens = continue_prompt(&mut decoder, prompt, Sampling::GREEDY, count);
        for tokens_per_launch in [1, 7] {
            decoder.set_mega_options(MegaOptions { tokens_per_launch, ..MegaOptions::default() });
            let again = continue_prompt(&mut decoder, prompt, Sampling::GREEDY, count);
            assert_eq!(again, tokens, "{name}: {tokens_per_launch} tokens a launch");
        }
        // Each token is the graph's choice too, unless two are as good.
        decoder.set_executor(Executor::Graph).expect("it is always there");
        let forced = [prompt, &tokens[..]].concat();
        let graph = teach(&mut decoder, &forced);
        let after_prompt = graph.chunks(vocab).skip(prompt.len() - 1);
        for (index, (&token, logits)) in tokens.iter().zip(after_prompt).enumerate() {
            let best = argmax(logits);
            let scale = logits.iter().fold(0.0_f32, |scale, logit| scale.max(logit.abs()));
            let gap = logits[best] - logits[token as usize];
            assert!(gap <= 1e-2 * scale, "{name}, token {index}: {token} and not {best}, which is better by {gap}");
        }
        decoder.set_executor(Executor::Mega).expect("it was made");
        let last = *prompt.last().expect("tokens");
        teach(&mut decoder, &prompt[..prompt.len() - 1]);
        let times = decoder.run(&[last], count).expect("room");
        assert!(times.device > 0.0 && times.wall >= times.device);
        let measured = decoder.last_logits(1).expect("logits").to_vec();
        let stepwise = teach(&mut decoder, &forced[..prompt.len() + count - 1]);
        assert!(measured == stepwise[stepwise.len() - vocab..], "{name}: a measured run computes something else");
    }
}

#[test]
fn draws_are_the_graphs_from_the_same_logits() {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let Some(gpu) = Gpu::open() else { return };
    let plain = Sampling { temperature: 1.0, seed: 1, ..Sampling::GREEDY };
    let all = [
        plain,
        Sampling { temperature: 0.7, seed: 2, ..plain },
        Sampling { top_k: 5, seed: 3, ..plain },
        Sampling { top_k: 300, seed: 9, temperature: 3.0, ..plain },
        Sampling { top_p: 0.5, seed: 4, ..plain },
        Sampling { top_p: 0.9, top_k: 40, min_p: 0.1, temperature: 1.5, seed: 5, ..plain },
        Sampling { min_p: 0.3, seed: 6, ..plain },
        Sampling { repetition_penalty: 1.5, temperature: 0.8, top_k: 20, seed: 7, ..plain },
        Sampling { repetition_penalty: 1.3, temperature: 0.0, ..plain },
        Sampling { temperature: 100.0, seed: 8, ..plain },
    ];
    for (name, mut decoder, goldens) in models(&gpu) {
        let prompt = &goldens.last().expect("a prompt").prompt;
        for settings in all {
            let drawn = continue_prompt(&mut decoder, prompt, settings, 24);
            // One token at a time: the first token of a loop is chosen by the kernel that the graph ends with.
            teach(&mut decoder, prompt);
            let mut history = prompt.clone();
            for (index, &token) in drawn.iter().enumerate() {
                let seed = settings.seed.wrapping_add(STEP.wrapping_mul(index as u64));
                decoder.start(&[Sampling { seed, ..settings }], &[&history], 1, &[]).expect("room");
                assert_eq!(next(&mut decoder), token, "{name}, {settings:?}, token {index}");
                decoder.stop(history.len()).expect("it stops");
                decoder.decode(&[token]).expect("a step");
                history.push(token);
            }
            assert_eq!(
                continue_prompt(&mut decoder, prompt, settings, 24),
                drawn,
                "{name}, {settings:?}: not repeated"
            );
        }
    }
}

#[test]
fn long_contexts_agree_across_pages_and_splits() {
    const LONG: usize = 1200;
    let Some(gpu) = Gpu::open() else { return };
    let check = |checkpoint: &Path, element: Element| {
        let model = Model::open(checkpoint).expect("a golden checkpoint");
        assert!(model.config.context_length >= LONG, "{} is made for short contexts", checkpoint.display());
        let options = LoadOptions { element: Some(element), ..LoadOptions::default() };
        let Some(mut decoder) = decoder(&gpu, &gpu.load(&model, options), LONG) else { return };
        // Inputs of products are rounded to the type, at other places.
        let tolerance = if element == Element::Bf16 { 8.0 * TOLERANCE } else { TOLERANCE };
        let vocab = model.config.vocab_size as u32;
        let token = |position: usize| (position as u32).wrapping_mul(2_654_435_761) % vocab;
        let name = format!("{} as {element}", checkpoint.display());
        let mut worst = 0.0_f64;
        for position in 0..LONG {
            let border = position % 256 < 3 || position % 256 > 252 || position % 32 == 31 || position % 37 == 0;
            decoder.set_executor(Executor::Graph).expect("it is always there");
            let graph = decoder.decode(&[token(position)]).expect("a step").to_vec();
            if border {
                decoder.set_executor(Executor::Mega).expect("it was made");
                decoder.truncate(0, position);
                let mega = decoder.decode(&[token(position)]).expect("a step");
                let error = relative_difference(mega, &graph);
                worst = worst.max(error);
                assert!(error < tolerance, "{name}, position {position}: {error:.2e}");
            }
        }
        println!("{name}: {worst:.1e} from the graph over {LONG} positions");
        // A whole launch over the borders.
        decoder.set_executor(Executor::Mega).expect("it was made");
        decoder.truncate(0, 250);
        decoder.decode(&[token(250)]).expect("a step");
        decoder.start(&[Sampling::GREEDY], &[&[]], 300, &[]).expect("room");
        let tokens: Vec<u32> = (0..300).map(|_| next(&mut decoder)).collect();
        decoder.stop(251).expect("it stops");
        let mut last = Vec::new();
        for &token in &tokens[..299] {
            last = decoder.decode(&[token]).expect("a step").to_vec();
        }
        assert_eq!(argmax(&last), tokens[299] as usize, "{name}");
    };
    let (checkpoints, check) = (golden_checkpoints(), &check);
    std::thread::scope(|scope| {
        for checkpoint in &checkpoints {
            for element in [Element::F16, Element::Bf16] {
                scope.spawn(move || check(checkpoint, element));
            }
        }
    });
}
