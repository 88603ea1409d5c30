//! A GPU program that has been tampered with does not pass for a whole one: the interpreter refuses it, says who waits for
//! what, or computes something else.

use crate::common::Recipe;
use crate::common::golden::relative_error;
use crate::common::gpu::{plan, target};
use plancher_program::Reference;
use plancher_program::gpu::{Element, Fault, Image, Interpreter, Operation, Plan, STAGE_BYTES, Schedule};

/// Runs a program that has been tampered with; whether its logits are right.
fn tampered(tamper: impl FnOnce(&Plan, &mut Image)) -> Result<bool, Fault> {
    let recipe = Recipe { hidden: 64, heads: 8, feed_forward: 96, ..Recipe::default() };
    let (config, weights) = (recipe.config(), recipe.weights(11));
    let plan = plan(&config, target(5, Element::F16));
    let mut image = Image::new(&plan, &weights).unwrap_or_else(|e| panic!("{e}"));
    tamper(&plan, &mut image);
    let mut interpreter = Interpreter::new(&config, &weights, &plan, image)?;
    let mut reference = Reference::new(&config, &weights).unwrap_or_else(|e| panic!("{e}"));
    let mut right = true;
    for token in [1, 2, 3] {
        let expected = reference.decode(token);
        right &= relative_error(interpreter.append(token, Schedule::RoundRobin)?, &expected) < 1e-2;
    }
    interpreter.greedy(1, 6, &[], Schedule::RoundRobin, &mut |_| false)?;
    Ok(right)
}

/// Takes an instruction out of a worker's list.
fn remove(plan: &Plan, image: &mut Image, worker: usize, instruction: usize) {
    let list = worker * plan.ring.instructions * 4;
    let end = list + plan.ring.instructions * 4;
    image.instructions.copy_within(list + (instruction + 1) * 4..end, list + instruction * 4);
    image.instructions[end - 4..end].fill(0);
}

fn instruction(plan: &Plan, worker: usize, operation: Operation) -> usize {
    let list = &plan.workers[worker].instructions;
    list.iter().position(|instruction| instruction.operation == operation).expect("the worker has one")
}

#[test]
fn every_missing_instruction_is_noticed() {
    assert_eq!(tampered(|_, _| {}), Ok(true));
    let mut messages = Vec::new();
    for operation in Operation::ALL {
        // Of one worker and, but for the embedding and the head, one layer.
        let outcome = tampered(|plan, image| {
            let place = instruction(plan, 1, operation);
            remove(plan, image, 1, place);
        });
        if operation == Operation::End {
            assert_eq!(outcome, Ok(true), "shorter lists are filled up with ends");
            continue;
        }
        messages.push(outcome.map_or_else(
            |fault| format!("without {operation}: {fault}"),
            |right| format!("without {operation}: {}", if right { "right" } else { "wrong logits" }),
        ));
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn streams_in_another_order_are_noticed() {
    // Two stages of one worker change places, and a stage of two workers.
    let stage = |plan: &Plan, worker: usize, stage: usize| {
        let start = plan.stage_offset(worker, stage);
        start..start + STAGE_BYTES
    };
    for (a, b) in [((1, 0), (1, 1)), ((0, 3), (0, 6)), ((1, 2), (3, 2)), ((4, 5), (2, 9))] {
        let outcome = tampered(|plan, image| {
            let (a, b) = (stage(plan, a.0, a.1), stage(plan, b.0, b.1));
            let held = image.stream[a.clone()].to_vec();
            image.stream.copy_within(b.clone(), a.start);
            image.stream[b].copy_from_slice(&held);
        });
        assert_eq!(outcome, Ok(false), "{a:?} and {b:?}");
    }
    // Two fragments of one warp, and two lanes of a fragment.
    for (a, b, length) in [(0, 512, 512), (16, 32, 16)] {
        let outcome = tampered(|plan, image| {
            for worker in 0..plan.workers.len() {
                for start in (0..plan.workers[worker].stages as usize).map(|s| plan.stage_offset(worker, s)) {
                    let held = image.stream[start + a..start + a + length].to_vec();
                    image.stream.copy_within(start + b..start + b + length, start + a);
                    image.stream[start + b..start + b + length].copy_from_slice(&held);
                }
            }
        });
        assert_eq!(outcome, Ok(false), "{a} and {b}");
    }
}

#[test]
fn instructions_that_say_nothing_sensible_are_refused() {
    let mut messages = Vec::new();
    let mut refuse = |operation: Operation, word: usize, value: u32| {
        let outcome = tampered(|plan, image| {
            let place = instruction(plan, 1, operation);
            image.instructions[(plan.ring.instructions + place) * 4 + word] = value;
        });
        messages.push(outcome.expect_err("it is not valid").to_string());
    };
    refuse(Operation::QueryKeyValue, 0, 77);
    refuse(Operation::QueryKeyValue, 0, 2 | 9 << 8);
    refuse(Operation::QueryKeyValue, 2, 0);
    refuse(Operation::QueryKeyValue, 2, u32::MAX);
    refuse(Operation::GateUp, 1, 3);
    refuse(Operation::GateUp, 3, 1);
    refuse(Operation::Attend, 1, 2);
    refuse(Operation::Attend, 2, 16);
    refuse(Operation::Down, 1, 0);
    refuse(Operation::End, 0, Operation::Combine as u32);
    let outcome = tampered(|_, image| image.stream.truncate(STAGE_BYTES));
    messages.push(outcome.expect_err("the stream is short").to_string());
    let outcome = tampered(|_, image| image.instructions.truncate(4));
    messages.push(outcome.expect_err("lists are missing").to_string());
    insta::assert_snapshot!(messages.join("\n"));
}
