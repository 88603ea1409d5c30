//! A model's weights on the device: matrices row-major in one 16-bit type, norms and biases in f32, rotary tables. Decode
//! and prefill read the same copy.
//!
//! The type is f16 for every model unless a stored value is too large for it: activations are rounded to the same type as
//! weights, and with bf16's 8 bits that alone moves the logits of the golden checkpoints by 1 to 3 %, with f16's 11 bits
//! by 0.1 to 0.3 %. A bf16 weight becomes f16 exactly down to 2⁻¹⁴, and within 2⁻²⁵ below.

mod convert;
mod load;
mod matrix;
mod stacked;

use plancher_model::{LayerTensor, Model, ModelConfig, RopeLayout, TensorKey};
use plancher_program::{Vectors, lower};

pub use matrix::{DeviceMatrix, Element, ROW_MULTIPLE, padded};

use self::load::{Failure, MatrixLoader, Stack};
use self::stacked::stacked_bias;
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Arguments, Compiler, CudaError, Device, DeviceBuffer, Launch, Loader, Result, Source};

/// Random matrices and rotary tables, made on the device.
pub(crate) static FAMILY: Family = Family {
    source: Source { name: "weights", text: include_str!("../../kernels/weights.cu") },
    purpose: "random weights of a dummy model, rotary tables",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[Expectation::new("fill_random", 80, "STG.E.128")],
    specializations: || [Element::Bf16, Element::F16].map(|element| (element.name(), element.constants())).into(),
};

/// The weights of one layer. Biases of stacked matrices are stacked alike, zeros where a part has none; norms have
/// `norm_offset` added.
#[derive(Debug)]
pub struct LayerWeights {
    /// `(hidden_size)`.
    pub attention_norm: DeviceBuffer<f32>,
    /// Query, key and value rows in this order: `((n_heads + 2 * n_kv_heads) * head_dim, hidden_size)`.
    pub query_key_value: DeviceMatrix,
    /// A row each.
    pub query_key_value_bias: Option<DeviceBuffer<f32>>,
    /// `(head_dim)`.
    pub query_norm: Option<DeviceBuffer<f32>>,
    /// `(head_dim)`.
    pub key_norm: Option<DeviceBuffer<f32>>,
    /// `(hidden_size, n_heads * head_dim)`.
    pub attention_output: DeviceMatrix,
    /// `(hidden_size)`.
    pub attention_output_bias: Option<DeviceBuffer<f32>>,
    /// `(hidden_size)`, on the branch's output.
    pub post_attention_norm: Option<DeviceBuffer<f32>>,
    /// `(hidden_size)`.
    pub feed_forward_norm: DeviceBuffer<f32>,
    /// All gate rows, then all up rows: `(2 * feed_forward, hidden_size)`.
    pub gate_up: DeviceMatrix,
    /// A row each.
    pub gate_up_bias: Option<DeviceBuffer<f32>>,
    /// `(hidden_size, feed_forward)`.
    pub down: DeviceMatrix,
    /// `(hidden_size)`.
    pub down_bias: Option<DeviceBuffer<f32>>,
    /// `(hidden_size)`, on the branch's output.
    pub post_feed_forward_norm: Option<DeviceBuffer<f32>>,
}

/// A rotary table.
#[derive(Debug)]
pub struct RopeTable {
    /// How elements pair up.
    pub layout: RopeLayout,
    /// Pairs that are rotated; elements from `2 * pairs` on pass through.
    pub pairs: usize,
    /// Positions that the table covers.
    pub positions: usize,
    /// `(positions, pairs, 2)`: cosine and sine, attention factor applied.
    pub table: DeviceBuffer<f32>,
}

/// A whole model on the device; immutable, so that the kernels made for it can rely on its shapes.
#[derive(Debug)]
pub struct DeviceWeights {
    /// The normalised configuration.
    pub(crate) config: ModelConfig,
    /// The type of the matrices' elements, of keys and values, and of everything that is multiplied with them.
    pub(crate) element: Element,
    /// `(vocab_size, hidden_size)`.
    pub(crate) embedding: DeviceMatrix,
    /// `(vocab_size, hidden_size)`; nothing when it is the embedding ([`DeviceWeights::head`] resolves it).
    pub(crate) own_head: Option<DeviceMatrix>,
    /// `(hidden_size)`.
    pub(crate) output_norm: DeviceBuffer<f32>,
    /// By index of `config.ropes`.
    pub(crate) ropes: Vec<RopeTable>,
    /// First to last.
    pub(crate) layers: Vec<LayerWeights>,
    /// Bytes of all matrices, vectors and tables on the device.
    pub(crate) bytes: u64,
    /// One line for the user when stored types were converted: from what to what.
    pub(crate) note: Option<String>,
}

