//! A backend that samples by itself and runs ahead: requests must give the tokens of the host's sampler, end at the
//! same token for the same reason, and leave the cache as if nobody had run ahead.

mod common;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::FakeBackend;
use plancher_engine::sampling::{Sampler, SamplingParams};
use plancher_engine::{
    Backend, BackendError, BatchDecode, BenchCase, EngineError, Event, FinishReason, Generation, LogitsOf, Request,
    Sequence, StepTimes, TokenLoop, bench, generate,
};

/// A `FakeBackend` with a loop that is always `ahead` tokens ahead, and batches.
struct LoopBackend {
    inner: FakeBackend,
    ahead: usize,
    running: Option<Running>,
    /// Loops that were started, for the test to see that they were.
    started: Rc<Cell<usize>>,
    /// Fails at this position.
    fails_at: usize,
    sequences: Vec<FakeBackend>,
    logits: Vec<f32>,
}

struct Running {
    sampler: Sampler,
    left: usize,
    /// Chosen, not yet asked for.
    ready: VecDeque<Option<u32>>,
    last: Option<u32>,
    logits: Vec<f32>,
}

impl LoopBackend {
    fn new(capacity: usize, ahead: usize) -> Self {
        let inner = FakeBackend::new(100, capacity);
        let (running, started, sequences, logits) = (None, Rc::default(), Vec::new(), Vec::new());
        Self { inner, ahead, running, started, fails_at: usize::MAX, sequences, logits }
    }
}

impl Backend for LoopBackend {
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }
    fn capacity(&self) -> usize {
        self.inner.capacity()
    }
    fn position(&self) -> usize {
        self.inner.position()
    }
    fn truncate(&mut self, position: usize) {
        assert!(self.running.is_none(), "the loop is stopped first");
        self.inner.truncate(position);
    }
    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        assert!(self.running.is_none(), "the loop is stopped first");
        self.logits = self.inner.prefill(tokens, logits, progress)?.to_vec();
        Ok(&self.logits)
    }
    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        self.inner.decode(token)
    }
    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        Ok(4000.0)
    }
    fn token_loop(&mut self) -> Option<&mut dyn TokenLoop> {
        Some(self)
    }
    fn batch(&mut self) -> Option<&mut dyn BatchDecode> {
        Some(self)
    }
}

impl TokenLoop for LoopBackend {
    fn start(&mut self, params: SamplingParams, history: &[u32], most: usize, _: &[u32]) -> Result<(), BackendError> {
        assert!(self.running.is_none() && most >= 1, "one loop at a time");
        assert!(self.inner.position() + most - 1 <= self.inner.capacity(), "the context's end is minded");
        let mut sampler = Sampler::new(params)?;
        for &token in history {
            sampler.observe(token);
        }
        let (ready, logits) = (VecDeque::new(), self.logits.clone());
        self.running = Some(Running { sampler, left: most, ready, last: None, logits });
        self.started.set(self.started.get() + 1);
        Ok(())
    }

    fn next_token(&mut self) -> Result<Option<u32>, BackendError> {
        let running = self.running.as_mut().expect("started");
        while running.left > 0 && running.ready.len() <= self.ahead {
            if self.inner.position() >= self.fails_at {
                return Err("kernel `step` failed".into());
            }
            if let Some(last) = running.last {
                running.sampler.observe(last);
                running.logits = self.inner.decode(last)?.to_vec();
            }
            running.last = running.sampler.sample(&mut running.logits);
            running.ready.push_back(running.last);
            running.left -= 1;
        }
        Ok(running.ready.pop_front().expect("no more are asked for than was said"))
    }

    fn stop(&mut self, position: usize) -> Result<(), BackendError> {
        self.running = None;
        assert!(position <= self.inner.position(), "every token asked for was fed to the next step");
        self.inner.truncate(position);
        Ok(())
    }
}

