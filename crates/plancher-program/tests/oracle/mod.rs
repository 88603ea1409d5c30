//! Finds out by running whether a program is safe: many schedules, each watched by vector clocks. Nothing here looks
//! at a program as a whole; it only sees what happens.

use plancher_program::{Access, Program};

use crate::common::Random;

/// What went wrong in some schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Danger {
    /// Not all instructions could run.
    Stuck,
    /// Two accesses, `(worker, place)` each, happened unordered or against the order of the model.
    Race { first: (usize, usize), second: (usize, usize) },
}

/// How many instructions of each worker are known to be done.
type Clock = Vec<usize>;

struct Run<'a> {
    program: &'a Program,
    done: Vec<usize>,
    clocks: Vec<Clock>,
    counts: Vec<u32>,
    /// What a wait on the counter learns: everything that its signals so far have seen.
    published: Vec<Clock>,
    history: Vec<(usize, usize, &'a Access)>,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program) -> Self {
        let (workers, counters) = (program.workers.len(), program.counters.len());
        Self {
            program,
            done: vec![0; workers],
            clocks: vec![vec![0; workers]; workers],
            counts: vec![0; counters],
            published: vec![vec![0; workers]; counters],
            history: Vec::new(),
        }
    }

    fn can_go_on(&self, worker: usize) -> bool {
        let next = self.program.workers[worker].instructions.get(self.done[worker]);
        next.is_some_and(|next| next.waits.iter().all(|wait| self.counts[wait.counter.0] >= wait.value))
    }

    fn perform(&mut self, worker: usize) -> Option<Danger> {
        let place = self.done[worker];
        let instruction = &self.program.workers[worker].instructions[place];
        // A wait for nothing reads nothing.
        for wait in instruction.waits.iter().filter(|wait| wait.value > 0) {
            join(&mut self.clocks[worker], &self.published[wait.counter.0]);
        }
        for access in &instruction.accesses {
            for &(other, other_place, other_access) in &self.history {
                let seen = self.clocks[worker][other] > other_place;
                if other != worker && collide(access, other_access) && (!seen || other_place > place) {
                    return Some(Danger::Race { first: (other, other_place), second: (worker, place) });
                }
            }
        }
        self.history.extend(instruction.accesses.iter().map(|access| (worker, place, access)));
        self.done[worker] += 1;
        self.clocks[worker][worker] = self.done[worker];
        for signal in &instruction.signals {
            self.counts[signal.0] += 1;
            join(&mut self.published[signal.0], &self.clocks[worker]);
        }
        None
    }

    fn finished(&self) -> bool {
        self.program.workers.iter().zip(&self.done).all(|(list, &done)| done == list.instructions.len())
    }
}

fn join(clock: &mut Clock, other: &Clock) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// Same buffer, a common element, possibly a common position, and a write; written anew, not to trust the crate's.
fn collide(a: &Access, b: &Access) -> bool {
    use plancher_program::{AccessMode, Part};
    let positions = match (a.part, b.part) {
        (Part::Positions(v), Part::Positions(w))
        | (Part::Chunks(v), Part::Chunks(w))
        | (Part::Units(v), Part::Units(w)) => v == w,
        _ => true,
    };
    let elements = a.range.start.max(b.range.start) < a.range.end.min(b.range.end);
    a.buffer == b.buffer && positions && elements && [a.mode, b.mode].contains(&AccessMode::Write)
}

/// Runs with `choose` picking among the workers that can go on, told how far each has come.
fn run(program: &Program, mut choose: impl FnMut(&[usize], &[usize]) -> usize) -> Option<Danger> {
    let mut run = Run::new(program);
    loop {
        let able: Vec<usize> = (0..program.workers.len()).filter(|&worker| run.can_go_on(worker)).collect();
        if able.is_empty() {
            return (!run.finished()).then_some(Danger::Stuck);
        }
        let worker = choose(&able, &run.done);
        if let Some(danger) = run.perform(worker) {
            return Some(danger);
        }
    }
}

/// The danger found, if any. A program that can get stuck is called that, whether it races or not.
pub(crate) fn danger(program: &Program, seed: u64) -> Option<Danger> {
    let mut random = Random(seed);
    let mut race = None;
    let mut look = |danger: Option<Danger>| match danger {
        Some(Danger::Stuck) => true,
        other => {
            race = race.take().or(other);
            false
        }
    };
    // Without watching for races a run goes to its end, wherever that is.
    let mut blind = program.clone();
    for instruction in blind.workers.iter_mut().flat_map(|list| &mut list.instructions) {
        instruction.accesses.clear();
    }
    for _ in 0..20 {
        if look(run(&blind, |able, _| able[random.below(able.len())])) {
            return Some(Danger::Stuck);
        }
    }
    // Each worker in turn sleeps before each of its instructions for as long as the others can do without it.
    for sleeper in 0..program.workers.len() {
        for place in 0..program.workers[sleeper].instructions.len() {
            look(run(program, |able, done| {
                let awake: Vec<_> =
                    able.iter().copied().filter(|&worker| worker != sleeper || done[worker] != place).collect();
                if awake.is_empty() { able[0] } else { awake[random.below(awake.len())] }
            }));
        }
    }
    for _ in 0..100 {
        // Bursts: now and then another worker becomes the favourite.
        let mut favourite = 0;
        look(run(program, |able, _| {
            if random.below(4) == 0 {
                favourite = random.below(program.workers.len());
            }
            if able.contains(&favourite) { favourite } else { able[random.below(able.len())] }
        }));
    }
    race
}
