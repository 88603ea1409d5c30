//! Who does what: rows and units dealt once, in the order of the step, to the right number of workers; the exchange.

use std::collections::{HashMap, HashSet};

use plancher_program::gpu::{COPIES, Instruction, Operation, Plan, Product, STAGE_BYTES, Slot, Target, padded};
use proptest::prelude::*;

use crate::common::Recipe;
use crate::{llama_1b, plans};

/// All ranges of rows that workers have for an operation, by layer.
fn shares(plan: &Plan, operation: Operation) -> HashMap<u16, Vec<std::ops::Range<u32>>> {
    let mut shares: HashMap<_, Vec<_>> = HashMap::new();
    for instruction in plan.workers.iter().flat_map(|worker| &worker.instructions) {
        if instruction.operation == operation {
            let range = instruction.first..instruction.first + instruction.count;
            shares.entry(instruction.layer).or_default().push(range);
        }
    }
    shares
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_dealt_once_and_the_residual_has_one_owner(plan in plans()) {
        let operations = [
            (Operation::Embed, plan.shape.hidden, 1),
            (Operation::QueryKeyValue, plan.shape.query_key_value_rows(), plan.shape.layers),
            (Operation::Combine, plan.shape.query_rows(), plan.shape.layers),
            (Operation::Output, plan.shape.hidden, plan.shape.layers),
            (Operation::GateUp, plan.shape.feed_forward, plan.shape.layers),
            (Operation::Down, plan.shape.hidden, plan.shape.layers),
            (Operation::Head, plan.shape.vocab, 1),
        ];
        for (operation, rows, layers) in operations {
            let shares = shares(&plan, operation);
            prop_assert_eq!(shares.len(), layers);
            for ranges in shares.values() {
                let mut end = 0;
                for range in ranges {
                    prop_assert!(range.start == end && range.end > end, "{} {:?}", operation, ranges);
                    end = range.end;
                }
                prop_assert_eq!(end as usize, rows);
            }
        }
        let rows = |operation| shares(&plan, operation).into_values().next();
        prop_assert_eq!(rows(Operation::Embed), rows(Operation::Output));
        prop_assert_eq!(rows(Operation::Embed), rows(Operation::Down));
    }

    #[test]
    fn instructions_come_in_the_order_of_the_step(plan in plans()) {
        for worker in &plan.workers {
            let order: Vec<_> = worker.instructions.iter().map(|i| (i.layer, i.operation)).collect();
            let (last, step) = order.split_last().expect("an end");
            prop_assert_eq!(*last, (0, Operation::End));
            prop_assert!(step.is_sorted());
            for (operation, layer) in step.iter().map(|&(layer, operation)| (operation, usize::from(layer))) {
                prop_assert_eq!(operation == Operation::Head, layer == plan.shape.layers);
            }
            let stages: u32 = worker.instructions.iter().map(|instruction| instruction.stages).sum();
            prop_assert_eq!(stages, worker.stages);
            prop_assert!(worker.instructions.len() <= plan.ring.instructions);
        }
    }

    #[test]
    fn attention_is_dealt_once_and_covers_all_heads(plan in plans()) {
        let attention = plan.attention;
        let mut seen = HashSet::new();
        for (worker, list) in plan.workers.iter().enumerate() {
            for unit in attention.units(worker) {
                prop_assert_eq!(attention.worker(unit), worker);
                prop_assert!(seen.insert(unit));
            }
            let attends = list.instructions.iter().filter(|i| i.operation == Operation::Attend);
            prop_assert_eq!(attends.count(), attention.units(worker).count() * plan.shape.layers);
        }
        prop_assert_eq!(seen.len(), attention.kv_units * attention.splits);
        let heads: Vec<_> = (0..attention.kv_units).flat_map(|unit| attention.heads(unit)).collect();
        prop_assert_eq!(heads, (0..plan.shape.n_heads).collect::<Vec<_>>());
        for unit in 0..attention.kv_units {
            let kv_head = attention.kv_head(unit);
            prop_assert!(attention.heads(unit).all(|head| head / plan.shape.group() == kv_head));
            prop_assert!(attention.heads(unit).len() <= 8);
        }
        // Pages that a split reads fit in its table.
        let pages = plan.target.positions.div_ceil(32);
        for split in 0..attention.splits {
            let own = (0..pages).filter(|&page| attention.split_of_page(page) == split).count();
            prop_assert!(own <= plan.ring.table_pages);
        }
    }

    #[test]
    fn no_other_number_of_workers_has_less_to_do(plan in plans()) {
        let most = plan.target.multiprocessors;
        // Stages of the busiest worker, weighed as the unit's bytes: what one layer reads.
        let busiest = |workers: usize| -> usize {
            let sizes = Product::OF_LAYER.map(|product| {
                let partition = &plan.product(product).partition;
                let unit_rows = partition.unit() * if product == Product::GateUp { 2 } else { 1 };
                partition.units().div_ceil(workers) * unit_rows * plan.product(product).padded
            });
            sizes.iter().sum()
        };
        let chosen = plan.workers.len();
        prop_assert!(chosen <= most);
        for workers in 1..=most {
            prop_assert!(busiest(workers) >= busiest(chosen));
            prop_assert!(workers >= chosen || busiest(workers) > busiest(chosen));
        }
    }

    #[test]
    fn slots_do_not_overlap_and_vectors_are_aligned(plan in plans()) {
        let exchange = &plan.exchange;
        let slots = [
            Slot::Attention, Slot::QueryKeyValue, Slot::Attended, Slot::FeedForward, Slot::Gated, Slot::PartialOutputs,
            Slot::PartialSums,
        ];
        let layers = plan.shape.layers;
        let mut ranges: Vec<_> = (0..layers).flat_map(|l| slots.map(|slot| exchange.slot(l, slot))).collect();
        ranges.push(exchange.slot(layers, Slot::Attention));
        prop_assert!(ranges.iter().all(|range| range.start % 16 == 0 && range.end % 4 == 0));
        ranges.extend((0..plan.workers.len()).map(|worker| exchange.candidate(worker)));
        ranges.push(exchange.stop..exchange.stop + 4);
        ranges.sort_by_key(|range| range.start);
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
        prop_assert!(exchange.stop + 4 <= exchange.copy_bytes);
        prop_assert_eq!((exchange.candidates % 8, exchange.copy_bytes % 256), (0, 0));
        prop_assert_eq!(exchange.bytes, COPIES * exchange.copy_bytes);
        prop_assert_eq!(exchange.slot(0, Slot::Gated).len(), 2 * plan.shape.feed_forward);
    }

    #[test]
    fn words_of_instructions_are_read_back(plan in plans()) {
        let words = plan.instruction_words();
        let length = plan.ring.instructions;
        prop_assert_eq!(words.len(), 4 * length * plan.workers.len());
        let (read, []) = words.as_chunks::<4>() else { panic!("whole instructions") };
        for (worker, list) in plan.workers.iter().zip(read.chunks(length)) {
            let read: Vec<_> = list.iter().map(|&words| Instruction::from_words(words)).collect();
            let (own, padding) = read.split_at(worker.instructions.len());
            prop_assert!(own.iter().copied().eq(worker.instructions.iter().copied().map(Some)));
            prop_assert!(padding.iter().all(|&end| end == Some(Instruction::END)));
        }
    }
}

