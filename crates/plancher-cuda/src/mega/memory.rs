//! What the megakernel has on the device beside the model's own weights and cache: the packed stream, the instructions,
//! norms and biases laid out for it, the exchange.

use plancher_program::gpu::{Plan, padded};

use super::pack::pack;
use super::parameters::Layer;
use crate::{Device, DeviceBuffer, DeviceWeights, KvCache, LayerWeights, Loader, Result};

/// Words of counters before the scratch of sampling: arrivals, abort.
const COUNTER_WORDS: usize = 64;

/// The buffers.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) stream: DeviceBuffer<u64>,
    pub(super) instructions: DeviceBuffer<u32>,
    pub(super) norms: DeviceBuffer<f32>,
    pub(super) biases: Option<DeviceBuffer<f32>>,
    pub(super) head_norms: Option<DeviceBuffer<f32>>,
    pub(super) layers: DeviceBuffer<Layer>,
    pub(super) exchange: DeviceBuffer<u32>,
    pub(super) counters: DeviceBuffer<u32>,
}

/// Which products of a model have a bias in any layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one a product")]
pub(super) struct Biases {
    pub(super) query_key_value: bool,
    pub(super) output: bool,
    pub(super) gate_up: bool,
    pub(super) down: bool,
}

impl Biases {
    pub(super) fn of(weights: &DeviceWeights) -> Self {
        let any = |has: fn(&LayerWeights) -> bool| weights.layers.iter().any(has);
        Self {
            query_key_value: any(|layer| layer.query_key_value_bias.is_some()),
            output: any(|layer| layer.attention_output_bias.is_some()),
            gate_up: any(|layer| layer.gate_up_bias.is_some()),
            down: any(|layer| layer.down_bias.is_some()),
        }
    }

    fn any(self) -> bool {
        self.query_key_value || self.output || self.gate_up || self.down
    }
}

/// Bytes that [`Memory::new`] allocates, nearly.
pub(super) fn bytes(plan: &Plan) -> u64 {
    let shape = &plan.shape;
    let vectors = 2 * padded(shape.hidden) + shape.query_key_value_rows() + 2 * (shape.hidden + shape.feed_forward);
    let lists = plan.workers.len() * plan.ring.instructions * 16;
    (plan.stream_bytes() + plan.exchange.bytes + 4 * vectors * shape.layers + lists) as u64
}

impl Memory {
    pub(super) fn new(loader: &mut Loader, weights: &DeviceWeights, cache: &KvCache, plan: &Plan) -> Result<Self> {
        let device = loader.device().clone();
        let scratch = sampling_scratch(plan.workers.len());
        Ok(Self {
            stream: pack(loader, weights, plan)?,
            instructions: DeviceBuffer::from_slice(&device, &plan.instruction_words())?,
            norms: norms(&device, weights)?,
            biases: Biases::of(weights).any().then(|| biases(&device, weights, plan)).transpose()?,
            head_norms: plan.shape.qk_norm.then(|| head_norms(&device, weights, plan)).transpose()?,
            layers: layers(&device, weights, cache)?,
            exchange: DeviceBuffer::uninitialized(&device, plan.exchange.bytes / 4)?,
            counters: DeviceBuffer::uninitialized(&device, COUNTER_WORDS + scratch / 4)?,
        })
    }

    /// What every launch begins with: no word is there, nobody has arrived. Does not wait.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.exchange.fill_bytes(0xff)?;
        self.counters.fill_bytes(0)
    }
}

/// Bytes of scratch that `mega_sample.cuh` needs.
fn sampling_scratch(workers: usize) -> usize {
    128 + 3 * (10_256 + 16 * workers)
}

/// f32 `(layers, 2, padded hidden)`, then the output's.
fn norms(device: &Device, weights: &DeviceWeights) -> Result<DeviceBuffer<f32>> {
    let hidden = weights.config.hidden_size;
    let stride = padded(hidden);
    let mut all = DeviceBuffer::zeroed(device, (2 * weights.layers.len() + 1) * stride)?;
    let of_layers = weights.layers.iter().flat_map(|layer| [&layer.attention_norm, &layer.feed_forward_norm]);
    for (index, norm) in of_layers.chain([&weights.output_norm]).enumerate() {
        all.copy_from(index * stride, norm, 0, hidden)?;
    }
    Ok(all)
}

/// f32, for each layer query, key and value; output; gate and up; down. Zeros where there is none.
fn biases(device: &Device, weights: &DeviceWeights, plan: &Plan) -> Result<DeviceBuffer<f32>> {
    let shape = &plan.shape;
    let rows = [shape.query_key_value_rows(), shape.hidden, 2 * shape.feed_forward, shape.hidden];
    let mut all = DeviceBuffer::zeroed(device, rows.iter().sum::<usize>() * shape.layers)?;
    let mut at = 0;
    for layer in &weights.layers {
        let of_layer =
            [&layer.query_key_value_bias, &layer.attention_output_bias, &layer.gate_up_bias, &layer.down_bias];
        for (bias, rows) in of_layer.into_iter().zip(rows) {
            if let Some(bias) = bias {
                all.copy_from(at, bias, 0, rows)?;
            }
            at += rows;
        }
    }
    Ok(all)
}

/// f32 `(layers, 2, head_dim)`.
fn head_norms(device: &Device, weights: &DeviceWeights, plan: &Plan) -> Result<DeviceBuffer<f32>> {
    let dim = plan.shape.head_dim;
    let mut all = DeviceBuffer::zeroed(device, 2 * dim * weights.layers.len())?;
    let of_layers = weights.layers.iter().flat_map(|layer| [&layer.query_norm, &layer.key_norm]);
    for (index, norm) in of_layers.enumerate() {
        if let Some(norm) = norm {
            all.copy_from(index * dim, norm, 0, dim)?;
        }
    }
    Ok(all)
}

fn layers(device: &Device, weights: &DeviceWeights, cache: &KvCache) -> Result<DeviceBuffer<Layer>> {
    let layers = weights.config.layers.iter().enumerate().map(|(index, layer)| Layer {
        cache: cache.layer(index).pointer(),
        rope: layer.rope.and_then(|rope| weights.ropes.get(rope)).map_or(0, |rope| rope.table.pointer()),
        // A window that no sequence can outgrow is none.
        window: layer.window.filter(|&window| window < cache.positions()).unwrap_or(0) as u32,
        scale: layer.attention_scale,
    });
    DeviceBuffer::from_slice(device, &layers.collect::<Vec<_>>())
}
