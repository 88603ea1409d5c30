//! All workers at once, on one thread: every warp is a future that is polled when what it waits for has come, in the order
//! that a [`Schedule`] says. What finalizers write reaches others late and out of order (`memory`); everything within a worker
//! is in order, as its barriers are to see to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::cache::Cache;
use super::fault::{Waiting, wait_text, who, word_text};
use super::memory::{Change, Store};
use super::model::Model;
use super::schedule::{FINALIZER, MEMORY, PRODUCER, Schedule, Scheduler, WARPS};
use super::worker::Worker;
use super::{Fault, consumer, finalizer, memory, producer};
use crate::gpu::{CONSUMERS, COPIES, SENTINEL, Slot};

/// What a warp waits for. Numbers count from the start of the run; those of stages, chunks and branches are the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The step's token is known.
    Step(usize),
    /// A word of the exchange is there.
    Word(usize),
    /// A stage has landed in the ring.
    Landed(usize),
    /// The ring has a place for a stage.
    Free(usize),
    /// There is a buffer for the chunk of partial sums.
    Buffer(usize),
    /// All consumers have left the chunk of partial sums.
    Sums(usize),
    /// All consumers have left their sums of squares of a branch.
    Squares(usize),
    /// So many positions are in the cache.
    Appended { layer: usize, kv_head: usize, positions: usize },
    /// Workers have arrived so many times.
    Arrivals(usize),
    /// There is a store that has not arrived.
    Stores,
}

/// Where a change wakes those who wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Worker(usize),
    Word(usize),
    Cache,
    Arrivals,
    Stores(usize),
}

/// Asked, with the tokens that have reached the host, whether to stop.
pub(super) type Stop<'a> = dyn FnMut(&[u32]) -> bool + 'a;

/// What is asked of a run.
pub(super) struct Task<'a> {
    pub(super) token: u32,
    pub(super) position: usize,
    pub(super) steps: usize,
    /// Whether tokens are chosen; else the run ends with logits.
    pub(super) chooses: bool,
    pub(super) end_tokens: &'a [u32],
    pub(super) stop: RefCell<&'a mut Stop<'a>>,
}

pub(super) struct Machine<'a> {
    pub(super) model: &'a Model<'a>,
    pub(super) task: Task<'a>,
    pub(super) cache: RefCell<&'a mut Cache>,
    pub(super) workers: Vec<Worker>,
    pub(super) logits: RefCell<Vec<f32>>,
    /// As they reach the host.
    pub(super) tokens: RefCell<Vec<u32>>,
    pub(super) arrivals: Cell<usize>,
    pub(super) scheduler: RefCell<Scheduler>,
    words: Vec<Cell<u32>>,
    parked: RefCell<HashMap<Key, Vec<usize>>>,
    waits: Vec<Cell<Option<Wait>>>,
    /// Step and instruction of every warp.
    places: Vec<Cell<(usize, usize)>>,
    fault: RefCell<Option<Fault>>,
}

