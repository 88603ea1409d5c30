//! The kernels of `prefill.cu`: what lies between the matrix products.

use cudarc::driver::sys::CUdeviceptr;
use plancher_model::{Activation, RopeLayout};

use super::Place;
use super::attention::Heads;
use crate::catalogue::{Expectation, Family};
use crate::decode::Prepared;
use crate::{
    Architecture, Arguments, DeviceBuffer, Element, Kernel, Launch, LayerWeights, Loader, Result, RopeTable, Source,
    Specialization,
};

/// Embedding, norms, rotary embedding and append, activation.
pub(crate) static FAMILY: Family = Family {
    source: Source { name: "prefill", text: include_str!("../../kernels/prefill.cu") },
    purpose: "embedding, norms, rotary embedding with append, and activation of a chunk of positions",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[
        Expectation::new("prefill_normalize", 80, "LDG.E.128"),
        Expectation::new("prefill_activate", 80, "LDG.E.128"),
    ],
    specializations,
};

/// Threads of the kernels that have no other number.
const THREADS: u32 = 256;

/// The residual addition (of a branch whose result is not yet in the residual) and the norm before the next product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NormalizeShape {
    pub(crate) hidden: usize,
    pub(crate) out_stride: usize,
    /// A branch's result is added first,
    pub(crate) delta: bool,
    /// with a bias,
    pub(crate) bias: bool,
    /// through a norm of its own.
    pub(crate) post_norm: bool,
}

impl NormalizeShape {
    fn threads(self) -> u32 {
        // Eight vectors of four numbers a thread, where the row is long enough.
        (self.hidden.div_ceil(32).next_multiple_of(32) as u32).clamp(32, 1024)
    }

    fn constants(self, element: Element) -> Specialization {
        let flag = u8::from;
        element
            .constants()
            .define("NORMALIZE", 1)
            .define("HIDDEN", self.hidden)
            .define("OUT_STRIDE", self.out_stride)
            .define("THREADS", self.threads())
            .define("DELTA", flag(self.delta))
            .define("BIAS", flag(self.bias))
            .define("POST_NORM", flag(self.post_norm))
    }
}

#[derive(Debug)]
pub(crate) struct Normalize {
    kernel: Kernel,
    shape: NormalizeShape,
}

/// What a norm reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormalizeInput<'a> {
    /// `(rows, hidden)` f32.
    pub(crate) residual: CUdeviceptr,
    /// `(rows, hidden)` f32, or 0.
    pub(crate) delta: CUdeviceptr,
    pub(crate) bias: Option<&'a DeviceBuffer<f32>>,
    pub(crate) post_norm: Option<&'a DeviceBuffer<f32>>,
    pub(crate) weight: &'a DeviceBuffer<f32>,
    pub(crate) epsilon: f32,
}

impl Normalize {
    pub(crate) fn new(loader: &mut Loader, element: Element, shape: NormalizeShape) -> Result<Self> {
        Ok(Self { kernel: loader.kernel(FAMILY.source, &shape.constants(element), "prefill_normalize")?, shape })
    }

    /// For `rows` rows, in buffers that have them in the kernel's shape.
    pub(crate) fn prepare(&self, out: CUdeviceptr, input: &NormalizeInput<'_>, rows: usize) -> Prepared {
        let pointer = |buffer: Option<&DeviceBuffer<f32>>| buffer.map_or(0, DeviceBuffer::pointer);
        let arguments = Arguments::new()
            .value(out)
            .value(input.residual)
            .value(input.delta)
            .value(pointer(input.bias))
            .value(pointer(input.post_norm))
            .buffer(input.weight)
            .value(input.epsilon);
        Prepared { kernel: self.kernel.clone(), launch: Launch::linear(rows as u32, self.shape.threads()), arguments }
    }
}

/// Embedding rows to the residual.
#[derive(Debug)]
pub(crate) struct Embed {
    kernel: Kernel,
    scale: f32,
}

fn embed_constants(element: Element, hidden: usize, stride: usize) -> Specialization {
    element.constants().define("EMBED", 1).define("HIDDEN", hidden).define("EMBEDDING_STRIDE", stride)
}

