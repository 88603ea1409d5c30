//! Keys and values in pages, as the device's cache has them.

use crate::gpu::{PAGE, Plan};

pub(super) struct Cache {
    kv_heads: usize,
    head_dim: usize,
    /// For each layer `(blocks, kv_heads, 2, 32, head_dim)`.
    layers: Vec<Vec<u16>>,
    /// For each layer and head, positions that are there.
    appended: Vec<Vec<usize>>,
}

impl Cache {
    pub(super) fn new(plan: &Plan) -> Self {
        let (layers, kv_heads, head_dim) = (plan.shape.layers, plan.shape.n_kv_heads, plan.shape.head_dim);
        Self { kv_heads, head_dim, layers: vec![Vec::new(); layers], appended: vec![vec![0; kv_heads]; layers] }
    }

    /// Makes room for so many positions. What nobody has written yet must not look like a result.
    pub(super) fn reserve(&mut self, positions: usize) {
        // Blocks are taken in another order than pages come, so that the table is needed: two at a time.
        let blocks = positions.div_ceil(PAGE).next_multiple_of(2);
        for layer in &mut self.layers {
            let elements = blocks * self.kv_heads * 2 * PAGE * self.head_dim;
            layer.resize(elements.max(layer.len()), 0x7fff);
        }
    }

    pub(super) fn truncate(&mut self, positions: usize) {
        for appended in self.appended.iter_mut().flatten() {
            *appended = positions.min(*appended);
        }
    }

    pub(super) fn appended(&self, layer: usize, kv_head: usize) -> usize {
        self.appended[layer][kv_head]
    }

    /// Keys, then values, of a page of one head: `(2, 32, head_dim)`.
    pub(super) fn page(&self, layer: usize, kv_head: usize, page: usize) -> &[u16] {
        let start = self.start(kv_head, page);
        &self.layers[layer][start..start + 2 * PAGE * self.head_dim]
    }

    pub(super) fn append(&mut self, layer: usize, kv_head: usize, position: usize, key: &[u16], value: &[u16]) {
        let start = self.start(kv_head, position / PAGE);
        for (half, row) in [key, value].into_iter().enumerate() {
            let at = start + (half * PAGE + position % PAGE) * self.head_dim;
            self.layers[layer][at..at + self.head_dim].copy_from_slice(row);
        }
        self.appended[layer][kv_head] = position + 1;
    }

    fn start(&self, kv_head: usize, page: usize) -> usize {
        let block = page ^ 1;
        (block * self.kv_heads + kv_head) * 2 * PAGE * self.head_dim
    }
}
