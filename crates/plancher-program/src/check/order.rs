//! Deadlocks and races, decided exactly.
//!
//! Signals only ever add up, so nothing that a worker does can disable another: whatever the order of execution, the
//! set of instructions that can run is the same. Hence one run tells whether the program ends. And instruction `a`
//! comes before `b` in every execution exactly when `b` cannot run while `a` is held back. So for each worker in turn
//! the program is run with that worker held back as long as any other can go on: the number of its instructions that
//! it has then done is what another instruction *needs*; `b` comes after precisely these.
//!
//! That is also what the memory model asks for: a signal releases, a wait acquires, and additions to one counter
//! form one release sequence, so whoever is needed is seen.

use std::collections::HashSet;

use super::{CheckError, Place};
use crate::{Access, Program, Wait, WorkerProgram};

pub(super) fn check(program: &Program) -> Result<(), CheckError> {
    ends(program)?;
    let shared = SharedAccesses::new(program);
    // `(a, b, place)`: accesses of workers `a` and `b` at one place conflict, and `a` need not come first.
    let mut unordered = HashSet::new();
    let mut needs: Vec<Vec<usize>> = program.workers.iter().map(|list| vec![0; list.instructions.len()]).collect();
    for held in 0..program.workers.len() {
        needs_of(program, held, &mut needs);
        for (buffer, accesses) in shared.by_buffer.iter().enumerate() {
            races(program, held, buffer, accesses, &needs, &mut unordered)?;
        }
    }
    Ok(())
}

/// The state of a run: how far each worker has come, and what the counters stand at.
struct Run<'a> {
    workers: &'a [WorkerProgram],
    done: Vec<usize>,
    counters: Vec<u32>,
    /// Per counter, workers stopped there and the value that they wait for.
    stopped: Vec<Vec<(u32, usize)>>,
    /// Per counter, the least of those values.
    least: Vec<u32>,
    ready: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program) -> Self {
        let counters = program.counters.len();
        Self {
            workers: &program.workers,
            done: vec![0; program.workers.len()],
            counters: vec![0; counters],
            stopped: vec![Vec::new(); counters],
            least: vec![u32::MAX; counters],
            ready: (0..program.workers.len()).collect(),
        }
    }

    /// The waits that the worker's next instruction still waits for.
    fn unmet(&self, worker: usize) -> impl Iterator<Item = &'a Wait> {
        let next = self.workers[worker].instructions.get(self.done[worker]);
        let waits = next.map_or(&[][..], |instruction| &instruction.waits);
        waits.iter().filter(|wait| self.counters[wait.counter.0] < wait.value)
    }

    /// Does the worker's next instruction, if it has one whose waits are met. Workers that its signals wake become
    /// ready; a worker that cannot go on is remembered where it stopped.
    fn step(&mut self, worker: usize) -> bool {
        let Some(instruction) = self.workers[worker].instructions.get(self.done[worker]) else { return false };
        let unmet = self.unmet(worker).next();
        if let Some(wait) = unmet {
            let counter = wait.counter.0;
            self.stopped[counter].push((wait.value, worker));
            self.least[counter] = self.least[counter].min(wait.value);
            return false;
        }
        self.done[worker] += 1;
        for signal in &instruction.signals {
            let counter = signal.0;
            self.counters[counter] = self.counters[counter].saturating_add(1);
            if self.counters[counter] >= self.least[counter] {
                self.least[counter] = u32::MAX;
                self.ready.extend(self.stopped[counter].drain(..).map(|(_, worker)| worker));
            }
        }
        true
    }
}

