//! The checker: accepts every plan, and refuses damaged ones with a line that says who does what wrong.

use plancher_program::gpu::{CheckError, Element, Instruction, Operation, Plan, Target, check};
use proptest::prelude::*;

use crate::common::{Random, Recipe};
use crate::{llama_1b, recipe, target};

/// Two layers on some workers; every operation, three splits of attention.
fn small() -> Plan {
    Plan::new(&recipe(2, 2, 2, 16, 96, 96).config(), target(6)).expect("a small model")
}

prop_compose! {
    fn plans()(
        layers in 1usize..3,
        kv_heads in 1usize..5,
        group in 1usize..9,
        head_dim in 1usize..17,
        hidden in 1usize..150,
        ff in 1usize..80,
        multiprocessors in 1usize..140,
        positions in 1usize..9000,
    ) -> Plan {
        let config = recipe(layers, kv_heads, group, 8 * head_dim, 8 * hidden, 8 * ff).config();
        Plan::new(&config, Target { positions, ..target(multiprocessors) }).expect("a shape that the kernel takes")
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_pass(plan in plans()) {
        prop_assert_eq!(check(&plan), Ok(()));
    }

    #[test]
    fn damaged_plans_are_refused(plan in plans(), seed in any::<u64>()) {
        let mut damaged = plan.clone();
        let what = damage(&mut damaged, &mut Random(seed));
        if damaged != plan {
            prop_assert!(check(&damaged).is_err(), "{what} passes: {:?}", damaged.workers);
        }
    }
}

#[test]
fn plans_of_real_models_pass() {
    let qwen_06b = Recipe { vocab: 151_936, ..recipe(28, 8, 2, 128, 1024, 3072) };
    let llama_8b = Recipe { vocab: 128_256, ..recipe(32, 8, 4, 128, 4096, 14_336) };
    let smollm2 = Recipe { vocab: 49_152, ..recipe(30, 3, 3, 64, 576, 1536) };
    for config in [llama_1b(), qwen_06b.config(), llama_8b.config(), smollm2.config()] {
        for positions in [128, 131_072] {
            let plan = Plan::new(&config, Target::h200(positions)).expect("the kernel takes it");
            assert_eq!(check(&plan), Ok(()));
        }
    }
}

/// Damage that is never harmless.
fn damage(plan: &mut Plan, random: &mut Random) -> &'static str {
    let worker = random.below(plan.workers.len());
    let list = &mut plan.workers[worker];
    let at = random.below(list.instructions.len());
    let instruction = &mut list.instructions[at];
    match random.below(12) {
        0 => {
            instruction.first += 1 + random.below(9) as u32;
            "other rows"
        }
        1 => {
            instruction.count += 1 + random.below(9) as u32;
            "more rows"
        }
        2 => {
            instruction.count = instruction.count.saturating_sub(1 + random.below(9) as u32);
            "fewer rows"
        }
        3 => {
            instruction.stages += 1;
            "one more stage"
        }
        4 => {
            instruction.layer += 1;
            "another layer"
        }
        5 => {
            instruction.operation = Operation::ALL[random.below(9)];
            "another operation"
        }
        6 => {
            list.instructions.remove(at);
            "an instruction that is missing"
        }
        7 => {
            let again = *instruction;
            list.instructions.insert(at, again);
            "an instruction twice"
        }
        8 if at > 0 => {
            list.instructions.swap(at, at - 1);
            "two instructions in another order"
        }
        9 => {
            list.first_stages[at] += 1;
            "another place in the stream"
        }
        10 => {
            list.stages += 1;
            "a longer stream"
        }
        _ => {
            plan.ring.stages += 1;
            "a ring beyond the shared memory"
        }
    }
}

