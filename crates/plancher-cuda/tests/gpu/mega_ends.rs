//! How the megakernel ends: at end tokens, when it is told to in the middle of a launch, a thousand times over, and when what a
//! worker waits for does not come.

use plancher_cuda::{CudaError, DecodeOptions, Decoder, Executor, MegaOptions, Sampling};
use plancher_program::gpu::{Instruction, Operation};

use crate::common::Gpu;
use crate::mega::{POSITIONS, continue_prompt, models, next, teach};

#[test]
fn end_tokens_end_a_launch_and_more_can_be_asked_for() {
    let Some(gpu) = Gpu::open() else { return };
    for (name, mut decoder, goldens) in models(&gpu) {
        let prompt = &goldens.last().expect("a prompt").prompt;
        let expected = continue_prompt(&mut decoder, prompt, Sampling::GREEDY, 40);
        // As many as the kernel minds, and some more.
        let mut ends: Vec<u32> = (1_000_000..1_000_040).collect();
        for end in [expected[0], expected[7], expected[39]] {
            ends[3] = end;
            teach(&mut decoder, prompt);
            decoder.start(&[Sampling::GREEDY], &[&[]], 40, &ends).expect("room");
            let tokens: Vec<u32> = (0..40).map(|_| next(&mut decoder)).collect();
            assert_eq!(tokens, expected, "{name}, ending at {end}");
            decoder.next_tokens().expect_err("all 40 were read");
            decoder.stop(0).expect("it stops");
        }
    }
}

#[test]
fn a_thousand_starts_and_stops_in_the_middle_of_launches() {
    let Some(gpu) = Gpu::open() else { return };
    let (name, mut decoder, goldens) = models(&gpu).into_iter().next().expect("a model");
    let prompt = &goldens.last().expect("a prompt").prompt;
    let most = POSITIONS - prompt.len();
    let expected = continue_prompt(&mut decoder, prompt, Sampling::GREEDY, most);
    teach(&mut decoder, prompt);
    for round in 0..1000 {
        let read = round % 6;
        decoder.start(&[Sampling::GREEDY], &[&[]], most, &[]).expect("room");
        let tokens: Vec<u32> = (0..read).map(|_| next(&mut decoder)).collect();
        assert_eq!(tokens, expected[..read], "{name}, round {round}");
        decoder.stop(usize::MAX).expect("it stops");
        assert_eq!(decoder.position(0), prompt.len() + read.saturating_sub(1), "what was read and no more is kept");
        // The last token's logits again, from which the next round chooses.
        decoder.truncate(0, prompt.len() - 1);
        decoder.decode(&prompt[prompt.len() - 1..]).expect("a step");
    }
}

#[test]
fn a_loop_can_be_left_by_anything_else() {
    let Some(gpu) = Gpu::open() else { return };
    let (name, mut decoder, goldens) = models(&gpu).into_iter().next().expect("a model");
    let prompt = &goldens.last().expect("a prompt").prompt;
    let logits = teach(&mut decoder, prompt);
    let begin = |decoder: &mut Decoder| {
        teach(decoder, prompt);
        decoder.start(&[Sampling::GREEDY], &[&[]], POSITIONS - prompt.len(), &[]).expect("room");
        (next(decoder), next(decoder))
    };
    let first = begin(&mut decoder);
    // Decoding, another loop, a measured run and the other executor each end it.
    assert!(teach(&mut decoder, prompt) == logits, "{name}: decoding after a loop that was left");
    begin(&mut decoder);
    assert_eq!(begin(&mut decoder), first, "{name}: a second loop");
    decoder.truncate(0, 1);
    decoder.run(&[1], 8).expect("room");
    begin(&mut decoder);
    decoder.set_executor(Executor::Graph).expect("it is always there");
    decoder.set_executor(Executor::Mega).expect("it was made");
    assert_eq!(begin(&mut decoder), first, "{name}: after the graph");
    begin(&mut decoder);
    drop(decoder);
    gpu.device.synchronize().expect("nothing is left running");
}

#[test]
fn what_does_not_come_is_named_and_the_next_request_runs() {
    let Some(gpu) = Gpu::open() else { return };
    for (name, mut decoder, goldens) in models(&gpu) {
        let prompt = &goldens.last().expect("a prompt").prompt;
        let expected = continue_prompt(&mut decoder, prompt, Sampling::GREEDY, 8);
        let plan = decoder.mega_plan().expect("a plan").clone();
        let skipped = [Operation::QueryKeyValue, Operation::Output, Operation::GateUp, Operation::Down];
        for operation in skipped {
            // The worker does nothing where it should compute its rows of the last layer, which nobody else has.
            let layer = plan.shape.layers - 1;
            let is_it = |i: &Instruction| i.operation == operation && usize::from(i.layer) == layer;
            let found = plan
                .workers
                .iter()
                .enumerate()
                .find_map(|(worker, list)| Some((worker, list.instructions.iter().position(is_it)?)));
            let (worker, index) = found.expect("somebody computes it");
            let original = plan.workers[worker].instructions[index];
            let nothing = Instruction { operation: Operation::Embed, first: 0, count: 0, stages: 0, ..original };
            // Soon: 2^14 polls.
            decoder.set_mega_options(MegaOptions { patience: 1 << 14, ..MegaOptions::default() });
            teach_some(&mut decoder, prompt);
            // SAFETY: an instruction without rows and stages touches nothing.
            unsafe { decoder.set_mega_instruction(worker, index, nothing.words()).expect("there") };
            let error = decoder.decode(&prompt[..1]).expect_err("it cannot end well");
            assert!(matches!(error, CudaError::Stalled { .. }), "{name}: {error}");
            println!("{name}, {operation} of worker {worker} left out: {error}");
            // A loop begins with logits that are right.
            teach_some(&mut decoder, prompt);
            decoder.start(&[Sampling::GREEDY], &[&[]], 8, &[]).expect("room");
            let failed = (0..8).map(|_| decoder.next_tokens()).find_map(Result::err).expect("nor can a loop");
            assert!(matches!(failed, CudaError::Stalled { .. }), "{name}: {failed}");
            decoder.stop(0).expect("the device is well");
            // SAFETY: the plan's own instruction.
            unsafe { decoder.set_mega_instruction(worker, index, original.words()).expect("there") };
            decoder.set_mega_options(MegaOptions::default());
            assert_eq!(continue_prompt(&mut decoder, prompt, Sampling::GREEDY, 8), expected, "{name}: after {error}");
        }
    }
}

/// Puts something into the cache without the megakernel.
fn teach_some(decoder: &mut Decoder, prompt: &[u32]) {
    decoder.set_executor(Executor::Graph).expect("it is always there");
    teach(decoder, &prompt[..2]);
    decoder.set_executor(Executor::Mega).expect("it was made");
}

#[test]
fn asking_for_it_where_it_cannot_be_is_an_error_of_one_line() {
    let Some(gpu) = Gpu::open() else { return };
    let (_, decoder, _) = models(&gpu).into_iter().next().expect("a model");
    let graph = DecodeOptions { sequences: 1, positions: 64, executor: Executor::Graph, ..DecodeOptions::default() };
    let weights = std::sync::Arc::clone(decoder.weights());
    let mut decoder = Decoder::new(&gpu.device, &gpu.compiler, weights, graph).expect("a small model");
    let error = decoder.set_executor(Executor::Mega).expect_err("it was not made");
    assert_eq!(error.to_string(), "the megakernel was not planned for");
    assert_eq!((decoder.executor(), decoder.mega_plan()), (Executor::Graph, None));
}
