//! The decode step on a GPU against Hugging Face's logits, at several batch sizes; the loop on the device against the
//! same steps one by one.

use std::path::Path;
use std::sync::Arc;

use plancher_cuda::{CudaError, DecodeOptions, Decoder, DeviceWeights, Executor, LoadOptions, Sampling};
use plancher_model::Model;

use crate::common::{Golden, Gpu, golden_checkpoints, relative_difference};

/// The bar of the fast executors.
const TOLERANCE: f64 = 1e-2;

fn decoder(gpu: &Gpu, weights: &Arc<DeviceWeights>, sequences: usize) -> Decoder {
    let options = DecodeOptions {
        sequences,
        positions: 256,
        cache_budget: None,
        executor: Executor::Graph,
        ..DecodeOptions::default()
    };
    Decoder::new(&gpu.device, &gpu.compiler, Arc::clone(weights), options).expect("a small model")
}

fn load(gpu: &Gpu, checkpoint: &Path) -> Arc<DeviceWeights> {
    gpu.load(&Model::open(checkpoint).expect("a golden checkpoint"), LoadOptions::default())
}

fn argmax(logits: &[f32]) -> u32 {
    // The first of equals, as samplers choose.
    let best = logits.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index as u32)
}

/// The logits of `sequence` when each position of all sequences is decoded at once; the others get other tokens.
fn decode_all(decoder: &mut Decoder, tokens: &[u32], batch: usize, sequence: usize) -> Vec<f32> {
    let vocab = decoder.weights().config().vocab_size;
    (0..batch).for_each(|sequence| decoder.truncate(sequence, 0));
    let mut all = Vec::new();
    for (position, &token) in tokens.iter().enumerate() {
        let mut step: Vec<u32> = (0..batch).map(|other| ((7 * position + 13 * other) % vocab) as u32).collect();
        step[sequence] = token;
        let logits = decoder.decode(&step).expect("a step");
        all.extend_from_slice(&logits[sequence * vocab..][..vocab]);
    }
    all
}

#[test]
fn golden_logits_at_every_batch_size_bit_for_bit() {
    let Some(gpu) = Gpu::open() else { return };
    for checkpoint in golden_checkpoints() {
        let weights = load(&gpu, &checkpoint);
        let vocab = weights.config().vocab_size;
        let mut decoder = decoder(&gpu, &weights, 8);
        for (index, golden) in Golden::all(&checkpoint).iter().enumerate() {
            let alone = decode_all(&mut decoder, &golden.prompt, 1, 0);
            for (position, (got, expected)) in alone.chunks(vocab).zip(golden.logits.chunks(vocab)).enumerate() {
                let error = relative_difference(got, expected);
                let place = format!("{}, prompt {index}, position {position}", checkpoint.display());
                assert!(error < TOLERANCE, "{place}: logits differ by {error:.2e}");
            }
            for (batch, sequence) in [(1, 0), (3, 2), (8, 5)] {
                let together = decode_all(&mut decoder, &golden.prompt, batch, sequence);
                assert!(alone == together, "{}: sequence {sequence} of {batch} differs", checkpoint.display());
            }
        }
        println!("{} agrees", checkpoint.display());
    }
}

#[test]
fn the_loop_on_the_device_takes_the_steps_that_the_host_would() {
    let Some(gpu) = Gpu::open() else { return };
    for checkpoint in golden_checkpoints() {
        let weights = load(&gpu, &checkpoint);
        let vocab = weights.config().vocab_size;
        let mut decoder = decoder(&gpu, &weights, 2);
        for prompt in Golden::all(&checkpoint).iter().map(|golden| &golden.prompt) {
            let mut last = decode_all(&mut decoder, prompt, 2, 0);
            last.drain(..last.len() - vocab);
            let mut expected = vec![argmax(&last)];
            while expected.len() < 32 {
                let next = *expected.last().expect("it begins with one");
                expected.push(argmax(&decoder.decode(&[next]).expect("a step")[..vocab]));
            }

            decode_all(&mut decoder, prompt, 2, 0);
            decoder.start(&[Sampling::GREEDY], &[&[]], 32, &[]).expect("room for 32 tokens");
            let got: Vec<u32> = (0..32).map(|_| decoder.next_tokens().expect("a token")[0].expect("finite")).collect();
            assert_eq!(got, expected, "{}", checkpoint.display());
            decoder.stop(prompt.len() + 3).expect("it stops");
            assert_eq!(decoder.position(0), prompt.len() + 3);
            let after = argmax(&decoder.decode(&[expected[3]]).expect("a step")[..vocab]);
            assert_eq!(after, expected[4], "{}: cut back", checkpoint.display());

            // Penalised, and with a temperature so low that only the maximum can be drawn: through the other kernel.
            decode_all(&mut decoder, prompt, 2, 0);
            let cold = Sampling { temperature: 1e-6, top_k: 50, top_p: 0.9, min_p: 0.1, seed: 7, ..Sampling::GREEDY };
            decoder.start(&[cold], &[prompt], 32, &[]).expect("room for 32 tokens");
            let drawn: Vec<u32> =
                (0..32).map(|_| decoder.next_tokens().expect("a token")[0].expect("finite")).collect();
            decoder.stop(0).expect("it stops");
            assert_eq!(drawn, expected, "{}: drawn", checkpoint.display());
        }
        let times = decoder.run(&[1, 2], 16).expect("two sequences, 16 steps");
        assert!(times.device > 0.0 && times.wall >= times.device);
    }
}