#[test]
fn messages_say_who_does_what_wrong() {
    fn find(plan: &mut Plan, worker: usize, operation: Operation, layer: u16) -> &mut Instruction {
        let list = &mut plan.workers[worker].instructions;
        list.iter_mut().find(|i| i.operation == operation && i.layer == layer).expect("there is one")
    }
    let message = |change: &dyn Fn(&mut Plan)| {
        let mut plan = small();
        change(&mut plan);
        check(&plan).expect_err("it is not safe").to_string()
    };
    let messages = [
        message(&|plan| plan.workers[2].instructions.truncate(3)),
        message(&|plan| plan.workers[1].instructions.swap(3, 4)),
        message(&|plan| find(plan, 3, Operation::GateUp, 1).layer = 2),
        message(&|plan| find(plan, 3, Operation::GateUp, 1).count += 8),
        message(&|plan| find(plan, 5, Operation::GateUp, 1).count += 80),
        message(&|plan| find(plan, 3, Operation::Combine, 1).first += 2),
        message(&|plan| find(plan, 3, Operation::GateUp, 1).first += 1),
        message(&|plan| find(plan, 2, Operation::Down, 0).stages += 1),
        message(&|plan| plan.workers[4].stages += 1),
        message(&|plan| find(plan, 4, Operation::Output, 0).first += 16),
        message(&|plan| find(plan, 4, Operation::Attend, 1).count = 1),
        message(&|plan| find(plan, 4, Operation::Attend, 1).count = 9),
        message(&|plan| find(plan, 4, Operation::Attend, 1).first = 1),
        message(&|plan| find(plan, 3, Operation::Combine, 1).first += 8),
        message(&|plan| find(plan, 3, Operation::Combine, 0).first -= 8),
        message(&|plan| plan.exchange.layer_bytes -= 256),
        message(&|plan| plan.exchange.stop -= 4),
        message(&|plan| plan.exchange.copy_bytes -= 256),
        message(&|plan| plan.exchange.bytes -= 256),
        message(&|plan| plan.ring.table_pages -= 1),
        message(&|plan| plan.ring.stages = 2),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn shared_memory_that_is_not_there_is_refused() {
    let mut plan = small();
    plan.target.shared_memory = 100_000;
    assert!(matches!(check(&plan), Err(CheckError::Bound { what: "shared memory", bound: 100_000, .. })));
}

#[test]
fn a_worker_may_attend_and_have_no_rows_of_the_head() {
    let config = Recipe { vocab: 64, ..recipe(1, 8, 2, 64, 256, 2048) }.config();
    let plan = Plan::new(&config, target(132)).expect("a shape that the kernel takes");
    let heads = plan.workers.iter().filter(|list| list.instructions.iter().any(|i| i.operation == Operation::Head));
    assert!(heads.count() < plan.workers.len(), "four units of rows, and more workers");
    assert_eq!(check(&plan), Ok(()));
}

#[test]
fn a_word_may_be_cleared_by_another_worker_than_its_writer() {
    // The kernel clears by the rows of layer 0; all is cleared, and in order, whoever has which rows in layer 1.
    let mut plan = small();
    let combine = |plan: &Plan, worker: usize| {
        let mut found = plan.workers[worker].instructions.iter().enumerate();
        found.rfind(|(_, i)| i.operation == Operation::Combine).map(|(at, i)| (at, *i)).expect("it combines")
    };
    let (first, second) = (combine(&plan, 0), combine(&plan, 1));
    plan.workers[0].instructions[first.0] = second.1;
    plan.workers[1].instructions[second.0] = first.1;
    assert_eq!(check(&plan), Ok(()));
}

#[test]
fn what_only_the_interpreter_takes_is_refused() {
    let target = Target { element: Element::F16, ..target(20) };
    // Twelve query heads on a key and value head: two units would read the pages that one of them appends.
    let plan = Plan::unrestricted(&recipe(1, 2, 12, 16, 96, 96).config(), target).expect("a program can express it");
    assert!(matches!(check(&plan), Err(CheckError::Bound { what: "units of attention", .. })));
    let plan = Plan::unrestricted(&recipe(1, 2, 2, 256, 96, 96).config(), target).expect("a program can express it");
    assert!(matches!(check(&plan), Err(CheckError::Bound { what: "bytes of a page", .. })));
}
