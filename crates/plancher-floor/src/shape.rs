//! A model as its weights and its attention, layer by layer: pure data from which every count follows. It is
//! built from a `config.json` ([`crate::config`]), or by whoever has read the stored tensors.

use crate::error::{Result, product, sum};
use crate::{Attention, FloorError, Format};

/// A class of operation: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Query, key, value and output projections, and whatever a layer has in their place.
    AttentionWeights,
    /// Scores and weighted values against the KV cache: its bytes are the cache's.
    Attention,
    /// A dense feed-forward part.
    Mlp,
    /// The matrix that chooses experts.
    Router,
    /// Experts that tokens are routed to.
    RoutedExperts,
    /// Experts that every token passes.
    SharedExperts,
    /// Norms, biases and other vectors. Their arithmetic is not counted as FLOP.
    Norms,
    /// The head: the projection onto the vocabulary.
    Head,
    /// Tables of which a token reads one row: not part of what a pass reads.
    Embedding,
    /// Training only: master weights and moments, read and written once a step.
    Optimizer,
}

impl Class {
    /// The name that tables show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttentionWeights => "attention weights",
            Self::Attention => "attention (KV)",
            Self::Mlp => "MLP",
            Self::Router => "router",
            Self::RoutedExperts => "routed experts",
            Self::SharedExperts => "shared experts",
            Self::Norms => "norms, biases",
            Self::Head => "head",
            Self::Embedding => "embedding",
            Self::Optimizer => "optimizer",
        }
    }
}

/// Along what a weight is cut between tensor-parallel devices, in units that cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Every device holds all of it.
    Replicated,
    /// Query heads; their number must be divisible.
    Heads(u64),
    /// KV heads; with more devices than heads, each head is held by several devices.
    KvHeads(u64),
    /// Features of a feed-forward part; their number must be divisible.
    Features(u64),
    /// Rows of the vocabulary, padded to a multiple.
    Vocabulary(u64),
}

impl Shard {
    /// The part one of `devices` holds, as (units held, units there are).
    ///
    /// # Errors
    /// When the units cannot be divided between the devices.
    pub fn part(self, devices: u64) -> Result<(u64, u64)> {
        let refuse = |what: &str, n: u64| {
            Err(FloorError::invalid("tensor parallel", format!("`{devices}` does not divide the {n} {what}")))
        };
        match self {
            Self::Replicated => Ok((1, 1)),
            Self::Heads(n) if !n.is_multiple_of(devices) => refuse("query heads", n),
            Self::Features(n) if !n.is_multiple_of(devices) => refuse("feed-forward features", n),
            Self::KvHeads(n) if !n.is_multiple_of(devices) && !devices.is_multiple_of(n) => refuse("KV heads", n),
            Self::Heads(n) | Self::Features(n) => Ok((n / devices, n)),
            Self::KvHeads(n) => Ok(((n / devices).max(1), n)),
            Self::Vocabulary(n) => Ok((n.div_ceil(devices), n)),
        }
    }
}

/// How many equal experts a weight stands for, and how many of them one token uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts there are.
    pub total: u64,
    /// Experts that one token is routed to.
    pub active: u64,
}

/// One weight of the model: a matrix, a vector, or the same tensor of all experts of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The row of the table it belongs to.
    pub class: Class,
    /// Outputs; 1 for a vector.
    pub rows: u64,
    /// Inputs; the length of a vector.
    pub columns: u64,
    /// How it is stored.
    pub format: Format,
    /// How tensor parallelism cuts it.
    pub shard: Shard,
    /// Set when `rows × columns` is one expert of several.
    pub experts: Option<Experts>,
}

impl Weight {
    /// A matrix of `rows` outputs and `columns` inputs.
    #[must_use]
    pub const fn matrix(class: Class, rows: u64, columns: u64, format: Format, shard: Shard) -> Self {
        Self { class, rows, columns, format, shard, experts: None }
    }

    /// A vector that every device holds: a norm, or a bias that is added after the reduction.
    #[must_use]
    pub const fn vector(length: u64, format: Format) -> Self {
        Self::matrix(Class::Norms, 1, length, format, Shard::Replicated)
    }

    /// The same weight for each of a layer's experts.
    #[must_use]
    pub const fn of_experts(mut self, experts: Experts) -> Self {
        self.experts = Some(experts);
        self
    }

    /// Elements stored in all, those of every expert included.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits.
    pub fn elements(&self) -> Result<u128> {
        let copies = self.experts.map_or(1, |experts| experts.total);
        product("elements of a weight", [self.rows.into(), self.columns.into(), copies.into()])
    }