impl BatchDecode for LoopBackend {
    fn most(&self) -> usize {
        4
    }
    fn fill(&mut self, prompts: &[Vec<u32>]) -> Result<(), BackendError> {
        self.sequences = prompts.iter().map(|_| FakeBackend::new(100, self.inner.capacity())).collect();
        for (sequence, prompt) in self.sequences.iter_mut().zip(prompts).filter(|(_, prompt)| !prompt.is_empty()) {
            sequence.prefill(prompt, LogitsOf::Last, &mut |_| true)?;
        }
        Ok(())
    }
    fn decode(&mut self, first: &[u32], steps: usize) -> Result<StepTimes, BackendError> {
        self.logits.clear();
        for (sequence, &first) in self.sequences.iter_mut().zip(first) {
            let mut token = first;
            for step in 0..steps {
                let mut logits = sequence.decode(token)?.to_vec();
                token = Sampler::new(SamplingParams::default())?.sample(&mut logits).expect("finite");
                if step + 1 == steps {
                    self.logits.append(&mut logits);
                }
            }
        }
        Ok(StepTimes { device: 1e-3 * steps as f64, wall: 2e-3 * steps as f64 })
    }
    fn logits(&mut self) -> Result<&[f32], BackendError> {
        Ok(&self.logits)
    }
}

fn letters(token: u32) -> Vec<u8> {
    vec![b'a' + (token % 26) as u8]
}

fn run(sequence: &mut Sequence, request: &Request) -> (Generation, Vec<u32>) {
    let generation = generate(sequence, request, &mut letters, &AtomicBool::new(false), &mut |_| {});
    (generation.expect("a valid request"), sequence.tokens().to_vec())
}

fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request { prompt: prompt.to_vec(), max_tokens: Some(max_tokens), ..Request::default() }
}

/// The same request on the host's sampler and on a loop that runs `ahead`.
fn both(request: &Request, capacity: usize, ahead: usize) -> [(Generation, Vec<u32>); 2] {
    let backend = LoopBackend::new(capacity, ahead);
    let started = Rc::clone(&backend.started);
    let in_loop = run(&mut Sequence::new(Box::new(backend)), request);
    assert_eq!(started.get(), 1);
    [run(&mut Sequence::new(Box::new(FakeBackend::new(100, capacity))), request), in_loop]
}

fn assert_equal(request: &Request, capacity: usize, ahead: usize) -> Generation {
    let [(host, held), (in_loop, held_after)] = both(request, capacity, ahead);
    assert_eq!((&in_loop.ids, &in_loop.text, in_loop.finish_reason), (&host.ids, &host.text, host.finish_reason));
    assert_eq!(held_after, held);
    assert_eq!((in_loop.timing.steps, in_loop.timing.context_sum), (host.timing.steps, host.timing.context_sum));
    host
}

#[test]
fn tokens_are_those_of_the_hosts_sampler() {
    for ahead in [0, 1, 7] {
        assert_equal(&request(&[1, 2, 3], 12), 64, ahead);
        let sampling =
            SamplingParams { temperature: 0.9, top_k: 20, top_p: 0.9, min_p: 0.01, repetition_penalty: 1.3, seed: 11 };
        assert_equal(&Request { sampling, ..request(&[1, 2, 3], 12) }, 64, ahead);
    }
}

#[test]
fn every_way_to_end_leaves_the_cache_as_the_host_would() {
    let all = assert_equal(&request(&[4, 5], 10), 64, 3);
    let end = Request { end_tokens: vec![all.ids[4]], ..request(&[4, 5], 10) };
    assert_eq!(assert_equal(&end, 64, 3).finish_reason, FinishReason::Stop);
    let stop = Request { stop: vec![all.text[5..7].to_owned()], ..request(&[4, 5], 10) };
    assert_eq!(assert_equal(&stop, 64, 3).finish_reason, FinishReason::Stop);
    let context = Request { max_tokens: None, ..request(&[4, 5], 0) };
    assert_eq!(assert_equal(&context, 9, 3).finish_reason, FinishReason::Length);
    assert_equal(&request(&[4, 5], 1), 64, 3);
}