#[test]
fn llama_on_an_h200_has_128_even_workers() {
    let plan = Plan::new(&llama_1b(), Target::h200(131_072)).expect("planned");
    assert_eq!((plan.workers.len(), plan.attention.splits, plan.ring.stages), (128, 16, 12));
    let rows = |operation: Operation| -> HashSet<u32> {
        plan.workers
            .iter()
            .flat_map(|w| &w.instructions)
            .filter(|i| i.operation == operation)
            .map(|i| i.count)
            .collect()
    };
    assert_eq!(rows(Operation::QueryKeyValue), HashSet::from([24]));
    assert_eq!(rows(Operation::Output), HashSet::from([16]));
    assert_eq!(rows(Operation::GateUp), HashSet::from([64]));
    assert_eq!(rows(Operation::Down), HashSet::from([16]));
    assert_eq!(rows(Operation::Head), HashSet::from([1000, 1008]));
    // 24 rows are a tile and a half.
    let list = &plan.workers[0];
    let stages: Vec<_> = list.instructions[1..7].iter().map(|i| (i.operation, i.stages)).collect();
    let expected = [
        (Operation::QueryKeyValue, 6),
        (Operation::Attend, 0),
        (Operation::Combine, 0),
        (Operation::Output, 4),
        (Operation::GateUp, 32),
        (Operation::Down, 16),
    ];
    assert_eq!(stages, expected);
    assert_eq!(plan.stage_offset(3, 2), (2 * 128 + 3) * STAGE_BYTES);
    assert_eq!(plan.stream_bytes(), plan.stream_stages() * 128 * STAGE_BYTES);
    assert!(plan.ring.fixed_bytes + 12 * STAGE_BYTES <= 232_448 && plan.ring.fixed_bytes + 13 * STAGE_BYTES > 232_448);
    assert_eq!((plan.attention.active_splits(0), plan.attention.active_splits(255)), (1, 1));
    assert_eq!((plan.attention.active_splits(256), plan.attention.active_splits(100_000)), (2, 16));
}

#[test]
fn a_residual_row_has_one_owner_where_the_units_differ() {
    // SmolLM2: half tiles for the output projection (576 columns), none for down (1536).
    let plan = Plan::new(&Recipe::smollm2().config(), Target::h200(2048)).expect("planned");
    assert_eq!((padded(576), padded(1536)), (1024, 1536));
    assert_eq!(plan.product(Product::Output).partition, plan.product(Product::Down).partition);
    assert_eq!(plan.residual().unit(), 16);
}