    /// Elements that the pass of one token uses.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits.
    pub fn active_elements(&self) -> Result<u128> {
        let copies = self.experts.map_or(1, |experts| experts.active);
        product("elements of a weight", [self.rows.into(), self.columns.into(), copies.into()])
    }

    /// Whether it is a matrix of multiply-adds (norms, biases and embedding rows are not).
    #[must_use]
    pub const fn is_matmul(&self) -> bool {
        !matches!(self.class, Class::Norms | Class::Embedding)
    }
}

/// One decoder layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerShape {
    /// The attention, or what stands in its place.
    pub attention: Attention,
    /// All weights of the layer.
    pub weights: Vec<Weight>,
}

/// A whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// The name that reports show.
    pub name: String,
    /// Elements of the residual stream.
    pub hidden_size: u64,
    /// Rows of the head.
    pub vocab_size: u64,
    /// The largest number of positions the model was made for, where known.
    pub context_length: Option<u64>,
    /// The layers, first to last.
    pub layers: Vec<LayerShape>,
    /// Weights outside the layers: embedding tables, final norm, head. Tied embeddings are one [`Class::Head`]
    /// weight: stored once, read once.
    pub outside: Vec<Weight>,
    /// A multi-token-prediction layer that the checkpoint carries: drafts only, in no total.
    pub predictor: Option<LayerShape>,
    /// What is not counted, or was assumed, in words for the report.
    pub notes: Vec<String>,
}

impl ModelShape {
    /// Every weight that belongs to the model itself (the predictor's do not).
    pub fn weights(&self) -> impl Iterator<Item = &Weight> {
        self.layers.iter().flat_map(|layer| &layer.weights).chain(&self.outside)
    }

    fn total(&self, count: impl Fn(&Weight) -> Result<u128>) -> Result<u128> {
        self.weights().try_fold(0, |total, weight| sum("parameters", [total, count(weight)?]))
    }

    /// Parameters stored: embeddings, norms, biases and all experts included, tied embeddings once.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits.
    pub fn params_total(&self) -> Result<u128> {
        self.total(Weight::elements)
    }

    /// Parameters that the pass of one token reads: not the embedding table, and of the experts the active ones.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits.
    pub fn params_active(&self) -> Result<u128> {
        self.total(|weight| if weight.class == Class::Embedding { Ok(0) } else { weight.active_elements() })
    }

    /// Parameters in matrices that one token is multiplied with: the N of `6·N·T`.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits.
    pub fn params_matmul(&self) -> Result<u128> {
        self.total(|weight| if weight.is_matmul() { weight.active_elements() } else { Ok(0) })
    }

    /// Bytes that one of `devices` tensor-parallel devices stores.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits or a weight cannot be divided.
    pub fn stored_bytes(&self, devices: u64) -> Result<u128> {
        self.total(|weight| {
            let (held, of) = weight.shard.part(devices)?;
            weight.format.bytes(part_of(weight.elements()?, held, of)?)
        })
    }

    /// KV bytes that `context` tokens of one sequence take on one of `devices` devices.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits or the KV heads cannot be divided.
    pub fn kv_bytes(&self, context: u64, format: Format, devices: u64) -> Result<u128> {
        self.layers
            .iter()
            .try_fold(0, |total, layer| sum("KV bytes", [total, layer.attention.kv_bytes(context, format, devices)?]))
    }

    /// KV bytes that one more token adds, before any window is full and over all devices together.
    ///
    /// # Errors
    /// When the sum does not fit in 128 bits.
    pub fn kv_bytes_per_token(&self, format: Format) -> Result<u128> {
        let elements = self
            .layers
            .iter()
            .try_fold(0, |total, layer| sum("KV elements", [total, layer.attention.kv_elements_per_token()?]))?;
        format.bytes(elements)
    }

    /// The same model with its matmul weights stored as `format`: projections, feed-forward parts, experts and
    /// the head (`head` where another is given). Norms, biases, routers and untied embedding tables stay.
    #[must_use]
    pub fn with_weights(mut self, format: Option<Format>, head: Option<Format>) -> Self {
        let layers = self.layers.iter_mut().chain(&mut self.predictor).flat_map(|layer| &mut layer.weights);
        for weight in layers.chain(&mut self.outside) {
            let new = match weight.class {
                Class::Head => head.or(format),
                Class::Router | Class::Norms | Class::Embedding => None,
                _ => format,
            };
            weight.format = new.unwrap_or(weight.format);
        }
        self
    }
}

/// `elements · held / of`, rounded up.
pub(crate) fn part_of(elements: u128, held: u64, of: u64) -> Result<u128> {
    Ok(product("elements on a device", [elements, held.into()])?.div_ceil(of.into()))
}
