//! What a plan for the persistent kernel promises whatever the model and the device: every weight in one stream once,
//! every row with one owner, sizes that agree.

mod common;

use std::collections::{HashMap, HashSet};

use common::Recipe;
use plancher_model::{Activation, ModelConfig, RopeLayout};
use plancher_program::gpu::{
    COPIES, Element, Estimate, H200_STREAM, Instruction, LEAST_STAGES, Operation, Plan, Product, RowMajorBits,
    STAGE_BYTES, STAGE_ELEMENTS, Slot, Summary, Target, padded,
};
use proptest::prelude::*;

fn target(multiprocessors: usize) -> Target {
    Target { multiprocessors, shared_memory: 232_448, element: Element::F16, positions: 4096 }
}

fn recipe(layers: usize, kv_heads: usize, group: usize, head_dim: usize, hidden: usize, ff: usize) -> Recipe {
    let (heads, feed_forward, rotary_dim) = (kv_heads * group, ff, head_dim);
    Recipe { layers, hidden, heads, kv_heads, head_dim, feed_forward, rotary_dim, vocab: 301, ..Recipe::default() }
}

fn llama_1b() -> ModelConfig {
    let recipe = recipe(16, 8, 4, 64, 2048, 8192);
    Recipe { vocab: 128_256, ..recipe }.config()
}

prop_compose! {
    fn plans()(
        layers in 1usize..3,
        kv_heads in 1usize..5,
        group in 1usize..11,
        head_dim in 1usize..5,
        hidden in 1usize..150,
        ff in 1usize..80,
        multiprocessors in 1usize..140,
    ) -> Plan {
        let config = recipe(layers, kv_heads, group, 8 * head_dim, 8 * hidden, 8 * ff).config();
        Plan::unrestricted(&config, target(multiprocessors)).expect("a shape that a program can express")
    }
}

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
    fn every_element_is_in_one_stream_once(plan in plans()) {
        let mut seen: HashMap<(Product, usize), Vec<u8>> = HashMap::new();
        for (worker, list) in plan.workers.iter().enumerate() {
            for stage in 0..list.stages as usize {
                let location = plan.locate(worker, stage).expect("a stage of the stream");
                let (_, columns) = location.product.size(&plan.shape);
                let rows = location.product.matrix_rows(&plan.shape);
                let elements = seen.entry((location.product, location.layer)).or_insert_with(|| vec![0; rows * columns]);
                for source in (0..STAGE_ELEMENTS).filter_map(|index| location.source(index)) {
                    prop_assert!(source.row < rows && source.column < columns);
                    elements[source.row * columns + source.column] += 1;
                }
            }
            prop_assert_eq!(plan.locate(worker, list.stages as usize), None);
        }
        prop_assert_eq!(seen.len(), 4 * plan.shape.layers + 1);
        for ((product, layer), elements) in seen {
            prop_assert!(elements.iter().all(|&times| times == 1), "{} of layer {}", product, layer);
        }
    }

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

/// The bytes of a tile as the kernel's author wrote them down: fragment by fragment.
fn written_out(row: impl Fn(usize, usize) -> u16, half: bool, padded: usize) -> Vec<u16> {
    let k8 = padded / 8;
    let fragments = if half { k8 / 32 } else { k8 / 16 };
    let mut tile = vec![0; 8 * fragments * 256];
    for warp in 0..8 {
        for pair in 0..fragments / 2 {
            for lane in 0..32 {
                let (g, j) = (lane >> 2, lane & 3);
                for odd in 0..2 {
                    let at = 8 * j + 4 * odd;
                    let c = warp * k8 + 32 * pair + at;
                    let words = if half {
                        [(g, c), (g, c + k8 / 2), (g, c + 2), (g, c + k8 / 2 + 2)]
                    } else {
                        [(g, c), (g + 8, c), (g, c + 2), (g + 8, c + 2)]
                    };
                    // Stages of four fragments a warp.
                    let fragment = 2 * pair + odd;
                    let start = fragment / 4 * STAGE_ELEMENTS + warp * 1024 + fragment % 4 * 256 + lane * 8;
                    for (word, (r, column)) in words.into_iter().enumerate() {
                        tile[start + 2 * word] = row(r, column);
                        tile[start + 2 * word + 1] = row(r, column + 1);
                    }
                }
            }
        }
    }
    tile
}