#[test]
fn a_conversation_goes_on_after_a_loop() {
    let mut conversation = Sequence::new(Box::new(LoopBackend::new(200, 5)));
    let mut prompt = vec![5, 6, 7];
    for turn in 0..4u32 {
        let (kept, _) = run(&mut conversation, &request(&prompt, 6));
        let (fresh, _) = run(&mut Sequence::new(Box::new(FakeBackend::new(100, 200))), &request(&prompt, 6));
        assert_eq!(kept.ids, fresh.ids);
        assert_eq!(kept.timing.prompt_reused > 0, turn > 0);
        prompt.extend(&kept.ids);
        prompt.extend([90 + turn, 3]);
    }
}

#[test]
fn log_probabilities_come_from_the_host_and_no_tokens_from_nobody() {
    let backend = LoopBackend::new(64, 2);
    let started = Rc::clone(&backend.started);
    let mut sequence = Sequence::new(Box::new(backend));
    let (generation, _) = run(&mut sequence, &Request { logprobs: Some(2), ..request(&[1, 2], 5) });
    assert_eq!((generation.logprobs.len(), started.get()), (5, 0));
    assert_eq!(run(&mut sequence, &request(&[1, 2], 0)).0.ids.len(), 0);
    assert_eq!(started.get(), 0);
}

#[test]
fn cancelling_and_failing_stop_the_loop() {
    let mut sequence = Sequence::new(Box::new(LoopBackend::new(64, 4)));
    let cancel = AtomicBool::new(false);
    let generation = generate(&mut sequence, &request(&[1], 50), &mut letters, &cancel, &mut |event| {
        if matches!(event, Event::Text(text) if !text.is_empty()) {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(generation.expect("a valid request").finish_reason, FinishReason::Cancelled);
    assert_eq!(sequence.tokens(), [1]);
    let fresh = run(&mut Sequence::new(Box::new(FakeBackend::new(100, 64))), &request(&[1, 2], 5)).0;
    assert_eq!(run(&mut sequence, &request(&[1, 2], 5)).0.ids, fresh.ids);

    let mut failing = Sequence::new(Box::new(LoopBackend { fails_at: 6, ..LoopBackend::new(64, 0) }));
    let cancel = AtomicBool::new(false);
    let error = generate(&mut failing, &request(&[1, 2], 50), &mut letters, &cancel, &mut |_| {});
    assert_eq!(error.expect_err("it fails").to_string(), "kernel `step` failed");
    assert_eq!(failing.tokens().len(), failing.backend().position());
    assert_eq!(run(&mut failing, &request(&[1, 2], 3)).0.ids, fresh.ids[..3]);
}

#[test]
fn a_benchmark_of_a_batch_counts_all_its_tokens() {
    let mut sequence = Sequence::new(Box::new(LoopBackend::new(64, 0)));
    let case = BenchCase { n_prompt: 0, n_gen: 8, n_depth: 5, batch: 4 };
    let samples = bench(&mut sequence, case, 3, &mut |_| true).expect("it fits");
    assert!(samples.reproducible);
    assert_eq!((&samples.seconds[..], &samples.device_seconds[..]), (&[0.016; 3][..], &[0.008; 3][..]));
    // A sequence alone and the same in a batch see the same tokens.
    let one = bench(&mut sequence, BenchCase { batch: 1, ..case }, 1, &mut |_| true).expect("it fits");
    assert_eq!((one.logits_hashes.len(), one.logits_hashes[0]), (1, samples.logits_hashes[0]));
    assert!(samples.logits_hashes.len() == 4 && samples.logits_hashes[1] != samples.logits_hashes[0]);
    assert_eq!(case.tokens(), 32);
    let too_many = bench(&mut sequence, BenchCase { batch: 5, ..case }, 1, &mut |_| true);
    assert!(matches!(too_many, Err(EngineError::BatchTooLarge { batch: 5, most: 4 })));
    let host = bench(&mut Sequence::new(Box::new(FakeBackend::new(100, 64))), case, 1, &mut |_| true);
    assert_eq!(
        host.expect_err("refused").to_string(),
        "a batch of 4 is more than the 1 that this backend decodes at once"
    );
}