/// How to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// The element type, instead of f16 where it fits.
    pub element: Option<Element>,
    /// Positions that the rotary tables must cover; the model's context when there is nothing.
    pub positions: Option<usize>,
}

impl DeviceWeights {
    /// Puts `model` on the device; matrices of a dummy model are made there. `progress` is told the bytes that are
    /// there and all bytes.
    ///
    /// # Errors
    /// If tensors are missing, a shape is one that the kernels cannot take, the device's memory is too small (the error
    /// says by how many bytes, before anything is copied), or the device fails.
    pub fn load(
        device: &Device,
        compiler: &Compiler,
        model: &Model,
        options: LoadOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut load = |element| Self::load_as(device, compiler, model, element, options, progress);
        let loaded = match (load(options.element.unwrap_or(Element::F16)), options.element) {
            (Err(Failure::TooLarge), None) => load(Element::Bf16),
            (loaded, _) => loaded,
        };
        loaded.map_err(|failure| match failure {
            Failure::Cuda(error) => error,
            Failure::TooLarge => CudaError::Unsupported("a stored weight is larger than f16 can hold".to_owned()),
        })
    }

    fn load_as(
        device: &Device,
        compiler: &Compiler,
        model: &Model,
        element: Element,
        options: LoadOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, Failure> {
        let (config, weights) = (&model.config, &model.weights);
        let invalid = |error: plancher_program::ProgramError| CudaError::Unsupported(error.to_string());
        lower(config, weights).map_err(invalid)?;
        check_shapes(config)?;
        let vectors = Vectors::new(config, weights).map_err(invalid)?;
        let positions = options.positions.unwrap_or(config.context_length).max(1);

        let outside = |key| Stack::new(config, &[key]);
        let layer_stacks: Vec<[Stack; 4]> = (0..config.layers.len()).map(|layer| stacks(config, layer)).collect();
        let matrices = layer_stacks.iter().flatten().map(Stack::bytes).sum::<u64>()
            + outside(TensorKey::Embedding).bytes()
            + if config.tied_embeddings { 0 } else { outside(TensorKey::Head).bytes() };
        let tables: u64 = config.ropes.iter().map(|rope| 8 * (rope.inverse_frequencies.len() * positions) as u64).sum();
        let small: u64 = 4 * vector_elements(config, &vectors) as u64;
        let wanted = matrices + tables + small;
        let free = device.memory()?.free;
        if wanted > free {
            return Err(CudaError::OutOfMemory { wanted, free, missing: wanted - free }.into());
        }

        let mut loader = Loader::new(device, compiler);
        let mut matrix = MatrixLoader::new(device, weights, element, matrices, progress);
        let vector = |values: &[f32]| load::vector(device, values);
        let optional = |values: Option<&[f32]>| values.map(vector).transpose();
        let mut layers = Vec::with_capacity(config.layers.len());
        for ((stacks, v), layer) in layer_stacks.iter().zip(&vectors.layers).zip(&config.layers) {
            let [query_key_value, attention_output, gate_up, down] = stacks;
            let kv_rows = layer.kv_rows();
            let query_key_value_bias = stacked_bias(&[
                (v.query_bias.as_deref(), layer.query_rows()),
                (v.key_bias.as_deref(), kv_rows),
                (v.value_bias.as_deref(), kv_rows),
            ]);
            let feed_forward = layer.feed_forward_rows();
            let gate_up_bias =
                stacked_bias(&[(v.gate_bias.as_deref(), feed_forward), (v.up_bias.as_deref(), feed_forward)]);
            layers.push(LayerWeights {
                attention_norm: vector(&v.attention_norm)?,
                query_key_value: matrix.load(&mut loader, query_key_value)?,
                query_key_value_bias: optional(query_key_value_bias.as_deref())?,
                query_norm: optional(v.query_norm.as_deref())?,
                key_norm: optional(v.key_norm.as_deref())?,
                attention_output: matrix.load(&mut loader, attention_output)?,
                attention_output_bias: optional(v.attention_output_bias.as_deref())?,
                post_attention_norm: optional(v.post_attention_norm.as_deref())?,
                feed_forward_norm: vector(&v.feed_forward_norm)?,
                gate_up: matrix.load(&mut loader, gate_up)?,
                gate_up_bias: optional(gate_up_bias.as_deref())?,
                down: matrix.load(&mut loader, down)?,
                down_bias: optional(v.down_bias.as_deref())?,
                post_feed_forward_norm: optional(v.post_feed_forward_norm.as_deref())?,
            });
        }
        let embedding = matrix.load(&mut loader, &outside(TensorKey::Embedding))?;
        let own_head =
            if config.tied_embeddings { None } else { Some(matrix.load(&mut loader, &outside(TensorKey::Head))?) };
        let note = note(&matrix.converted, element);
        let ropes = config.ropes.iter().map(|rope| rope_table(&mut loader, element, rope, positions));
        let ropes = ropes.collect::<Result<_>>()?;
        let output_norm = vector(&vectors.output_norm)?;
        device.synchronize()?;
        Ok(Self {
            config: config.clone(),
            element,
            embedding,
            own_head,
            output_norm,
            ropes,
            layers,
            bytes: wanted,
            note,
        })
    }

    /// The normalised configuration.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The type of the matrices' elements, of keys and values, and of everything that is multiplied with them.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Bytes of all matrices, vectors and tables on the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One line for the user when stored types were converted: from what to what.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Positions that the rotary tables cover.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.ropes.iter().map(|rope| rope.positions).min().unwrap_or(usize::MAX)
    }

