//! The kernel of `attention_prefill.cu`: causal attention of a chunk over the paged cache.

use cudarc::driver::sys::CUdeviceptr;

use super::Place;
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Arguments, Element, Kernel, Launch, Loader, Result, Source, Specialization};

/// Attention of many new positions.
pub(crate) static FAMILY: Family = Family {
    source: Source { name: "attention_prefill", text: include_str!("../../kernels/attention_prefill.cu") },
    purpose: "causal attention of a chunk of positions over the paged cache",
    architectures: &Architecture::ALL,
    // Heads of 128 elements leave no register free.
    spill_budget: 64,
    expected: &[
        Expectation::new("attention_prefill", 80, "HMMA.16816"),
        Expectation::new("attention_prefill", 80, "LDSM.16"),
        Expectation::new("attention_prefill", 80, "LDGSTS.E.BYPASS"),
    ],
    specializations,
};

/// The heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Heads {
    pub(super) query: usize,
    pub(super) key_value: usize,
    pub(super) head_dim: usize,
    pub(super) window: Option<usize>,
    /// Elements of a row of projections, queries first.
    pub(super) query_stride: usize,
    /// Elements of a row of the output.
    pub(super) out_stride: usize,
}

/// How a block cuts the work.
#[derive(Clone, Copy, Debug)]
struct Tile {
    warps: usize,
    /// Groups of 16 positions of a warp.
    row_tiles: usize,
    positions: usize,
}

impl Tile {
    /// The fastest ones measured on an H200. The output of a warp's rows must fit in registers beside their scores.
    fn of(head_dim: usize) -> Self {
        match head_dim {
            ..=64 => Self { warps: 4, row_tiles: 2, positions: 64 },
            65..=128 => Self { warps: 4, row_tiles: 2, positions: 32 },
            _ => Self { warps: 4, row_tiles: 1, positions: 32 },
        }
    }

    fn rows(self) -> usize {
        self.warps * self.row_tiles * 16
    }

    /// Bytes of shared memory: the queries, and two stages of keys and values.
    fn shared(self, head_dim: usize) -> u32 {
        (2 * head_dim.next_multiple_of(16) * (self.rows() + 4 * self.positions)) as u32
    }
}

fn constants(heads: &Heads, element: Element) -> Specialization {
    let tile = Tile::of(heads.head_dim);
    element
        .constants()
        .define("N_HEADS", heads.query)
        .define("N_KV_HEADS", heads.key_value)
        .define("HEAD_DIM", heads.head_dim)
        // A window that no position leaves is none.
        .define("WINDOW", heads.window.filter(|&window| i32::try_from(window).is_ok()).unwrap_or(0))
        .define("Q_STRIDE", heads.query_stride)
        .define("OUT_STRIDE", heads.out_stride)
        .define("WARPS", tile.warps)
        .define("ROW_TILES", tile.row_tiles)
        .define("KV_TILE", tile.positions)
}

fn specializations() -> Vec<(&'static str, Specialization)> {
    let heads = |query, key_value, head_dim, window| Heads {
        query,
        key_value,
        head_dim,
        window,
        query_stride: (query + 2 * key_value) * head_dim,
        out_stride: crate::padded(query * head_dim),
    };
    vec![
        ("llama-3.2-1b", constants(&heads(32, 8, 64, None), Element::F16)),
        ("llama-3.1-8b", constants(&heads(32, 8, 128, None), Element::F16)),
        ("mistral-7b", constants(&heads(32, 8, 128, Some(4096)), Element::Bf16)),
        ("phi-3-mini", constants(&heads(32, 32, 96, Some(2047)), Element::F16)),
        ("gemma-3-270m", constants(&heads(4, 1, 256, Some(512)), Element::F16)),
        ("small", constants(&heads(3, 1, 40, None), Element::F16)),
    ]
}

/// The kernel for one kind of layer.
#[derive(Debug)]
pub(super) struct Attention {
    kernel: Kernel,
    heads: Heads,
    /// The scale of scores, times log2(e): exponentials are powers of two.
    scale: f32,
}

impl Attention {
    pub(super) fn new(loader: &mut Loader, element: Element, heads: Heads, scale: f32) -> Result<Self> {
        let kernel = loader.kernel(FAMILY.source, &constants(&heads, element), "attention_prefill")?;
        kernel.set_dynamic_shared_memory(Tile::of(heads.head_dim).shared(heads.head_dim))?;
        Ok(Self { kernel, heads, scale: scale * std::f32::consts::LOG2_E })
    }

    /// `out (chunk, out_stride)` from rotated `queries (chunk, query_stride)` and the cache of the layer at `cache`.
    ///
    /// # Safety
    /// The buffers have these shapes, and the cache holds the sequence's positions and the chunk's.
    pub(super) unsafe fn launch(
        &self,
        out: CUdeviceptr,
        queries: CUdeviceptr,
        cache: CUdeviceptr,
        place: Place,
        chunk: usize,
    ) -> Result<()> {
        let tile = Tile::of(self.heads.head_dim);
        let grid = [self.heads.query as u32, chunk.div_ceil(tile.rows()) as u32, 1];
        let launch = Launch::new(grid, [32 * tile.warps as u32, 1, 1]).shared(tile.shared(self.heads.head_dim));
        let arguments = Arguments::new()
            .value(out)
            .value(queries)
            .value(cache)
            .value(place.block_table)
            .value(place.position as i32)
            .value(chunk as i32)
            .value(self.scale);
        // SAFETY: as the caller promises.
        unsafe { self.kernel.launch(&launch, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_the_shared_memory_of_any_card_since_ampere() {
        for head_dim in (8..=256).step_by(8) {
            let tile = Tile::of(head_dim);
            assert!(tile.shared(head_dim) <= 99 * 1024, "{head_dim}");
            assert!(tile.positions.is_multiple_of(32) && tile.rows() > 0);
        }
    }
}