impl Embed {
    pub(crate) fn new(loader: &mut Loader, element: Element, hidden: usize, stride: usize, scale: f32) -> Result<Self> {
        let constants = embed_constants(element, hidden, stride);
        Ok(Self { kernel: loader.kernel(FAMILY.source, &constants, "prefill_embed")?, scale })
    }

    /// For the first `rows` tokens, which must be rows of the embedding; the residual has as many rows.
    pub(crate) fn prepare(
        &self,
        residual: CUdeviceptr,
        embedding: &DeviceBuffer<u16>,
        tokens: &DeviceBuffer<u32>,
        rows: usize,
    ) -> Prepared {
        let arguments = Arguments::new().value(residual).buffer(embedding).buffer(tokens).value(self.scale);
        Prepared { kernel: self.kernel.clone(), launch: Launch::linear(rows as u32, THREADS), arguments }
    }
}

/// Biases, query and key norms, rotary embedding, append.
#[derive(Debug)]
pub(super) struct Append {
    kernel: Kernel,
    epsilon: f32,
}

fn append_constants(
    element: Element,
    heads: &Heads,
    rope: Option<(usize, RopeLayout)>,
    qk_norm: bool,
    bias: bool,
) -> Specialization {
    element
        .constants()
        .define("APPEND", 1)
        .define("N_HEADS", heads.query)
        .define("N_KV_HEADS", heads.key_value)
        .define("HEAD_DIM", heads.head_dim)
        .define("STRIDE", heads.query_stride)
        .define("PAIRS", rope.map_or(0, |(pairs, _)| pairs))
        .define("INTERLEAVED", u8::from(rope.is_some_and(|(_, layout)| layout == RopeLayout::Interleaved)))
        .define("QK_NORM", u8::from(qk_norm))
        .define("BIAS", u8::from(bias))
}

impl Append {
    pub(super) fn new(
        loader: &mut Loader,
        element: Element,
        heads: &Heads,
        rope: Option<&RopeTable>,
        weights: &LayerWeights,
        epsilon: f32,
    ) -> Result<Self> {
        let rope = rope.map(|rope| (rope.pairs, rope.layout));
        let (qk_norm, bias) = (weights.query_norm.is_some(), weights.query_key_value_bias.is_some());
        let constants = append_constants(element, heads, rope, qk_norm, bias);
        Ok(Self { kernel: loader.kernel(FAMILY.source, &constants, "prefill_append")?, epsilon })
    }

    /// # Safety
    /// `projections` has `rows` rows, the sequence's blocks have room for them, and the rotary table covers them.
    pub(super) unsafe fn launch(
        &self,
        projections: CUdeviceptr,
        cache: CUdeviceptr,
        place: Place,
        rope: Option<&RopeTable>,
        weights: &LayerWeights,
        rows: usize,
    ) -> Result<()> {
        let pointer = |buffer: &Option<DeviceBuffer<f32>>| buffer.as_ref().map_or(0, DeviceBuffer::pointer);
        let arguments = Arguments::new()
            .value(projections)
            .value(cache)
            .value(place.block_table)
            .value(place.position as i32)
            .value(rope.map_or(0, |rope| rope.table.pointer()))
            .value(pointer(&weights.query_key_value_bias))
            .value(pointer(&weights.query_norm))
            .value(pointer(&weights.key_norm))
            .value(self.epsilon);
        // SAFETY: as the caller promises.
        unsafe { self.kernel.launch(&Launch::linear(rows as u32, THREADS), &arguments) }
    }
}

/// `activation(gate) * up`.
#[derive(Debug)]
pub(crate) struct Activate {
    kernel: Kernel,
    out_stride: usize,
}

fn activate_constants(
    element: Element,
    feed_forward: usize,
    out_stride: usize,
    activation: Activation,
    bias: bool,
) -> Specialization {
    element
        .constants()
        .define("ACTIVATE", 1)
        .define("FEED_FORWARD", feed_forward)
        .define("IN_STRIDE", 2 * feed_forward)
        .define("OUT_STRIDE", out_stride)
        .define("GELU", u8::from(activation == Activation::GeluTanh))
        .define("BIAS", u8::from(bias))
}

