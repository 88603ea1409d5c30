//! Figures of a plan: what was measured for its shape, and sums that agree.

use plancher_program::gpu::{Estimate, H200_STREAM, Plan, Summary, Target};

use crate::common::Recipe;
use crate::{llama_1b, llama_8b, qwen3_0_6b};

#[test]
fn the_estimate_holds_what_was_measured() {
    // Microseconds a token on an H200, from `evidence/h200.json`.
    for (config, measured) in [(llama_1b(), 576.0), (qwen3_0_6b(), 411.0), (llama_8b(), 3418.0)] {
        let plan = Plan::new(&config, Target::h200(4096)).expect("planned");
        let token = Estimate::new(&plan, H200_STREAM).token_us;
        assert!(token.idle < measured && measured < token.loaded, "{measured}: {token:?}");
        assert!(token.loaded < 1.05 * measured && token.idle > 0.7 * measured, "{measured}: {token:?}");
    }
    let plan = Plan::new(&llama_1b(), Target::h200(4096)).expect("planned");
    let token = Estimate::new(&plan, H200_STREAM).token_us;
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