/// Whether every wait is met. Looks at nothing but waits and signals.
pub(crate) fn ends(program: &Program) -> Result<(), CheckError> {
    let mut run = Run::new(program);
    while let Some(worker) = run.ready.pop() {
        while run.step(worker) {}
    }
    let stopped = || (0..program.workers.len()).flat_map(|worker| run.unmet(worker).map(move |wait| (worker, wait)));
    // A missing signal stops others too; only where there is none do they wait for each other.
    for (worker, wait) in stopped() {
        let signals = (0..program.workers.len()).map(|other| signals_from(program, other, 0, wait)).sum();
        if signals < wait.value {
            let place = Place::new(program, worker, run.done[worker]);
            let counter = program.counters[wait.counter.0].name.clone();
            return Err(CheckError::MissingSignal { place, counter, value: wait.value, signals });
        }
    }
    let Some((mut worker, mut wait)) = stopped().next() else { return Ok(()) };
    // From any stopped worker to one that still owes it a signal, and so on, leads into the cycle.
    for _ in &program.workers {
        let owing = (0..program.workers.len()).find(|&other| signals_from(program, other, run.done[other], wait) > 0);
        let next = owing.and_then(|owing| run.unmet(owing).next().map(|wait| (owing, wait)));
        (worker, wait) = next.unwrap_or((worker, wait));
    }
    let place = Place::new(program, worker, run.done[worker]);
    Err(CheckError::Cycle { place, counter: program.counters[wait.counter.0].name.clone(), value: wait.value })
}

/// How often `worker` signals the counter of `wait` from instruction `from` on.
fn signals_from(program: &Program, worker: usize, from: usize, wait: &Wait) -> u32 {
    let signals = program.workers[worker].instructions[from..].iter().flat_map(|instruction| &instruction.signals);
    signals.filter(|&&counter| counter == wait.counter).count() as u32
}

/// For every instruction of every worker, how many of `held`'s instructions it needs to be done.
fn needs_of(program: &Program, held: usize, needs: &mut [Vec<usize>]) {
    let mut run = Run::new(program);
    loop {
        while let Some(worker) = run.ready.pop() {
            while worker != held && run.step(worker) {
                needs[worker][run.done[worker] - 1] = run.done[held];
            }
        }
        if !run.step(held) {
            break;
        }
        needs[held][run.done[held] - 1] = run.done[held] - 1;
    }
}

/// Accesses to shared buffers: by buffer, then by worker, `(place, access)` in order.
struct SharedAccesses {
    by_buffer: Vec<Vec<Vec<(usize, Access)>>>,
}

impl SharedAccesses {
    fn new(program: &Program) -> Self {
        let mut by_buffer: Vec<Vec<Vec<(usize, Access)>>> =
            program.buffers.iter().map(|_| vec![Vec::new(); program.workers.len()]).collect();
        for (worker, list) in program.workers.iter().enumerate() {
            for (place, instruction) in list.instructions.iter().enumerate() {
                for access in &instruction.accesses {
                    // A private buffer is its owner's alone: `structure.rs` has seen to it.
                    if program.buffers[access.buffer.0].owner.is_none() {
                        by_buffer[access.buffer.0][worker].push((place, access.clone()));
                    }
                }
            }
        }
        Self { by_buffer }
    }
}

/// Looks for accesses of `held` to a buffer that others' conflicting accesses need, and are not known to follow.
fn races(
    program: &Program,
    held: usize,
    buffer: usize,
    accesses: &[Vec<(usize, Access)>],
    needs: &[Vec<usize>],
    unordered: &mut HashSet<(usize, usize, usize)>,
) -> Result<(), CheckError> {
    let own = &accesses[held];
    if own.is_empty() {
        return Ok(());
    }
    for (worker, others) in accesses.iter().enumerate().filter(|&(worker, _)| worker != held) {
        // Later instructions need no fewer: those of `held` that are known to come first are a growing prefix.
        let mut known = 0;
        for (place, access) in others {
            let place = *place;
            known += own[known..].iter().take_while(|(own_place, _)| *own_place < needs[worker][place]).count();
            for (own_place, own_access) in own[known..].iter().take_while(|(own_place, _)| *own_place <= place) {
                let own_place = *own_place;
                if !access.conflicts(own_access) {
                    continue;
                }
                // The same operation on two workers: either may come first, so it takes both directions to fail.
                unordered.insert((held, worker, place));
                if own_place < place || unordered.contains(&(worker, held, place)) {
                    let first = Place::new(program, held, own_place);
                    let second = Place::new(program, worker, place);
                    let buffer = program.buffers[buffer].role.to_string();
                    return Err(CheckError::Race { buffer, first, second });
                }
            }
        }
    }
    Ok(())
}
