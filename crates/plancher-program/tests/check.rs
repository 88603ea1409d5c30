//! The checker: accepts what the scheduler makes, and among mutants of it refuses every unsafe one and no safe one.
//!
//! Whether a mutant is safe is decided by running it: many schedules, and races found at run time by vector clocks,
//! which knows nothing of how the checker reasons.

mod common;
mod oracle;

use common::{Random, Recipe};
use plancher_program::{
    AccessMode, BufferId, CheckError, CounterId, Operation, Part, Phase, Program, RowMajor, Target, Wait, check, lower,
    schedule,
};
use proptest::prelude::*;

const LAYOUT: RowMajor = RowMajor { tile_rows: 4 };

fn program(recipe: &Recipe, workers: usize, phase: Phase) -> Program {
    let lowered = lower(&recipe.config(), &recipe.weights(0)).expect("the recipe is whole");
    let target = Target { workers, tile_rows: LAYOUT.tile_rows, kv_chunk: 3, phase };
    schedule(&lowered, target, &LAYOUT).expect("a valid target")
}

fn small(workers: usize, phase: Phase) -> Program {
    program(&Recipe { layers: 2, contents: false, ..Recipe::default() }, workers, phase)
}

fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Decode), Just(Phase::Prefill)]
}

#[test]
fn scheduled_programs_pass() {
    for phase in [Phase::Decode, Phase::Prefill] {
        for workers in [1, 2, 3, 16, 61, 256] {
            assert_eq!(check(&small(workers, phase), &LAYOUT), Ok(()), "{workers} workers, {phase:?}");
        }
        for workers in [1, 2, 16] {
            let program = program(&Recipe::smollm2(), workers, phase);
            assert_eq!(check(&program, &LAYOUT), Ok(()), "{workers} workers, {phase:?}");
        }
    }
}

#[test]
fn every_wait_of_a_scheduled_program_is_needed() {
    for phase in [Phase::Decode, Phase::Prefill] {
        let good = small(3, phase);
        for worker in 0..3 {
            for place in 0..good.workers[worker].instructions.len() {
                for wait in 0..good.workers[worker].instructions[place].waits.len() {
                    let mut program = good.clone();
                    program.workers[worker].instructions[place].waits.remove(wait);
                    let result = check(&program, &LAYOUT);
                    assert!(matches!(result, Err(CheckError::Race { .. })), "{worker} {place}: {result:?}");
                }
            }
        }
    }
}