    /// The layers' weights, first to last.
    #[must_use]
    pub fn layers(&self) -> &[LayerWeights] {
        &self.layers
    }

    /// The head: `(vocab_size, hidden_size)`.
    #[must_use]
    pub fn head(&self) -> &DeviceMatrix {
        self.own_head.as_ref().unwrap_or(&self.embedding)
    }
}

/// The four matrices of a layer, in the order of [`LayerWeights`].
fn stacks(config: &ModelConfig, layer: usize) -> [Stack; 4] {
    let stack = |parts: &[LayerTensor]| Stack::of_layer(config, layer, parts);
    [
        stack(&[LayerTensor::Query, LayerTensor::Key, LayerTensor::Value]),
        stack(&[LayerTensor::AttentionOutput]),
        stack(&[LayerTensor::Gate, LayerTensor::Up]),
        stack(&[LayerTensor::Down]),
    ]
}

/// The shapes that the kernels take: rows of whole 16-byte pieces.
fn check_shapes(config: &ModelConfig) -> Result<()> {
    let check = |field: &str, value: usize, multiple: usize, limit: usize| {
        if value.is_multiple_of(multiple) && value <= limit {
            return Ok(());
        }
        Err(CudaError::Unsupported(format!(
            "`{field}` is {value}, and the GPU's kernels take multiples of {multiple} up to {limit}"
        )))
    };
    check("hidden_size", config.hidden_size, 8, 1 << 16)?;
    for layer in &config.layers {
        check("head_dim", layer.head_dim, 8, 256)?;
        check("intermediate_size", layer.feed_forward_rows(), 8, 1 << 24)?;
    }
    Ok(())
}

fn vector_elements(config: &ModelConfig, vectors: &Vectors) -> usize {
    let layer = |layer: &plancher_model::LayerConfig| {
        4 * config.hidden_size
            + 2 * layer.head_dim
            + layer.query_rows()
            + 2 * layer.kv_rows()
            + 2 * layer.feed_forward_rows()
            + 2 * config.hidden_size
    };
    vectors.output_norm.len() + config.layers.iter().map(layer).sum::<usize>()
}

fn note(converted: &[plancher_model::DType], element: Element) -> Option<String> {
    if converted.is_empty() {
        return None;
    }
    let names: Vec<&str> = converted.iter().map(|dtype| dtype.name()).collect();
    Some(format!("{} weights are held as {element} on the GPU", names.join(", ")))
}

fn rope_table(
    loader: &mut Loader,
    element: Element,
    rope: &plancher_model::Rope,
    positions: usize,
) -> Result<RopeTable> {
    let device = loader.device().clone();
    let pairs = rope.inverse_frequencies.len();
    let frequencies = DeviceBuffer::from_slice(&device, &rope.inverse_frequencies)?;
    let too_long = || CudaError::Range { what: "positions", value: positions as u64, limit: u64::from(u32::MAX) };
    let entries = positions.checked_mul(pairs).filter(|&entries| u32::try_from(entries / 256).is_ok());
    let entries = entries.ok_or_else(too_long)?;
    let count = u32::try_from(positions).map_err(|_| too_long())?;
    let table = DeviceBuffer::uninitialized(&device, 2 * entries)?;
    let kernel = loader.kernel(FAMILY.source, &element.constants(), "rope_table")?;
    let arguments = Arguments::new()
        .buffer(&table)
        .buffer(&frequencies)
        .value(count)
        .value(pairs as u32)
        .value(rope.attention_factor);
    // SAFETY: the table has `positions * pairs` entries of two numbers; dropping the frequencies waits.
    unsafe { kernel.launch(&Launch::linear(entries.div_ceil(256) as u32, 256), &arguments)? };
    Ok(RopeTable { layout: rope.layout, pairs, positions, table })
}
