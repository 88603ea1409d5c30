//! Small models made up on the spot: every feature that an architecture may have, with random weights.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "every test program uses its own part of this module"
)]

pub mod golden;
pub mod gpu;

use std::collections::HashMap;
use std::io::Write as _;

use plancher_model::{
    Activation, Architecture, DType, FeedForward, LayerConfig, LayerTensor, MappedFile, ModelConfig, Rope, RopeLayout,
    Scale, Tensor, TensorKey, Weights,
};

/// A small deterministic generator (splitmix64): test data must not change with a dependency.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Between -1 and 1.
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Sizes and features of a made-up model.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "features of models, each on its own")]
pub struct Recipe {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocab: usize,
    pub window: Option<usize>,
    pub qk_norm: bool,
    pub post_norms: bool,
    pub biases: bool,
    pub norm_offset: f32,
    pub layout: RopeLayout,
    pub rotary_dim: usize,
    /// Every `n`-th layer has no rotary embedding.
    pub no_rope_every: Option<usize>,
    pub activation: Activation,
    pub tied: bool,
    /// Without contents the weights are zeros and take no space.
    pub contents: bool,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            layers: 2,
            hidden: 32,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            feed_forward: 48,
            vocab: 40,
            window: None,
            qk_norm: false,
            post_norms: false,
            biases: false,
            norm_offset: 0.0,
            layout: RopeLayout::Halves,
            rotary_dim: 8,
            no_rope_every: None,
            activation: Activation::Silu,
            tied: true,
            contents: true,
        }
    }
}

impl Recipe {
    /// `SmolLM2`-135M's shape, without contents.
    pub fn smollm2() -> Self {
        Self {
            layers: 30,
            hidden: 576,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            feed_forward: 1536,
            vocab: 49152,
            rotary_dim: 64,
            contents: false,
            ..Self::default()
        }
    }

    /// Everything that is optional, at once.
    pub fn everything() -> Self {
        Self {
            layers: 3,
            window: Some(5),
            qk_norm: true,
            post_norms: true,
            biases: true,
            norm_offset: 1.0,
            layout: RopeLayout::Interleaved,
            rotary_dim: 6,
            no_rope_every: Some(3),
            activation: Activation::GeluTanh,
            tied: false,
            ..Self::default()
        }
    }

    pub fn config(&self) -> ModelConfig {
        let rope = Rope {
            layout: self.layout,
            inverse_frequencies: (0..self.rotary_dim / 2)
                .map(|i| 100f32.powf(-(2.0 * i as f32) / self.rotary_dim as f32))
                .collect(),
            attention_factor: 1.1,
        };
        let layer = |index: usize| LayerConfig {
            n_heads: self.heads,
            n_kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            window: if index.is_multiple_of(2) { self.window } else { None },
            rope: if self.no_rope_every.is_some_and(|n| (index + 1).is_multiple_of(n)) { None } else { Some(0) },
            attention_scale: 1.0 / (self.head_dim as f32).sqrt(),
            qk_norm: self.qk_norm,
            post_norms: self.post_norms,
            feed_forward: FeedForward::Dense { size: self.feed_forward, activation: self.activation },
        };
        ModelConfig {
            architecture: Architecture::Llama,
            vocab_size: self.vocab,
            hidden_size: self.hidden,
            context_length: 128,
            norm_eps: 1e-5,
            norm_offset: self.norm_offset,
            embedding_scale: 1.5,
            tied_embeddings: self.tied,
            ropes: vec![rope],
            layers: (0..self.layers).map(layer).collect(),
        }
    }

    /// Writes the tensors to a temporary file and maps it.
    pub fn weights(&self, seed: u64) -> Weights {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut shapes = vec![(TensorKey::Embedding, self.vocab, self.hidden), (TensorKey::OutputNorm, 1, self.hidden)];
        if !self.tied {
            shapes.push((TensorKey::Head, self.vocab, self.hidden));
        }
        for layer in 0..self.layers {
            let mut add = |tensor, rows, columns| shapes.push((TensorKey::Layer(layer, tensor), rows, columns));
            add(LayerTensor::AttentionNorm, 1, self.hidden);
            add(LayerTensor::Query, queries, self.hidden);
            add(LayerTensor::Key, keys, self.hidden);
            add(LayerTensor::Value, keys, self.hidden);
            add(LayerTensor::AttentionOutput, self.hidden, queries);
            add(LayerTensor::FeedForwardNorm, 1, self.hidden);
            add(LayerTensor::Gate, self.feed_forward, self.hidden);
            add(LayerTensor::Up, self.feed_forward, self.hidden);
            add(LayerTensor::Down, self.hidden, self.feed_forward);
            if self.biases {
                add(LayerTensor::QueryBias, 1, queries);
                add(LayerTensor::KeyBias, 1, keys);
                add(LayerTensor::ValueBias, 1, keys);
                add(LayerTensor::AttentionOutputBias, 1, self.hidden);
                add(LayerTensor::GateBias, 1, self.feed_forward);
                add(LayerTensor::UpBias, 1, self.feed_forward);
                add(LayerTensor::DownBias, 1, self.hidden);
            }
            if self.qk_norm {
                add(LayerTensor::QueryNorm, 1, self.head_dim);
                add(LayerTensor::KeyNorm, 1, self.head_dim);
            }
            if self.post_norms {
                add(LayerTensor::PostAttentionNorm, 1, self.hidden);
                add(LayerTensor::PostFeedForwardNorm, 1, self.hidden);
            }
        }
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut tensors = HashMap::new();
        let mut offset = 0;
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        for (key, rows, columns) in shapes {
            let name = key.to_string();
            tensors.insert(key, Tensor { name, dtype: DType::F32, rows, columns, file: 0, offset, scale: Scale::One });
            offset += 4 * rows * columns;
            if self.contents {
                let size = if rows == 1 { 0.5 } else { 1.0 / (columns as f32).sqrt() };
                bytes.extend((0..rows * columns).flat_map(|_| (size * random.uniform()).to_le_bytes()));
            }
        }
        if self.tied {
            tensors.insert(TensorKey::Head, tensors[&TensorKey::Embedding].clone());
        }
        file.write_all(&bytes).expect("the temporary file takes it");
        file.as_file().set_len(offset as u64).expect("the temporary file takes it");
        let map = MappedFile::open(file.path()).expect("the temporary file maps");
        Weights::new(vec![map], tensors).expect("tensors lie in the file")
    }
}