/// Changes to waits, signals and declared accesses: some are harmless.
fn mutate_order(program: &mut Program, random: &mut Random) {
    let workers = program.workers.len();
    let worker = random.below(workers);
    let place = random.below(program.workers[worker].instructions.len());
    let n_counters = program.counters.len();
    let instruction = &mut program.workers[worker].instructions[place];
    match random.below(9) {
        0 if !instruction.waits.is_empty() => {
            instruction.waits.pop();
        }
        1 => {
            if let Some(wait) = instruction.waits.first_mut() {
                wait.value = wait.value.saturating_sub(1 + random.below(workers) as u32);
            }
        }
        2 => {
            instruction.signals.pop();
        }
        3 => {
            if let Some(&signal) = instruction.signals.first() {
                instruction.signals.push(signal);
            }
        }
        4 if n_counters > 0 => {
            let counter = CounterId(random.below(n_counters));
            instruction.waits.push(Wait { counter, value: random.below(workers + 2) as u32 });
        }
        5 if n_counters > 0 => instruction.signals.push(CounterId(random.below(n_counters))),
        6 => {
            if let Some(wait) = instruction.waits.first_mut() {
                wait.counter = CounterId(random.below(n_counters));
            }
        }
        7 if !instruction.accesses.is_empty() => {
            let access = random.below(instruction.accesses.len());
            let access = &mut instruction.accesses[access];
            access.range = 0..program.buffers[access.buffer.0].elements;
            access.part = Part::Whole;
            access.mode = AccessMode::Write;
        }
        _ => {
            // Moves the waits of an instruction to the next one, or to one on another worker.
            let waits = std::mem::take(&mut instruction.waits);
            let to = random.below(workers);
            let last = program.workers[to].instructions.len() - 1;
            program.workers[to].instructions[(place + 1).min(last)].waits.extend(waits);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutant_is_refused_exactly_when_it_is_unsafe(
        seed in any::<u64>(),
        workers in 2usize..=3,
        mutations in 1usize..=3,
        phase in phases(),
    ) {
        let mut random = Random(seed);
        let mut mutant = program(&Recipe { layers: 1, contents: false, ..Recipe::default() }, workers, phase);
        for _ in 0..mutations {
            mutate_order(&mut mutant, &mut random);
        }
        let (result, unsafe_because) = (check(&mutant, &LAYOUT), oracle::danger(&mutant, seed));
        match (&result, &unsafe_because) {
            (Ok(()), None)
            | (Err(CheckError::MissingSignal { .. } | CheckError::Cycle { .. }), Some(oracle::Danger::Stuck))
            | (Err(CheckError::Race { .. }), Some(oracle::Danger::Race { .. })) => {}
            _ => prop_assert!(false, "checker: {result:?}, oracle: {unsafe_because:?}"),
        }
    }

    #[test]
    fn damage_to_streams_and_structure_is_refused(
        seed in any::<u64>(),
        workers in 1usize..=4,
        phase in phases(),
    ) {
        let mut random = Random(seed);
        let good = small(workers, phase);
        let mut mutant = good.clone();
        let what = damage(&mut mutant, &mut random);
        if mutant != good {
            prop_assert!(check(&mutant, &LAYOUT).is_err(), "{what} passes");
        }
    }
}

/// Damage that is never harmless.
fn damage(program: &mut Program, random: &mut Random) -> &'static str {
    let workers = program.workers.len();
    let worker = random.below(workers);
    let n_buffers = program.buffers.len();
    let list = &mut program.workers[worker];
    let (n, place) = (list.instructions.len(), random.below(list.instructions.len() - 1));
    let segment = random.below(list.segments.len());
    match random.below(16) {
        0 => {
            list.segments[segment].offset += 4;
            "shifted segment"
        }
        1 => {
            list.segments[segment].bytes += 4;
            "longer segment"
        }
        2 => {
            list.stream_bytes += 1;
            "longer stream"
        }
        3 => {
            list.segments[segment].tiles.end += 1;
            "segment with one more tile"
        }
        4 => {
            let segment = &mut list.segments[segment];
            segment.tiles = segment.tiles.start + 1..segment.tiles.end + 1;
            "segment moved by a tile"
        }
        5 => {
            list.segments.remove(segment);
            "segment removed"
        }
        6 => {
            let copy = list.segments[segment].clone();
            list.segments.insert(segment, copy);
            "segment twice"
        }
        7 => {
            list.segments[segment].rows += 1;
            "another number of rows"
        }
        8 => {
            list.segments[segment].columns *= 2;
            "another number of columns"
        }
        9 => {
            list.instructions.swap(place, place + 1);
            "swapped instructions"
        }
        10 => {
            list.instructions.remove(random.below(n));
            "instruction removed"
        }
        11 => {
            let copy = list.instructions[place].clone();
            list.instructions.insert(place, copy);
            "instruction twice"
        }
        12 => {
            let instruction = &mut list.instructions[place];
            let n = instruction.accesses.len().max(1);
            instruction.accesses.truncate(random.below(n));
            "access not declared"
        }
        13 => {
            if let Some(access) = list.instructions[place].accesses.first_mut() {
                access.range.end = program.buffers[access.buffer.0].elements + 1;
            }
            "access beyond the buffer"
        }
        14 => {
            if let Some(access) = list.instructions[place].accesses.first_mut() {
                access.buffer = BufferId(n_buffers + random.below(3));
            }
            "unknown buffer"
        }
        _ => {
            let private = program.buffers.iter_mut().filter(|buffer| buffer.owner == Some(worker)).nth(random.below(3));
            if let Some(buffer) = private {
                buffer.owner = Some(worker + 1);
            }
            "private buffer given to another worker"
        }
    }
}

#[test]
fn messages_name_worker_instruction_counter_and_buffer() {
    let good = small(2, Phase::Decode);
    let message = |change: &dyn Fn(&mut Program)| {
        let mut program = good.clone();
        change(&mut program);
        check(&program, &LAYOUT).expect_err("unsafe").to_string()
    };
    let down = |program: &Program| {
        let list = &program.workers[1].instructions;
        list.iter().position(|i| matches!(i.operation, Operation::Down { .. })).expect("a down projection")
    };
    let messages = [
        message(&|program| {
            let place = down(program);
            program.workers[1].instructions[place].waits.clear();
        }),
        message(&|program| {
            let place = down(program);
            program.workers[1].instructions[place].signals.clear();
        }),
        message(&|program| {
            let place = down(program);
            let wait = Wait { counter: program.workers[1].instructions[place].signals[0], value: 2 };
            program.workers[1].instructions[place].waits.push(wait);
        }),
        message(&|program| {
            let place = down(program);
            program.workers[1].instructions[place].accesses.remove(1);
        }),
        message(&|program| {
            let place = down(program);
            let hidden = program.buffer(plancher_program::BufferRole::Hidden, 0).expect("decode has it");
            let access = &mut program.workers[1].instructions[place].accesses[0];
            (access.buffer, access.range) = (hidden, 0..32);
        }),
        message(&|program| program.workers[1].segments[2].offset += 64),
        message(&|program| {
            // Worker 1 does a tile of the head that worker 0 has done, and says so.
            let list = &mut program.workers[1];
            let head = list.segments.last_mut().expect("the head");
            let tile = head.bytes / head.tiles.len();
            head.tiles.start -= 1;
            head.bytes += tile;
            list.stream_bytes += tile;
            let accesses = &mut list.instructions.last_mut().expect("the head").accesses;
            accesses.last_mut().expect("the logits").range.start -= 4;
        }),
        message(&|program| program.workers[0].instructions.swap(3, 4)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
