//! What a plan for the persistent kernel promises whatever the model and the device: every weight in one stream once,
//! every row with one owner, sizes that agree, and a line that says why where there is no plan; and what its program
//! computes.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod interpret;
mod packing;
mod plan;
mod refusal;
mod summary;
mod tampered;

use common::Recipe;
use plancher_model::ModelConfig;
use plancher_program::gpu::{Element, Plan, Target};
use proptest::prelude::*;

pub(crate) fn target(multiprocessors: usize) -> Target {
    Target { multiprocessors, shared_memory: 232_448, element: Element::F16, positions: 4096 }
}

pub(crate) fn recipe(
    layers: usize,
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    hidden: usize,
    ff: usize,
) -> Recipe {
    let (heads, feed_forward, rotary_dim) = (kv_heads * group, ff, head_dim);
    Recipe { layers, hidden, heads, kv_heads, head_dim, feed_forward, rotary_dim, vocab: 301, ..Recipe::default() }
}

pub(crate) fn llama_1b() -> ModelConfig {
    let recipe = recipe(16, 8, 4, 64, 2048, 8192);
    Recipe { vocab: 128_256, ..recipe }.config()
}

/// Qwen3-0.6B's shapes.
pub(crate) fn qwen3_0_6b() -> ModelConfig {
    Recipe { vocab: 151_936, qk_norm: true, ..recipe(28, 8, 2, 128, 1024, 3072) }.config()
}

/// Llama-3.1-8B's shapes.
pub(crate) fn llama_8b() -> ModelConfig {
    Recipe { vocab: 128_256, ..recipe(32, 8, 4, 128, 4096, 14336) }.config()
}

prop_compose! {
    pub(crate) fn plans()(
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