/// A warp's view of the machine.
#[derive(Clone, Copy)]
pub(super) struct Seat<'a> {
    pub(super) machine: &'a Machine<'a>,
    pub(super) worker: usize,
    pub(super) warp: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(model: &'a Model<'a>, task: Task<'a>, cache: &'a mut Cache, schedule: Schedule) -> Self {
        let workers = model.plan.workers.len();
        let words = COPIES * model.plan.exchange.copy_bytes / 4;
        Self {
            model,
            task,
            cache: RefCell::new(cache),
            workers: (0..workers).map(|_| Worker::new(model.plan.ring.stages)).collect(),
            logits: RefCell::new(vec![f32::NAN; model.config.vocab_size]),
            tokens: RefCell::default(),
            arrivals: Cell::new(0),
            scheduler: RefCell::new(Scheduler::new(schedule)),
            words: vec![Cell::new(SENTINEL); words],
            parked: RefCell::default(),
            waits: vec![Cell::new(None); workers * WARPS],
            places: vec![Cell::new((0, 0)); workers * WARPS],
            fault: RefCell::default(),
        }
    }

    /// Runs until every finalizer has ended: the tokens chosen, and the last step's logits.
    pub(super) fn run(&'a self) -> Result<(Vec<u32>, Vec<f32>), Fault> {
        let mut warps: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>> = Vec::new();
        for worker in 0..self.workers.len() {
            for warp in 0..WARPS {
                let seat = Seat { machine: self, worker, warp };
                warps.push(match warp {
                    FINALIZER => Box::pin(finalizer::run(seat)),
                    PRODUCER => Box::pin(producer::run(seat)),
                    MEMORY => Box::pin(memory::run(seat)),
                    _ => Box::pin(consumer::run(seat)),
                });
            }
        }
        for warp in 0..warps.len() {
            self.scheduler.borrow_mut().push(warp, 0);
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut finalizers = self.workers.len();
        while finalizers > 0 {
            let next = self.scheduler.borrow_mut().pop();
            let Some(warp) = next else { return Err(self.stuck()) };
            match warps[warp].as_mut().poll(&mut context) {
                Poll::Ready(()) if warp % WARPS == FINALIZER => finalizers -= 1,
                Poll::Ready(()) => {}
                Poll::Pending if self.waits[warp].get().is_some() => {}
                Poll::Pending => self.ready(warp),
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        Ok((self.tokens.take(), self.logits.take()))
    }

    fn ready(&self, warp: usize) {
        let (step, instruction) = self.places[warp].get();
        self.scheduler.borrow_mut().push(warp, (step as u64) << 32 | instruction as u64);
    }

    /// Wakes those who wait for a change of this kind.
    pub(super) fn notify(&self, key: Key) {
        let woken = self.parked.borrow_mut().remove(&key);
        for warp in woken.into_iter().flatten() {
            self.waits[warp].set(None);
            self.ready(warp);
        }
    }

    fn stuck(&self) -> Fault {
        let plan = self.model.plan;
        let waiting = self.waits.iter().enumerate().filter_map(|(warp, wait)| {
            let (step, instruction) = self.places[warp].get();
            let (worker, warp) = (warp / WARPS, warp % WARPS);
            let operation = self.model.lists[worker][instruction].operation;
            let wait = wait.get().filter(|&wait| wait != Wait::Stores)?;
            let wait = wait_text(wait, &plan.exchange, plan.shape.layers);
            Some(Waiting { worker, warp, step, instruction, operation, wait })
        });
        let mut waiting: Vec<_> = waiting.collect();
        // Whoever is furthest behind is most likely the reason.
        waiting.sort_by_key(|waiting| (waiting.step, waiting.instruction));
        Fault::Stuck(waiting)
    }

    pub(super) fn word(&self, word: usize) -> u32 {
        self.words[word].get()
    }

    pub(super) fn set(&self, word: usize, value: u32) {
        self.words[word].set(value);
    }

    /// The first word of a slot of a step's copy.
    pub(super) fn slot(&self, step: usize, layer: usize, slot: Slot) -> usize {
        self.copy(step) + self.model.plan.exchange.slot(layer, slot).start / 4
    }

    pub(super) fn candidate(&self, step: usize, worker: usize) -> usize {
        self.copy(step) + self.model.plan.exchange.candidate(worker).start / 4
    }

    pub(super) fn stop_word(&self, step: usize) -> usize {
        self.copy(step) + self.model.plan.exchange.stop / 4
    }

    fn copy(&self, step: usize) -> usize {
        step % COPIES * self.model.plan.exchange.copy_bytes / 4
    }
}

impl<'a> Seat<'a> {
    pub(super) fn own(&self) -> &'a Worker {
        &self.machine.workers[self.worker]
    }

    /// Says where the warp is.
    pub(super) fn at(&self, step: usize, instruction: usize) {
        self.machine.places[self.index()].set((step, instruction));
    }

    /// Lets others take their turns.
    pub(super) async fn turn(&self) {
        let mut taken = false;
        poll_fn(|_| if std::mem::replace(&mut taken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    pub(super) async fn wait(&self, wait: Wait) {
        while !self.has_come(wait) {
            let key = match wait {
                Wait::Word(word) => Key::Word(word),
                Wait::Appended { .. } => Key::Cache,
                Wait::Arrivals(_) => Key::Arrivals,
                Wait::Stores => Key::Stores(self.worker),
                _ => Key::Worker(self.worker),
            };
            self.machine.waits[self.index()].set(Some(wait));
            self.machine.parked.borrow_mut().entry(key).or_default().push(self.index());
            self.turn().await;
        }
    }

    pub(super) fn has_come(&self, wait: Wait) -> bool {
        let (machine, own) = (self.machine, self.own());
        let all = |counts: &[Cell<usize>; CONSUMERS], least: usize| counts.iter().all(|count| count.get() >= least);
        match wait {
            Wait::Step(step) => own.begun.get() > step,
            Wait::Word(word) => machine.word(word) != SENTINEL,
            Wait::Landed(stage) => own.has_landed(stage),
            Wait::Free(stage) => all(&own.used, (stage + 1).saturating_sub(own.stages())),
            Wait::Buffer(chunk) => own.taken.get() + 2 > chunk,
            Wait::Sums(chunk) => all(&own.delivered, chunk + 1),
            Wait::Squares(edge) => all(&own.squared, edge + 1),
            Wait::Appended { layer, kv_head, positions } => {
                machine.cache.borrow().appended(layer, kv_head) >= positions
            }
            Wait::Arrivals(count) => machine.arrivals.get() >= count,
            Wait::Stores => !own.stores.borrow().is_empty(),
        }
    }

    /// Wakes the warps of this worker.
    pub(super) fn notify(&self) {
        self.machine.notify(Key::Worker(self.worker));
    }

    /// Waits for words of two elements and reads them: `count` elements of a slot from `first` on.
    pub(super) async fn read(&self, slot: usize, first: usize, count: usize) -> Vec<u16> {
        let words = slot + first / 2..slot + (first + count).div_ceil(2);
        for word in words.clone() {
            self.wait(Wait::Word(word)).await;
        }
        words.flat_map(|word| super::element::unpack(self.machine.word(word))).collect()
    }

    /// A change of memory, which the others see later.
    pub(super) fn store(&self, change: Change) {
        let place = self.machine.places[self.index()].get();
        self.own().stores.borrow_mut().push_back(Store { change, place });
        self.machine.notify(Key::Stores(self.worker));
    }

    pub(super) async fn fail(&self, fault: Fault) -> Infallible {
        *self.machine.fault.borrow_mut() = Some(fault);
        pending().await
    }

    /// Who did what this worker's finalizer did there.
    pub(super) fn who(&self, (step, instruction): (usize, usize)) -> String {
        format!("{} in step {step}, instruction {instruction},", who(self.worker, FINALIZER))
    }

    pub(super) fn name(&self, word: usize) -> String {
        let plan = self.machine.model.plan;
        word_text(word, &plan.exchange, plan.shape.layers)
    }

    fn index(&self) -> usize {
        self.worker * WARPS + self.warp
    }
}
