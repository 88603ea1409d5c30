//! `kernels/mega.cu`: its text, and the constants that it is compiled with.

use plancher_model::{Activation, FeedForward, LayerConfig, ModelConfig, RopeLayout};
use plancher_program::gpu::{Plan, Shape, Target};

use super::memory::Biases;
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Element, Source, Specialization};

/// The parts of the kernel, one after the other, each with its own line numbers.
macro_rules! parts {
    ($first:literal $(, $file:literal)*) => {
        concat!(
            include_str!(concat!("../../kernels/", $first)),
            $("\n#line 1 \"", $file, "\"\n", include_str!(concat!("../../kernels/", $file)),)*
        )
    };
}

/// The kernel.
pub(crate) static MEGA: Family = Family {
    source: Source {
        name: "mega",
        text: parts!(
            "mega_exchange.cuh",
            "mega_stream.cuh",
            "mega_product.cuh",
            "mega_attention.cuh",
            "mega_finalizer.cuh",
            "mega_sample.cuh",
            "mega.cu"
        ),
    },
    purpose: "decode: many tokens of one sequence in one launch",
    architectures: &Architecture::ALL,
    // Around the call of attention, once a layer, where heads have 128 elements.
    spill_budget: 160,
    expected: &[
        Expectation::new("mega", 80, "HMMA.16816"),
        Expectation::new("mega", 80, "LDS.128"),
        Expectation::new("mega", 90, "UBLKCP"),
    ],
    specializations,
};

/// The constants for a plan.
pub(super) fn constants(plan: &Plan, element: Element, biases: Biases, trace: bool) -> Specialization {
    let (shape, ring) = (&plan.shape, &plan.ring);
    let flag = u8::from;
    element
        .constants()
        .define("WORKERS", plan.workers.len())
        .define("LAYERS", shape.layers)
        .define("HIDDEN", shape.hidden)
        .define("HEADS", shape.n_heads)
        .define("KV_HEADS", shape.n_kv_heads)
        .define("HEAD_DIM", shape.head_dim)
        .define("FEED_FORWARD", shape.feed_forward)
        .define("VOCAB", shape.vocab)
        .define("SPLITS", plan.attention.splits)
        .define("STAGES", ring.stages)
        .define("ROTARY_PAIRS", shape.rotary_pairs)
        .define("ROPE_INTERLEAVED", flag(shape.rope_layout == RopeLayout::Interleaved))
        .define("QK_NORM", flag(shape.qk_norm))
        .define("QKV_BIAS", flag(biases.query_key_value))
        .define("OUTPUT_BIAS", flag(biases.output))
        .define("GATE_UP_BIAS", flag(biases.gate_up))
        .define("DOWN_BIAS", flag(biases.down))
        .define("ACTIVATION_GELU", flag(shape.activation == Activation::GeluTanh))
        .define("TABLE_PAGES", ring.table_pages)
        .define("INSTRUCTIONS", ring.instructions)
        .define("RESIDUAL", residual_rows(plan))
        .define("PREFETCH_STAGES", prefetched_stages(plan))
        .define("TRACE", flag(trace))
}

/// Stages by which the second-level cache is filled beyond a full ring. That pays where a layer's weights are little more than
/// the ring holds, so that the ring is full most of the time: 3 % on Qwen3-0.6B; on Llama-3.2-1B it costs 1 %.
fn prefetched_stages(plan: &Plan) -> usize {
    let layer = plan.workers.iter().map(|worker| worker.stages as usize).max().unwrap_or(0) / plan.shape.layers.max(1);
    if layer <= 3 * plan.ring.stages { 4 } else { 0 }
}

/// Rows of the residual stream that a worker keeps, at most.
fn residual_rows(plan: &Plan) -> usize {
    plan.residual().most_units() * plan.residual().unit()
}

/// The shapes that the kernel is checked with.
fn specializations() -> Vec<(&'static str, Specialization)> {
    let none = Biases { query_key_value: false, output: false, gate_up: false, down: false };
    let all = Biases { query_key_value: true, output: true, gate_up: true, down: true };
    let llama_1b = Sizes { layers: 16, hidden: 2048, heads: (32, 8), head_dim: 64, feed_forward: 8192, vocab: 128_256 };
    let llama_8b = Sizes { layers: 32, hidden: 4096, heads: (32, 8), head_dim: 128, feed_forward: 14_336, ..llama_1b };
    let qwen3 = Sizes { layers: 28, hidden: 1024, heads: (16, 8), head_dim: 128, feed_forward: 3072, vocab: 151_936 };
    let smollm2 = Sizes { layers: 30, hidden: 576, heads: (9, 3), head_dim: 64, feed_forward: 1536, vocab: 49_152 };
    let small = Sizes { layers: 2, hidden: 72, heads: (8, 1), head_dim: 16, feed_forward: 200, vocab: 515 };
    let mut shapes = Vec::new();
    let mut add = |label, (sizes, positions): (Sizes, usize), element, biases, change: fn(&mut Shape)| {
        // A rotary embedding over whole heads, unless `change` says otherwise.
        if let Ok(mut plan) = Plan::new(&sizes.config(), Target::h200(positions)) {
            plan.shape.rotary_pairs = sizes.head_dim / 2;
            change(&mut plan.shape);
            let traced = label == TRACED;
            shapes.push((label, constants(&plan, element, biases, traced)));
        }
    };
    add("Llama-3.2-1B", (llama_1b, 8192), Element::F16, none, |_| {});
    add("Llama-3.1-8B", (llama_8b, 1 << 17), Element::Bf16, none, |_| {});
    add("Qwen3-0.6B", (qwen3, 8192), Element::F16, none, |shape| shape.qk_norm = true);
    add(TRACED, (smollm2, 2048), Element::F16, none, |_| {});
    add("small, with biases", (small, 256), Element::Bf16, all, |shape| {
        shape.activation = Activation::GeluTanh;
        shape.rotary_pairs = 4;
        shape.rope_layout = RopeLayout::Interleaved;
    });
    shapes
}

/// The label of the shape that is compiled with marks of time.
const TRACED: &str = "SmolLM2-135M, traced";

/// The sizes of a model with plain layers.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) hidden: usize,
    /// Of queries, of keys and values.
    pub(super) heads: (usize, usize),
    pub(super) head_dim: usize,
    pub(super) feed_forward: usize,
    pub(super) vocab: usize,
}

impl Sizes {
    pub(super) fn config(self) -> ModelConfig {
        let layer = LayerConfig {
            n_heads: self.heads.0,
            n_kv_heads: self.heads.1,
            head_dim: self.head_dim,
            window: None,
            rope: None,
            attention_scale: 1.0,
            qk_norm: false,
            post_norms: false,
            feed_forward: FeedForward::Dense { size: self.feed_forward, activation: Activation::Silu },
        };
        ModelConfig {
            architecture: plancher_model::Architecture::Llama,
            vocab_size: self.vocab,
            hidden_size: self.hidden,
            context_length: 1 << 17,
            norm_eps: 1e-5,
            norm_offset: 0.0,
            embedding_scale: 1.0,
            tied_embeddings: true,
            ropes: Vec::new(),
            layers: vec![layer; self.layers],
        }
    }
}