#[test]
fn golden_logits_of_more_sequences_than_the_vector_kernel_takes() {
    let Some(gpu) = Gpu::open() else { return };
    for checkpoint in golden_checkpoints() {
        let weights = load(&gpu, &checkpoint);
        let golden = Golden::all(&checkpoint).pop().expect("a prompt");
        let alone = decode_all(&mut decoder(&gpu, &weights, 1), &golden.prompt, 1, 0);
        let mut decoder = decoder(&gpu, &weights, 17);
        for (batch, sequence) in [(9, 4), (17, 16)] {
            let together = decode_all(&mut decoder, &golden.prompt, batch, sequence);
            let error = relative_difference(&together, &golden.logits);
            println!("{}: sequence {sequence} of {batch}: {error:.1e}", checkpoint.display());
            assert!(error < TOLERANCE, "{}, {batch} sequences: logits differ by {error:.2e}", checkpoint.display());
        }
        // A wide step leaves nothing behind that a narrow one would read.
        let together = decode_all(&mut decoder, &golden.prompt, 3, 2);
        assert!(alone == together, "{}: a narrow step after wide ones differs", checkpoint.display());
    }
}

#[test]
fn the_loop_on_the_device_takes_the_steps_of_many_sequences_too() {
    let Some(gpu) = Gpu::open() else { return };
    let checkpoint = &golden_checkpoints()[0];
    let weights = load(&gpu, checkpoint);
    let vocab = weights.config().vocab_size;
    let (batch, steps) = (9, 12);
    let mut decoder = decoder(&gpu, &weights, batch);
    let prompt = Golden::all(checkpoint).pop().expect("a prompt").prompt;
    let argmaxes = |logits: &[f32]| -> Vec<u32> { logits.chunks(vocab).map(argmax).collect() };

    decode_all(&mut decoder, &prompt, batch, 4);
    let mut expected = vec![argmaxes(decoder.last_logits(batch).expect("logits"))];
    while expected.len() < steps {
        let next = argmaxes(decoder.decode(&expected[expected.len() - 1]).expect("a step"));
        expected.push(next);
    }
    decode_all(&mut decoder, &prompt, batch, 4);
    decoder.start(&[Sampling::GREEDY; 9], &[&[][..]; 9], steps, &[]).expect("room");
    for (step, expected) in expected.iter().enumerate() {
        let got: Vec<u32> =
            decoder.next_tokens().expect("tokens").into_iter().map(|token| token.expect("finite")).collect();
        assert_eq!(got, *expected, "step {step}");
    }
    decoder.stop(0).expect("it stops");
    let times = decoder.run(&[1; 9], 4).expect("nine sequences, four steps");
    assert!(times.device > 0.0);
}

#[test]
fn what_does_not_fit_is_refused_and_the_decoder_goes_on() {
    let Some(gpu) = Gpu::open() else { return };
    let checkpoint = &golden_checkpoints()[0];
    let weights = load(&gpu, checkpoint);
    let mut decoder = decoder(&gpu, &weights, 1);
    let full = decoder.start(&[Sampling::GREEDY], &[&[]], 1000, &[]).expect_err("256 positions");
    assert_eq!(full.to_string(), "`positions of a sequence` is 999, and at most 256 is possible");
    decoder.decode(&[1, 2]).expect_err("one sequence");
    decoder.next_tokens().expect_err("no loop was started");
    decoder.decode(&[1]).expect("a step");
    let options = DecodeOptions {
        sequences: 1,
        positions: 256,
        cache_budget: Some(1000),
        executor: Executor::Graph,
        ..DecodeOptions::default()
    };
    let small = Decoder::new(&gpu.device, &gpu.compiler, Arc::clone(&weights), options).expect_err("1000 bytes");
    assert!(matches!(small, CudaError::OutOfMemory { free: 1000, .. }), "{small}");
}
