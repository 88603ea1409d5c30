//! Executors of one backend, measured in turns.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::FakeBackend;
use plancher_engine::{Backend, BackendError, BenchCase, Executor, LogitsOf, Sequence, bench, bench_in_turns};

/// A backend with a choice; it takes note of who decodes.
struct TwoWays {
    inner: FakeBackend,
    executor: Executor,
    decoded: Rc<RefCell<Vec<Executor>>>,
}

impl Backend for TwoWays {
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
        self.inner.truncate(position);
    }
    fn prefill(
        &mut self,
        tokens: &[u32],
        logits: LogitsOf,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<&[f32], BackendError> {
        self.inner.prefill(tokens, logits, progress)
    }
    fn decode(&mut self, token: u32) -> Result<&[f32], BackendError> {
        self.decoded.borrow_mut().push(self.executor);
        self.inner.decode(token)
    }
    fn read_ceiling(&mut self) -> Result<f64, BackendError> {
        Ok(20.0)
    }
    fn executor(&self) -> Option<Executor> {
        Some(self.executor)
    }
    fn set_executor(&mut self, executor: Executor) -> Result<(), BackendError> {
        if executor == Executor::Auto {
            return Err("out of order".into());
        }
        self.executor = executor;
        Ok(())
    }
}

const CASE: BenchCase = BenchCase { n_prompt: 0, n_gen: 2, n_depth: 3, batch: 1 };

fn sequence() -> (Sequence, Rc<RefCell<Vec<Executor>>>) {
    let decoded = Rc::default();
    let backend = TwoWays { inner: FakeBackend::new(50, 20), executor: Executor::Graph, decoded: Rc::clone(&decoded) };
    (Sequence::new(Box::new(backend)), decoded)
}

#[test]
fn repetitions_alternate_and_form_pairs() {
    use Executor::{Graph, Mega};
    let (mut sequence, decoded) = sequence();
    let mut turns = Vec::new();
    let samples = bench_in_turns(&mut sequence, CASE, &[Mega, Graph], 3, &mut |done| {
        turns.push(done);
        true
    });
    let samples = samples.expect("it runs");
    assert_eq!(turns, [1, 2, 3]);
    let order = [Mega, Graph, Mega, Mega, Graph, Graph, Graph, Graph, Mega, Mega, Mega, Mega, Graph, Graph];
    assert_eq!(decoded.borrow()[..], order, "a step each to warm up, then steps in turns");
    assert_eq!(samples.len(), 2);
    assert!(samples.iter().all(|samples| samples.seconds.len() == 3 && samples.reproducible));
    assert_eq!(samples[0].logits_hashes, samples[1].logits_hashes);
    assert_eq!(samples[1].ratios_to(&samples[0]).len(), 3);

    let stopped = bench_in_turns(&mut sequence, CASE, &[Mega, Graph], 3, &mut |_| false).expect("it runs");
    assert!(stopped.iter().all(|samples| samples.seconds.len() == 1), "a turn is never cut");
}

#[test]
fn without_a_list_the_backends_own_choice_stays() {
    let (mut sequence, decoded) = sequence();
    assert_eq!(bench(&mut sequence, CASE, 2, &mut |_| true).expect("it runs").seconds.len(), 2);
    assert_eq!(decoded.borrow()[..], [Executor::Graph; 5]);
    let error = bench_in_turns(&mut sequence, CASE, &[Executor::Auto], 2, &mut |_| true).expect_err("it is refused");
    assert_eq!(error.to_string(), "out of order");
    let mut plain = Sequence::new(Box::new(FakeBackend::new(50, 20)));
    let error = bench_in_turns(&mut plain, CASE, &[Executor::Mega], 2, &mut |_| true).expect_err("there is no choice");
    assert_eq!(error.to_string(), "the CPU has no `mega` to run decode steps");
}
