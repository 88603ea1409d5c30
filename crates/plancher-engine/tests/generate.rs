//! Requests on a backend whose logits depend on everything it holds: limits, stops, cancelling, and the reuse of a
//! conversation's cache.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::FakeBackend;
use plancher_engine::sampling::SamplingParams;
use plancher_engine::{EngineError, Event, FinishReason, Generation, Request, Sequence, generate};

fn letters(token: u32) -> Vec<u8> {
    vec![b'a' + (token % 26) as u8]
}

fn run(sequence: &mut Sequence, request: &Request) -> (Generation, String) {
    let mut shown = String::new();
    let generation = generate(sequence, request, &mut letters, &AtomicBool::new(false), &mut |event| {
        if let Event::Text(text) = event {
            shown.push_str(text);
        }
    });
    (generation.expect("a valid request"), shown)
}

fn sequence(capacity: usize) -> Sequence {
    Sequence::new(Box::new(FakeBackend::new(100, capacity)))
}

fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request { prompt: prompt.to_vec(), max_tokens: Some(max_tokens), ..Request::default() }
}

#[test]
fn the_first_token_costs_no_decode_step() {
    let (generation, shown) = run(&mut sequence(64), &request(&[1, 2, 3], 5));
    assert_eq!(generation.ids.len(), 5);
    assert_eq!(generation.finish_reason, FinishReason::Length);
    assert_eq!((generation.timing.steps, generation.timing.prompt_computed), (4, 3));
    // Steps attend to 4, 5, 6 and 7 positions.
    assert_eq!((generation.timing.context_sum, generation.timing.mean_context()), (22, 5));
    assert_eq!(shown, generation.text);
}

#[test]
fn no_tokens_are_generated_when_none_are_asked_for() {
    let (generation, _) = run(&mut sequence(64), &request(&[1], 0));
    assert_eq!((generation.ids.len(), generation.finish_reason), (0, FinishReason::Length));
}

#[test]
fn the_context_ends_a_generation() {
    // 5 positions, 3 of them prompt: logits after positions 3, 4 and 5 give three tokens.
    let unlimited = Request { max_tokens: None, ..request(&[1, 2, 3], 0) };
    let (generation, _) = run(&mut sequence(5), &unlimited);
    assert_eq!((generation.ids.len(), generation.finish_reason), (3, FinishReason::Length));
}

#[test]
fn an_end_token_ends_and_is_not_part_of_the_result() {
    let (all, _) = run(&mut sequence(64), &request(&[1, 2, 3], 6));
    let end = Request { end_tokens: vec![all.ids[3]], ..request(&[1, 2, 3], 6) };
    let first = all.ids.iter().position(|&token| token == all.ids[3]).expect("it is there");
    let (generation, _) = run(&mut sequence(64), &end);
    assert_eq!((&generation.ids[..], generation.finish_reason), (&all.ids[..first], FinishReason::Stop));
}

#[test]
fn a_stop_string_ends_and_is_not_shown() {
    let (all, _) = run(&mut sequence(64), &request(&[1, 2, 3], 8));
    let stop = Request { stop: vec![all.text[3..5].to_owned()], ..request(&[1, 2, 3], 8) };
    let (generation, shown) = run(&mut sequence(64), &stop);
    assert_eq!((generation.text.as_str(), generation.finish_reason), (&all.text[..3], FinishReason::Stop));
    assert_eq!(shown, generation.text);
    assert_eq!(generation.ids, all.ids[..5]);
}

#[test]
fn prompts_that_cannot_be_computed_are_refused_with_both_numbers() {
    let error = |prompt: &[u32]| {
        let cancel = AtomicBool::new(false);
        generate(&mut sequence(4), &request(prompt, 1), &mut letters, &cancel, &mut |_| {}).expect_err("refused")
    };
    assert_eq!(error(&[1; 9]).to_string(), "the prompt has 9 tokens but the context holds 4");
    assert_eq!(error(&[100]).to_string(), "token 100 is not in the model's vocabulary of 100");
    assert!(matches!(error(&[]), EngineError::EmptyPrompt));
}

#[test]
fn cancelling_keeps_what_was_produced() {
    let cancel = AtomicBool::new(false);
    let mut shown = 0;
    let generation = generate(&mut sequence(64), &request(&[1], 50), &mut letters, &cancel, &mut |event| {
        if matches!(event, Event::Text(text) if !text.is_empty()) {
            shown += 1;
            cancel.store(shown == 3, Ordering::Relaxed);
        }
    })
    .expect("a valid request");
    assert_eq!((generation.ids.len(), generation.finish_reason), (3, FinishReason::Cancelled));
}

#[test]
fn cancelling_a_prompt_leaves_a_sequence_that_can_go_on() {
    let prompt: Vec<u32> = (0..20).collect();
    let mut interrupted = sequence(64);
    let cancel = AtomicBool::new(false);
    let generation = generate(&mut interrupted, &request(&prompt, 5), &mut letters, &cancel, &mut |event| {
        if matches!(event, Event::Prefill { done, .. } if done >= 8) {
            cancel.store(true, Ordering::Relaxed);
        }
    })
    .expect("a valid request");
    assert_eq!((generation.ids.len(), generation.finish_reason), (0, FinishReason::Cancelled));
    let (resumed, _) = run(&mut interrupted, &request(&prompt, 5));
    assert_eq!(resumed.timing.prompt_reused, 8);
    assert_eq!(resumed.ids, run(&mut sequence(64), &request(&prompt, 5)).0.ids);
}

#[test]
fn a_conversation_reuses_its_cache_and_says_the_same() {
    let mut conversation = sequence(200);
    let mut prompt: Vec<u32> = vec![5, 6, 7];
    for turn in 0..4u32 {
        let sampling =
            SamplingParams { temperature: 0.9, top_k: 10, seed: u64::from(turn), ..SamplingParams::default() };
        let request = Request { sampling, logprobs: Some(2), ..request(&prompt, 6) };
        let (kept, _) = run(&mut conversation, &request);
        let (fresh, _) = run(&mut sequence(200), &request);
        assert_eq!((&kept.ids, &kept.logprobs), (&fresh.ids, &fresh.logprobs));
        assert_eq!(kept.timing.prompt_reused > 0, turn > 0);
        prompt.extend(&kept.ids);
        prompt.extend([90 + turn, 3]);
    }
    // The same prompt again: only its last token is computed. A different one from its second token on: all but one.
    assert_eq!(run(&mut conversation, &request(&prompt, 1)).0.timing.prompt_computed, 3);
    assert_eq!(run(&mut conversation, &request(&prompt, 1)).0.timing.prompt_computed, 1);
    prompt[1] += 1;
    assert_eq!(run(&mut conversation, &request(&prompt, 1)).0.timing.prompt_computed, prompt.len() - 1);
}

#[test]
fn greedy_tokens_are_the_most_likely_ones() {
    let (generation, _) = run(&mut sequence(64), &Request { logprobs: Some(3), ..request(&[9], 10) });
    assert_eq!(generation.logprobs.len(), 10);
    for (entry, &id) in generation.logprobs.iter().zip(&generation.ids) {
        assert_eq!((entry.token, entry.top.len()), (id, 3));
        assert_eq!(entry.top[0], (id, entry.logprob));
        assert!(entry.logprob < 0.0);
    }
}
