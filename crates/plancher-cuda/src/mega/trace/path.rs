//! The critical path of a step: from the end of its last worker back to the beginning of one, through what each thing on
//! the way was waiting for last. The legs follow each other without gap or overlap, so that their parts add up to the
//! whole.

use std::ops::AddAssign;

use plancher_program::gpu::Operation;
use serde::Serialize;

use super::dependency::{Place, Publication, Vector};
use super::{Publications, StepTrace, Traced};

/// Nanoseconds by what they went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// From the last publication of the input until the worker had all of it.
    pub dependency: u64,
    /// Until weights had landed.
    pub weights: u64,
    /// Computing, adding up and publishing.
    pub computing: u64,
    /// By how much the worker, which was the last, was later than the middle one.
    pub lag: u64,
}

impl Parts {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.dependency + self.weights + self.computing + self.lag
    }
}

impl AddAssign for Parts {
    fn add_assign(&mut self, other: Self) {
        self.dependency += other.dependency;
        self.weights += other.weights;
        self.computing += other.computing;
        self.lag += other.lag;
    }
}

/// What a leg is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Until the first instruction of the path began.
    Beginning,
    /// An instruction.
    Instruction(Place, Operation, u16),
    /// From the last candidate to the end of the step.
    Boundary,
}

/// A stretch of the path on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Where.
    pub worker: usize,
    /// What.
    pub stretch: Stretch,
    /// Whose publication it waited for; `None` where the worker itself was what held it up.
    pub after: Option<Publication>,
    /// From when, in the trace's nanoseconds: the publication, or the end of what the worker did before.
    pub from: u64,
    /// Until when: the publication, or when the consumers went on.
    pub to: u64,
    /// What the time between the two went into.
    pub parts: Parts,
}

/// What an instruction's leg ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Its publication, for which another waited.
    Published,
    /// Its consumers going on to the worker's next instruction.
    Finished,
}

/// The legs of a step's critical path, first to last.
#[must_use]
pub fn critical_path(trace: &StepTrace, publications: &Publications) -> Vec<Leg> {
    let Some((worker, last)) = trace.workers.iter().enumerate().max_by_key(|(_, worker)| worker.ended) else {
        return Vec::new();
    };
    let candidate = publications.last_candidate().filter(|found| found.time <= last.ended);
    let from = candidate.map_or(last.began, |found| found.time);
    let parts = Parts { dependency: last.token.saturating_sub(from), ..Parts::default() };
    let parts = Parts { computing: (last.ended - from).saturating_sub(parts.total()), ..parts };
    let stretch = Stretch::Boundary;
    let mut legs = vec![Leg { worker, stretch, after: candidate, from, to: last.ended, parts }];
    let mut next = candidate.map(|found| (found.place, Until::Published));
    while let Some((place, until)) = next {
        let (leg, before) = instruction_leg(trace, publications, place, until);
        next = before;
        // What comes before an instruction is always earlier in the order of kinds and layers, so this ends.
        legs.push(leg);
    }
    if let Some(first) = legs.last().filter(|leg| leg.stretch != Stretch::Boundary) {
        let (worker, to) = (first.worker, first.from);
        let from = trace.workers[worker].began.min(to);
        let parts = Parts { computing: to - from, ..Parts::default() };
        legs.push(Leg { worker, stretch: Stretch::Beginning, after: None, from, to, parts });
    }
    legs.reverse();
    legs
}

/// Hands out a length of time, never more than is left.
struct Rest(u64);

impl Rest {
    fn take(&mut self, wanted: u64) -> u64 {
        let taken = wanted.min(self.0);
        self.0 -= taken;
        taken
    }
}

fn instruction_leg(
    trace: &StepTrace,
    publications: &Publications,
    place: Place,
    until: Until,
) -> (Leg, Option<(Place, Until)>) {
    let worker = &trace.workers[place.worker];
    let traced = &worker.instructions[place.index];
    let Traced { instruction, times } = traced;
    let finished = times.finished.or(times.published).unwrap_or(worker.began);
    let to = match until {
        Until::Published => times.done().unwrap_or(finished),
        Until::Finished => finished,
    };
    let input = publications.last_input(instruction).filter(|found| found.time <= to);
    // What only the finalizer does begins when its input is there.
    let awaited = input.filter(|found| times.phases().is_none_or(|phases| found.time > phases.fetched));
    let before = (0..place.index).rev().find(|&index| worker.instructions[index].times.finished.is_some());
    let before = before.map(|index| Place { worker: place.worker, index });
    let (from, next) = match (awaited, before) {
        (Some(found), _) => (found.time, Some((found.place, Until::Published))),
        (None, Some(before)) => {
            let end = worker.instructions[before.index].times.finished.unwrap_or(worker.began);
            (end.min(to), Some((before, Until::Finished)))
        }
        (None, None) => (times.began.unwrap_or(worker.began).min(to), None),
    };
    let mut parts = split(publications, traced, awaited, from, to);
    if until == Until::Published {
        // What the last worker lost to the middle one is its lag, most likely because its weights came later.
        let vector = Vector { operation: instruction.operation, layer: instruction.layer };
        let mut lag = Rest(publications.middle(vector).map_or(0, |middle| to.saturating_sub(middle)));
        for part in [&mut parts.weights, &mut parts.computing] {
            let moved = lag.take(*part);
            *part -= moved;
            parts.lag += moved;
        }
    }
    let stretch = Stretch::Instruction(place, instruction.operation, instruction.layer);
    (Leg { worker: place.worker, stretch, after: awaited, from, to, parts }, next)
}

/// Divides the time of an instruction. The first warp's times are known; where another warp got its input later, its
/// times are taken to be the first one's, moved.
fn split(publications: &Publications, traced: &Traced, awaited: Option<Publication>, from: u64, to: u64) -> Parts {
    let times = &traced.times;
    let mut rest = Rest(to - from);
    let Some(phases) = times.phases() else {
        // Only the finalizer has to do with it.
        let dependency = rest.take(times.summed.map_or(0, |summed| summed.saturating_sub(from)));
        return Parts { dependency, computing: rest.0, ..Parts::default() };
    };
    let weights = phases.landed - phases.input;
    let products = phases.finished - phases.landed;
    let mut computing = rest.take(to.saturating_sub(phases.finished));
    let of_first_warp = publications.last_input_of_first_warp(&traced.instruction);
    if awaited.is_some_and(|found| of_first_warp.is_none_or(|first| first.time < found.time)) {
        computing += rest.take(products);
        let weights = rest.take(weights);
        return Parts { dependency: rest.0, weights, computing, lag: 0 };
    }
    let waited_from = awaited.map_or(phases.fetched, |found| found.time);
    let dependency = rest.take(phases.input.saturating_sub(waited_from));
    let early = if awaited.is_none() { phases.fetched - phases.began } else { 0 };
    let weights = rest.take(weights + early);
    Parts { dependency, weights, computing: computing + rest.0, lag: 0 }
}