impl Activate {
    pub(crate) fn new(
        loader: &mut Loader,
        element: Element,
        feed_forward: usize,
        activation: Activation,
        weights: &LayerWeights,
    ) -> Result<Self> {
        let out_stride = weights.down.stride;
        let bias = weights.gate_up_bias.is_some();
        let constants = activate_constants(element, feed_forward, out_stride, activation, bias);
        Ok(Self { kernel: loader.kernel(FAMILY.source, &constants, "prefill_activate")?, out_stride })
    }

    /// For `rows` rows: `out` has them in the down projection's stride, `gate_up` in twice the feed-forward size.
    pub(crate) fn prepare(
        &self,
        out: CUdeviceptr,
        gate_up: CUdeviceptr,
        weights: &LayerWeights,
        rows: usize,
    ) -> Prepared {
        let blocks = (rows * self.out_stride / 8).div_ceil(THREADS as usize) as u32;
        let bias = weights.gate_up_bias.as_ref().map_or(0, DeviceBuffer::pointer);
        let arguments = Arguments::new().value(out).value(gate_up).value(bias).value(rows as i32);
        Prepared { kernel: self.kernel.clone(), launch: Launch::linear(blocks, THREADS), arguments }
    }
}

/// Adds a bias to f32 rows.
#[derive(Debug)]
pub(crate) struct AddBias {
    kernel: Kernel,
}

fn add_bias_constants(rows: usize) -> Specialization {
    Specialization::new().define("ADD_BIAS", 1).define("ROWS", rows)
}

impl AddBias {
    /// For biases of `rows` numbers, a multiple of 4.
    pub(crate) fn new(loader: &mut Loader, rows: usize) -> Result<Self> {
        Ok(Self { kernel: loader.kernel(FAMILY.source, &add_bias_constants(rows), "prefill_add_bias")? })
    }

    /// For the first `positions` rows of `values`.
    pub(crate) fn prepare(&self, values: CUdeviceptr, bias: &DeviceBuffer<f32>, positions: usize) -> Prepared {
        let arguments = Arguments::new().value(values).buffer(bias);
        Prepared { kernel: self.kernel.clone(), launch: Launch::linear(positions as u32, THREADS), arguments }
    }
}

fn specializations() -> Vec<(&'static str, Specialization)> {
    let heads = |query, key_value, head_dim, query_stride| Heads {
        query,
        key_value,
        head_dim,
        window: None,
        query_stride,
        out_stride: crate::padded(query * head_dim),
    };
    let plain = NormalizeShape { hidden: 4096, out_stride: 4096, delta: false, bias: false, post_norm: false };
    let halves = |pairs| Some((pairs, RopeLayout::Halves));
    let (llama, gemma, phi) = (heads(32, 8, 128, 6144), heads(4, 1, 256, 1536), heads(32, 32, 96, 9216));
    vec![
        ("embed", embed_constants(Element::F16, 4096, 4096)),
        ("embed-bf16", embed_constants(Element::Bf16, 640, 640)),
        ("normalize", plain.constants(Element::F16)),
        ("normalize-delta-bias", NormalizeShape { delta: true, bias: true, ..plain }.constants(Element::F16)),
        ("normalize-post", NormalizeShape { delta: true, post_norm: true, ..plain }.constants(Element::Bf16)),
        ("append", append_constants(Element::F16, &llama, halves(64), false, false)),
        ("append-norm", append_constants(Element::F16, &gemma, halves(128), true, false)),
        ("append-partial-bias", append_constants(Element::F16, &phi, halves(36), false, true)),
        (
            "append-interleaved",
            append_constants(Element::F16, &llama, Some((64, RopeLayout::Interleaved)), false, false),
        ),
        ("append-no-rope", append_constants(Element::Bf16, &llama, None, false, false)),
        ("add-bias", add_bias_constants(1152)),
        ("activate", activate_constants(Element::F16, 14_336, 14_336, Activation::Silu, false)),
        ("activate-gelu-bias", activate_constants(Element::F16, 160, 192, Activation::GeluTanh, true)),
    ]
}
