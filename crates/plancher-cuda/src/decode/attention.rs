//! Attention of the newest positions over the cache: `kernels/attention_decode.cu`.

use plancher_model::{LayerConfig, RopeLayout};

use super::buffers::Buffers;
use super::{Prepared, Shape};
use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, DeviceBuffer, Element, KvCache, Launch, LayerWeights, Loader, PAGE, Result, RopeTable,
    Source, Specialization,
};

/// The kernel.
pub(crate) static ATTENTION_DECODE: Family = Family {
    source: Source { name: "attention_decode", text: include_str!("../../kernels/attention_decode.cu") },
    purpose: "decode: head norms, rotary embedding, append, attention over the paged cache",
    architectures: &Architecture::ALL,
    // Registers are kept few, so that products fit beside a block.
    spill_budget: 32,
    expected: &[
        Expectation::new("attention_decode", 80, "LDGSTS.E.BYPASS"),
        Expectation::new("attention_decode", 80, "HMMA"),
        Expectation::new("attention_decode", 80, "LDSM"),
        Expectation::new("attention_decode", 90, "UCGABAR_ARV"),
    ],
    specializations,
};

/// Blocks that share a head where there are clusters.
const SPLITS: usize = 8;
/// Query heads that a block serves: rows of the matrix instruction that hold high halves.
const HEADS_AT_ONCE: usize = 8;
/// Shared memory that a block's pages may take, so that products fit beside it.
const PAGES_LIMIT: usize = 60 << 10;

/// What the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attention {
    head_dim: usize,
    group: usize,
    kv_heads: usize,
    splits: usize,
    rotary_pairs: usize,
    interleaved: bool,
    qk_norm: bool,
    element: Element,
}

impl Attention {
    fn new(layer: &LayerConfig, rope: Option<&RopeTable>, element: Element, clusters: bool) -> Self {
        Self {
            head_dim: layer.head_dim,
            group: layer.n_heads / layer.n_kv_heads,
            kv_heads: layer.n_kv_heads,
            splits: if clusters { SPLITS } else { 1 },
            rotary_pairs: rope.map_or(0, |rope| rope.pairs),
            interleaved: rope.is_some_and(|rope| rope.layout == RopeLayout::Interleaved),
            qk_norm: layer.qk_norm,
            element,
        }
    }

    /// Bytes of a page of keys and values in shared memory, as the kernel lays it out.
    fn page_bytes(&self) -> usize {
        let padded = self.head_dim.next_multiple_of(32);
        let key_row = padded * 2 + if padded.is_multiple_of(64) { 64 } else { 0 };
        PAGE * (key_row + padded * 2 + 16)
    }

    fn warps(&self) -> usize {
        (PAGES_LIMIT / self.page_bytes()).clamp(1, 4)
    }

    /// About the static shared memory of a block, in bytes: queries, one head for each warp, the block's output.
    fn static_bytes(&self) -> usize {
        let heads = self.group.min(HEADS_AT_ONCE);
        16 * (2 * self.head_dim.next_multiple_of(32) + 64) + 4 * self.head_dim * (self.warps() + heads + 3) + 1024
    }

    fn constants(&self) -> Specialization {
        self.element
            .constants()
            .define("HEAD_DIM", self.head_dim)
            .define("GROUP", self.group)
            .define("KV_HEADS", self.kv_heads)
            .define("SPLITS", self.splits)
            .define("WARPS", self.warps())
            .define("ROTARY_PAIRS", self.rotary_pairs)
            .define("ROPE_INTERLEAVED", u8::from(self.interleaved))
            .define("QK_NORM", u8::from(self.qk_norm))
    }
}

/// The shared memory of the largest block of a model's attention, in bytes.
pub(super) fn shared_memory(layers: &[LayerConfig], element: Element) -> usize {
    let bytes = layers.iter().map(|layer| {
        let attention = Attention::new(layer, None, element, false);
        attention.warps() * attention.page_bytes() + attention.static_bytes()
    });
    bytes.max().unwrap_or(0)
}