#[test]
fn a_packed_tile_is_what_the_kernel_reads() {
    // 24 rows of 1000 columns for one worker: a full tile, a half tile, and columns beyond the end.
    let config = Recipe { vocab: 24, ..recipe(1, 1, 1, 8, 1000, 40) }.config();
    let plan = Plan::new(&config, target(1)).expect("planned");
    let element = |row: usize, column: usize| (row * 1009 + column + 1) as u16;
    let matrix = |rows: usize, columns: usize, stride: usize| -> Vec<u16> {
        (0..rows * stride)
            .map(|i| if i % stride < columns { element(i / stride, i % stride) } else { 0xdead })
            .collect()
    };
    let packed = |operation: Operation, product: Product, stride: usize| -> Vec<u16> {
        let (_, columns) = product.size(&plan.shape);
        let elements = matrix(product.matrix_rows(&plan.shape), columns, stride);
        let list = &plan.workers[0];
        let index = list.instructions.iter().position(|i| i.operation == operation).expect("an instruction");
        let first = list.first_stages[index] as usize;
        let stages = first..first + list.instructions[index].stages as usize;
        let matrix = RowMajorBits { elements: &elements, stride };
        stages.flat_map(|stage| plan.locate(0, stage).expect("a stage").pack(matrix)).collect()
    };
    let head =
        |first: usize| move |row: usize, column: usize| if column < 1000 { element(first + row, column) } else { 0 };
    let expected = [written_out(head(0), false, 1024), written_out(head(16), true, 1024)].concat();
    assert_eq!(packed(Operation::Head, Product::Head, 1024), expected);

    // Gate rows and the same up rows share a tile.
    let pairs = |first: usize| {
        move |row: usize, column: usize| match (row, column) {
            (_, 1000..) => 0,
            (0..8, _) => element(first + row, column),
            _ => element(40 + first + row - 8, column),
        }
    };
    let expected: Vec<_> = (0..5).flat_map(|tile| written_out(pairs(8 * tile), false, 1024)).collect();
    assert_eq!(packed(Operation::GateUp, Product::GateUp, 1000), expected);

    // 1000 rows in units of 16 (40 columns are no whole stages of half tiles): the last tile is cut short.
    let down = |tile: usize| {
        move |row: usize, column: usize| {
            if column < 40 && 16 * tile + row < 1000 { element(16 * tile + row, column) } else { 0 }
        }
    };
    let expected: Vec<_> = (0..63).flat_map(|tile| written_out(down(tile), false, 512)).collect();
    assert_eq!(packed(Operation::Down, Product::Down, 40), expected);
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
fn the_estimate_is_what_the_prototype_took() {
    // 563 us a token were measured for this shape, and 13.1 us a layer without the stream.
    let plan = Plan::new(&llama_1b(), Target::h200(4096)).expect("planned");
    let estimate = Estimate::new(&plan, H200_STREAM);
    assert!((estimate.layer_path_us.idle - 13.1).abs() < 1e-9);
    let token = estimate.token_us;
    assert!(token.idle < token.loaded && token.idle < 1.03 * 563.0 && token.loaded > 0.97 * 563.0, "{token:?}");
    // Few multiprocessors cannot take in what the memory gives.
    let few = Plan::new(&llama_1b(), Target { multiprocessors: 16, ..Target::h200(4096) }).expect("planned");
    assert!(Estimate::new(&few, H200_STREAM).token_us.idle > 3.0 * token.loaded);
}

#[test]
fn a_summary_counts_what_the_plan_holds() {
    let plan = Plan::new(&llama_1b(), Target::h200(4096)).expect("planned");
    let summary = Summary::new(&plan, H200_STREAM);
    // Every matrix fills whole tiles here: the stream is the matrices.
    assert_eq!((summary.matrix_bytes, summary.stream_bytes), (2_471_493_632, 2_471_493_632));
    assert_eq!(summary.balance.max - summary.balance.min, 8 * 2048 * 2);
    let worker = &summary.by_worker[0];
    assert_eq!((worker.instructions, worker.waits), (1 + 16 * 6 + 1, 16 * 6));
    assert_eq!(summary.exchanged_words, 16 * (3072 + 2048 + 2 * 2048 + 8192) / 2 + 2 * 128 + 1);

    let odd = Plan::new(&Recipe::smollm2().config(), Target::h200(2048)).expect("planned");
    let summary = Summary::new(&odd, H200_STREAM);
    assert!(summary.stream_bytes > summary.matrix_bytes && summary.stream_memory >= summary.stream_bytes);
    let rows: Vec<_> = summary.products.iter().map(|product| (product.least, product.most)).collect();
    assert_eq!(rows[1], rows[3], "output and down have the same owners");
}

#[test]
fn a_residual_row_has_one_owner_where_the_units_differ() {
    // SmolLM2: half tiles for the output projection (576 columns), none for down (1536).
    let plan = Plan::new(&Recipe::smollm2().config(), Target::h200(2048)).expect("planned");
    assert_eq!((padded(576), padded(1536)), (1024, 1536));
    assert_eq!(plan.product(Product::Output).partition, plan.product(Product::Down).partition);
    assert_eq!(plan.residual().unit(), 16);
}

#[test]
fn what_the_kernel_cannot_do_is_refused_in_one_line() {
    let refuse = |config: &ModelConfig, target: Target| Plan::new(config, target).expect_err("refused").to_string();
    let good = recipe(2, 2, 2, 8, 64, 64);
    let with = |change: &dyn Fn(&mut ModelConfig)| {
        let mut config = good.config();
        change(&mut config);
        refuse(&config, target(8))
    };
    let messages = [
        with(&|config| config.layers[1].n_heads = 2),
        with(&|config| config.layers[1].qk_norm = true),
        with(&|config| {
            config.layers[1].feed_forward =
                plancher_model::FeedForward::Dense { size: 64, activation: Activation::GeluTanh };
        }),
        with(&|config| {
            config.ropes.push(config.ropes[0].clone());
            config.ropes[1].layout = RopeLayout::Interleaved;
            config.layers[1].rope = Some(1);
        }),
        with(&|config| config.layers[0].rope = Some(7)),
        with(&|config| config.layers.clear()),
        with(&|config| config.hidden_size = 60),
        with(&|config| config.hidden_size = usize::MAX / 8 * 8),
        with(&|config| config.vocab_size = 0),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 264)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 12)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.n_heads = usize::MAX)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.n_kv_heads = 3)),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.head_dim = 136)),
        with(&|config| config.layers.iter_mut().for_each(|layer| (layer.n_heads, layer.n_kv_heads) = (18, 2))),
        with(&|config| config.layers.iter_mut().for_each(|layer| layer.post_norms = true)),
        refuse(&good.config(), Target { shared_memory: 48 << 10, ..target(8) }),
        refuse(&Recipe { layers: 4000, ..good.clone() }.config(), Target { shared_memory: 100 << 10, ..target(8) }),
        refuse(&good.config(), Target { multiprocessors: 0, ..target(8) }),
        refuse(&good.config(), Target { multiprocessors: usize::MAX, ..target(8) }),
        refuse(&good.config(), Target { positions: 0, ..target(8) }),
    ];
    insta::assert_snapshot!(messages.join("\n"));
    // One stage less than the smallest ring is too little; what the message asks for is enough.
    let error = Plan::new(&good.config(), Target { shared_memory: 48 << 10, ..target(8) }).expect_err("too small");
    let plancher_program::gpu::PlanError::SharedMemory { needed, .. } = error else { panic!("{error}") };
    let plan = Plan::new(&good.config(), Target { shared_memory: needed, ..target(8) }).expect("enough");
    assert_eq!(plan.ring.stages, LEAST_STAGES);
    assert!(Plan::new(&good.config(), Target { shared_memory: needed - 1, ..target(8) }).is_err());
}