/// What attention reads and writes besides weights and cache, as addresses on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    /// Elements `(batch, out_stride)`.
    pub(super) out: u64,
    pub(super) out_stride: usize,
    /// f32 `(batch, query, key and value rows)`.
    pub(super) query_key_value: u64,
    /// u32 `(batch)`.
    pub(super) positions: u64,
    pub(super) epsilon: f32,
}

impl Operands {
    /// Those of a layer with these weights.
    pub(super) fn of(buffers: &Buffers, weights: &LayerWeights, epsilon: f32) -> Self {
        Self {
            out: buffers.attended.pointer(),
            out_stride: weights.attention_output.stride,
            query_key_value: buffers.query_key_value.pointer(),
            positions: buffers.positions.pointer(),
            epsilon,
        }
    }
}

/// Prepares the launch for `layer`.
#[expect(clippy::too_many_arguments, reason = "what a layer is made of, each used once")]
pub(super) fn prepare(
    loader: &mut Loader,
    shape: Shape,
    element: Element,
    batch: usize,
    layer: &LayerConfig,
    weights: &LayerWeights,
    rope: Option<&RopeTable>,
    (cache, layer_index): (&KvCache, usize),
    operands: Operands,
) -> Result<Prepared> {
    let attention = Attention::new(layer, rope, element, shape.clusters);
    let kernel = loader.kernel(ATTENTION_DECODE.source, &attention.constants(), "attention_decode")?;
    let shared = (attention.warps() * attention.page_bytes()) as u32;
    kernel.prefer_shared_memory(100)?;
    kernel.set_dynamic_shared_memory(shared)?;
    let heads = attention.kv_heads * attention.group.div_ceil(HEADS_AT_ONCE);
    let grid = [attention.splits as u32, heads as u32, batch as u32];
    let mut launch = Launch::new(grid, [attention.warps() as u32 * 32, 1, 1]).shared(shared).dependent();
    if attention.splits > 1 {
        launch = launch.cluster(attention.splits as u32);
    }
    let pointer = |buffer: &Option<DeviceBuffer<f32>>| buffer.as_ref().map_or(0, DeviceBuffer::pointer);
    // A window that no sequence can outgrow is none.
    let window = layer.window.filter(|&window| window < cache.positions()).unwrap_or(0);
    let arguments = Arguments::new()
        .value(operands.out)
        .value(operands.query_key_value)
        .buffer(cache.layer(layer_index))
        .buffer(cache.tables())
        .value(operands.positions)
        .value(pointer(&weights.query_norm))
        .value(pointer(&weights.key_norm))
        .value(rope.map_or(0, |rope| rope.table.pointer()))
        .value(layer.attention_scale)
        .value(operands.epsilon)
        .value(window as i32)
        .value(cache.table_stride() as i32)
        .value(operands.out_stride as i32);
    Ok(Prepared { kernel, launch, arguments })
}

fn specializations() -> Vec<(&'static str, Specialization)> {
    let one = |label, head_dim: usize, group, kv_heads, rotary_pairs, qk_norm, element| {
        let (splits, interleaved) = (SPLITS, false);
        let attention = Attention { head_dim, group, kv_heads, splits, rotary_pairs, interleaved, qk_norm, element };
        (label, attention)
    };
    let shapes = [
        one("Llama-3.2-1B", 64, 4, 8, 32, false, Element::F16),
        one("Llama-3.1-8B", 128, 4, 8, 64, false, Element::Bf16),
        one("Qwen3-0.6B", 128, 2, 8, 64, true, Element::F16),
        one("Gemma 3 1B", 256, 4, 1, 128, true, Element::F16),
        one("many heads of 80, partly rotated", 80, 12, 2, 16, false, Element::F16),
        one("a layer without rotary embedding", 16, 2, 2, 0, false, Element::Bf16),
    ];
    let mut all: Vec<_> = shapes.iter().map(|(label, attention)| (*label, attention.constants())).collect();
    let interleaved = Attention { interleaved: true, ..shapes[0].1 };
    all.push(("interleaved pairs", interleaved.constants()));
    all
}
