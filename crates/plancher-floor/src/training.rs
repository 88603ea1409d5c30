//! The floor of a training step: `6·N·T` and three times the attention, the bytes of one `AdamW` step, the memory that it
//! takes, and what data parallelism sends.

use crate::communication::Communication;
use crate::error::{Result, product, sum};
use crate::experts::expected_distinct;
use crate::pass::{Operation, Setting, add_row, at_least_one};
use crate::shape::part_of;
use crate::{Class, Compute, FloorError, Format, Hardware, LayerShape, ModelShape, Weight};

/// Which activations are kept for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointing {
    /// All, the matrix of attention probabilities included.
    None,
    /// All but that matrix, which is computed again (what `FlashAttention` does).
    Selective,
    /// Each layer's input; the whole forward pass is computed again.
    Full,
}

/// What a training step is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Sequences a step on each data-parallel replica.
    pub batch: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Replicas that share the batch (each of `tensor_parallel` devices).
    pub data_parallel: u64,
    /// What the replicas divide between them: 1 optimizer states, 2 also gradients, 3 also weights.
    pub zero_stage: u8,
    /// What is kept for the backward pass.
    pub checkpointing: Checkpointing,
    /// Tokens to train on, for the total.
    pub tokens: Option<u64>,
}

/// Bytes that one device holds in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingMemory {
    /// bf16 weights.
    pub weights: u128,
    /// bf16 gradients.
    pub gradients: u128,
    /// f32 master weights and Adam's two moments.
    pub optimizer: u128,
    /// Activations kept for the backward pass.
    pub activations: u128,
}

impl TrainingMemory {
    /// All of it.
    #[must_use]
    pub const fn total(&self) -> u128 {
        self.weights + self.gradients + self.optimizer + self.activations
    }
}

/// The floor of a step; bytes, FLOP and seconds are those of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingFloor {
    /// What was computed.
    pub training: Training,
    /// The classes, forward and backward together.
    pub operations: Vec<Operation>,
    /// Model FLOP of one token: `6·N` and three times its attention.
    pub flops_per_token: u128,
    /// FLOP of one token with what is computed again.
    pub hardware_flops_per_token: u128,
    /// The N of `6·N`: parameters in matrices that a token passes.
    pub params_matmul: u128,
    /// Parameters stored.
    pub params_total: u128,
    /// The peak that applies.
    pub peak: Option<(Compute, f64)>,
    /// What one device holds.
    pub memory: TrainingMemory,
    /// What is sent, each its own line; not part of [`TrainingFloor::seconds`].
    pub communication: Vec<Communication>,
    /// Devices in all.
    pub devices: u64,
    /// Tokens of one step over all replicas.
    pub tokens_per_step: u64,
}

impl TrainingFloor {
    /// The least time of a step in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.operations.iter().map(Operation::seconds).sum()
    }

    /// Tokens a second over all devices at the floor.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens_per_step as f64 / self.seconds()
    }

    /// Model-FLOP utilisation of a step of `seconds`: model FLOP over peak; at [`TrainingFloor::seconds`] the most that
    /// can be reached.
    #[must_use]
    pub fn mfu(&self, seconds: f64) -> Option<f64> {
        self.utilisation(self.flops_per_token, seconds)
    }

    /// Hardware-FLOP utilisation: as MFU, with what is computed again.
    #[must_use]
    pub fn hfu(&self, seconds: f64) -> Option<f64> {
        self.utilisation(self.hardware_flops_per_token, seconds)
    }

    fn utilisation(&self, flops_per_token: u128, seconds: f64) -> Option<f64> {
        let (_, peak) = self.peak?;
        Some(flops_per_token as f64 * self.tokens_per_step as f64 / (peak * seconds * self.devices as f64))
    }

    /// The least seconds of the whole run, where its tokens are given.
    #[must_use]
    pub fn total_seconds(&self) -> Option<f64> {
        Some(self.training.tokens? as f64 / self.tokens_per_second())
    }
}

/// bf16 weights are read by the forward and by the backward pass, and a bf16 gradient is written.
const BYTES_PER_PARAMETER: u128 = 6;
/// f32 master weight and two moments are read and written once a step.
const OPTIMIZER_BYTES_PER_PARAMETER: u128 = 24;

/// The floor of one training step with `AdamW` in bf16 mixed precision.
///
/// # Errors
/// When a count is impossible, the devices do not divide the model, several devices have no known link, or a product
/// does not fit in 128 bits.
pub fn training_floor(
    shape: &ModelShape,
    hardware: &Hardware,
    training: Training,
    setting: Setting,
) -> Result<TrainingFloor> {
    hardware.check()?;
    at_least_one("batch", training.batch)?;
    at_least_one("context", training.sequence)?;
    at_least_one("devices", training.data_parallel)?;
    at_least_one("tensor parallel", setting.tensor_parallel)?;
    if training.zero_stage > 3 {
        return Err(FloorError::invalid("zero", format!("`{}` is not a stage from 0 to 3", training.zero_stage)));
    }
    let tokens = training.batch * training.sequence;
    let tokens_per_step = tokens.checked_mul(training.data_parallel).ok_or(FloorError::Overflow("tokens of a step"))?;
    let peak = hardware.peak(Format::Bf16, setting.compute)?;
    let step = Step { shape, hardware, training, setting, tokens, peak: peak.map(|(_, rate)| rate) };
    let parameters = step.parameters()?;
    let (attention, causal) = (step.attention_flops(1)?, step.attention_flops(setting.tensor_parallel)?);
    let matmul = shape.params_matmul()?;
    let per_sequence = u128::from(training.sequence);
    let flops_per_token = sum("FLOP", [product("FLOP", [6, matmul])?, 3 * attention / per_sequence])?;
    let recomputed = match training.checkpointing {
        Checkpointing::None => 0,
        Checkpointing::Selective => attention / per_sequence,
        Checkpointing::Full => flops_per_token / 3,
    };
    Ok(TrainingFloor {
        training,
        operations: step.operations(causal, parameters)?,
        flops_per_token,
        hardware_flops_per_token: sum("FLOP", [flops_per_token, recomputed])?,
        params_matmul: matmul,
        params_total: shape.params_total()?,
        peak,
        memory: step.memory(parameters)?,
        communication: step.communication(parameters)?,
        devices: training.data_parallel.checked_mul(setting.tensor_parallel).ok_or(FloorError::Overflow("devices"))?,
        tokens_per_step,
    })
}

/// A step while it is counted.
struct Step<'a> {
    shape: &'a ModelShape,
    hardware: &'a Hardware,
    training: Training,
    setting: Setting,
    /// Tokens of one replica.
    tokens: u64,
    peak: Option<f64>,
}

impl Step<'_> {
    fn on_device(&self, weight: &Weight, elements: u128) -> Result<u128> {
        let (held, of) = weight.shard.part(self.setting.tensor_parallel)?;
        part_of(elements, held, of)
    }

    /// Parameters of one device before `ZeRO` divides them.
    fn parameters(&self) -> Result<u128> {
        self.shape
            .weights()
            .try_fold(0, |total, weight| sum("parameters", [total, self.on_device(weight, weight.elements()?)?]))
    }

    /// Forward FLOP of the attention of one sequence.
    fn attention_flops(&self, devices: u64) -> Result<u128> {
        let layers = self.shape.layers.iter();
        layers
            .map(|layer| layer.attention.causal_flops(self.training.sequence, devices))
            .try_fold(0, |total, flops| sum("attention FLOP", [total, flops?]))
    }

    fn operations(&self, causal: u128, parameters: u128) -> Result<Vec<Operation>> {
        let full = self.training.checkpointing == Checkpointing::Full;
        let passes = if full { 4 } else { 3 };
        let attention_passes = if self.training.checkpointing == Checkpointing::None { 3 } else { 4 };
        let mut rows = Vec::new();
        let add = |rows: &mut Vec<Operation>, class, bytes, flops| {
            add_row(rows, self.hardware, class, bytes, flops, self.peak)
        };
        let attention = product("attention FLOP", [attention_passes, causal, self.training.batch.into()])?;
        add(&mut rows, Class::Attention, 0, attention)?;
        for weight in self.shape.weights().filter(|weight| weight.class != Class::Embedding) {
            let mut read = self.on_device(weight, weight.elements()?)?;
            if let Some(experts) = weight.experts {
                read = expected_distinct(read, experts, self.tokens)?;
            }
            let active = self.on_device(weight, weight.active_elements()?)?;
            let flops = if weight.is_matmul() { product("FLOP", [2 * passes, active, self.tokens.into()])? } else { 0 };
            add(&mut rows, weight.class, product("bytes", [BYTES_PER_PARAMETER, read])?, flops)?;
        }
        let divided = if self.training.zero_stage >= 1 { self.training.data_parallel } else { 1 };
        let optimizer = product("bytes", [OPTIMIZER_BYTES_PER_PARAMETER, parameters.div_ceil(divided.into())])?;
        add(&mut rows, Class::Optimizer, optimizer, 0)?;
        rows.sort_by_key(|row| row.class);
        Ok(rows)
    }

    fn memory(&self, parameters: u128) -> Result<TrainingMemory> {
        let replicas = u128::from(self.training.data_parallel);
        let divided = |bytes: u128, from_stage: u8| {
            let all = product("bytes", [bytes, parameters])?;
            Ok(if self.training.zero_stage >= from_stage { all.div_ceil(replicas) } else { all })
        };
        let memory = TrainingMemory {
            weights: divided(2, 3)?,
            gradients: divided(2, 2)?,
            optimizer: divided(12, 1)?,
            activations: self.activations()?,
        };
        sum("bytes", [memory.weights, memory.gradients, memory.optimizer, memory.activations])?;
        Ok(memory)
    }

    /// Bytes of activations on one device; with tensor parallelism the sequence is divided as well, so that all of
    /// them are.
    fn activations(&self) -> Result<u128> {
        let hidden = u128::from(self.shape.hidden_size);
        let layers = self.shape.layers.iter().map(|layer| self.layer_activations(layer)).collect::<Result<Vec<_>>>()?;
        let kept = match self.training.checkpointing {
            // The inputs of all layers, and one layer in full while it is computed again.
            Checkpointing::Full => {
                let inputs = product("activations", [2, hidden, layers.len() as u128])?;
                sum("activations", [inputs, layers.into_iter().max().unwrap_or(0)])?
            }
            _ => sum("activations", layers)?,
        };
        // The final norm's input and output, and the logits in f32.
        let outside = 2 * 2 * hidden + 4 * u128::from(self.shape.vocab_size);
        let per_token = sum("activations", [kept, outside])?;
        Ok(product("activations", [per_token, self.tokens.into()])?.div_ceil(self.setting.tensor_parallel.into()))
    }

    /// Bytes a token that a layer keeps in bf16: both norms' inputs and outputs, and for every matrix the side that is
    /// not the residual stream (queries, keys, values, attention output, gate, up, their product).
    fn layer_activations(&self, layer: &LayerShape) -> Result<u128> {
        let hidden = self.shape.hidden_size;
        let mut elements = 4 * u128::from(hidden);
        for weight in layer.weights.iter().filter(|weight| weight.is_matmul()) {
            let side = if weight.rows == hidden { weight.columns } else { weight.rows };
            let copies = weight.experts.map_or(1, |experts| experts.active);
            elements = sum("activations", [elements, product("activations", [side.into(), copies.into()])?])?;
        }
        if let crate::Attention::Heads { n_heads, .. } | crate::Attention::Latent { n_heads, .. } = layer.attention
            && self.training.checkpointing == Checkpointing::None
        {
            let matrix =
                product("activations", [n_heads.into(), layer.attention.visible(self.training.sequence).into()])?;
            elements = sum("activations", [elements, matrix])?;
        }
        product("activations", [2, elements])
    }

    fn communication(&self, parameters: u128) -> Result<Vec<Communication>> {
        let mut lines = Vec::new();
        let replicas = self.training.data_parallel;
        let devices = self.setting.tensor_parallel;
        for line in crate::communication::layer_all_reduces(self.shape, self.hardware, self.tokens, devices)? {
            // The backward pass reduces as often as the forward pass.
            lines.push(Communication {
                bytes: product("all-reduce bytes", [2, line.bytes])?,
                seconds: 2.0 * line.seconds,
                formula: format!("2 × ({})", line.formula),
                ..line
            });
        }
        if replicas == 1 {
            return Ok(lines);
        }
        let Some(link) = &self.hardware.link else {
            let problem = format!("`{replicas}`: no link between devices is known for `{}`", self.hardware.name);
            return Err(FloorError::invalid("devices", problem));
        };
        // Each of reduce-scatter and all-gather sends (n − 1) / n of all bytes.
        let (times, name) = match self.training.zero_stage {
            3 => (3, "weights gathered twice, gradients reduced"),
            _ => (2, "gradients reduced, results gathered"),
        };
        let bytes = product("bytes", [times * 2, parameters, u128::from(replicas - 1)])?.div_ceil(replicas.into());
        lines.push(Communication {
            name,
            bytes,
            seconds: bytes as f64 / link.bandwidth,
            formula: format!(
                "{times} × 2 B × {parameters} × ({replicas} − 1) / {replicas} = {bytes} B over {:.0} GB/s",
                link.bandwidth / 1e9
            ),
        });
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    const PLAIN: Training = Training {
        batch: 1,
        sequence: 4096,
        data_parallel: 1,
        zero_stage: 0,
        checkpointing: Checkpointing::Selective,
        tokens: None,
    };

    fn of(training: Training, setting: Setting) -> TrainingFloor {
        let model = presets::model("llama-3.1-8b").unwrap();
        training_floor(&model, &presets::hardware("h100-sxm").unwrap(), training, setting).unwrap()
    }

    #[test]
    fn a_token_costs_six_n_and_three_times_its_attention() {
        let floor = of(PLAIN, Setting::default());
        assert_eq!(floor.params_matmul, 7_504_658_432);
        let attention = 4 * 32 * 32 * 128 * 4096 / 2;
        assert_eq!(floor.flops_per_token, 6 * 7_504_658_432 + 3 * attention);
        assert_eq!(floor.hardware_flops_per_token, floor.flops_per_token + attention);
        let of_rows: u128 = floor.operations.iter().map(|row| row.flops).sum();
        assert_eq!(of_rows, floor.hardware_flops_per_token * 4096);
    }

    #[test]
    fn full_recomputation_is_a_third_more() {
        let floor = of(Training { checkpointing: Checkpointing::Full, ..PLAIN }, Setting::default());
        assert_eq!(3 * floor.hardware_flops_per_token, 4 * floor.flops_per_token);
        let (mfu, hfu) = (floor.mfu(floor.seconds()).unwrap(), floor.hfu(floor.seconds()).unwrap());
        assert!((hfu / mfu - 4.0 / 3.0).abs() < 1e-9 && hfu < 1.0, "{mfu} {hfu}");
    }

    #[test]
    fn an_adamw_step_moves_thirty_bytes_a_parameter() {
        let floor = of(PLAIN, Setting::default());
        let bytes: u128 = floor.operations.iter().map(|row| row.bytes).sum();
        let embedding = 128_256 * 4096;
        assert_eq!(bytes, 30 * 8_030_261_248 - 6 * embedding);
    }

    #[test]
    fn zero_stages_divide_what_they_say() {
        let memory = |zero_stage| of(Training { zero_stage, data_parallel: 8, ..PLAIN }, Setting::default()).memory;
        let n = 8_030_261_248_u128;
        let parts = |m: TrainingMemory| (m.weights, m.gradients, m.optimizer);
        assert_eq!(parts(memory(0)), (2 * n, 2 * n, 12 * n));
        assert_eq!(parts(memory(1)), (2 * n, 2 * n, 12 * n / 8));
        assert_eq!(parts(memory(2)), (2 * n, 2 * n / 8, 12 * n / 8));
        assert_eq!(parts(memory(3)), (2 * n / 8, 2 * n / 8, 12 * n / 8));
    }

    #[test]
    fn activations_are_counted_from_the_layers() {
        let activations =
            |checkpointing| of(Training { checkpointing, ..PLAIN }, Setting::default()).memory.activations;
        let layer = 2 * (4 * 4096 + (4096 + 2 * 1024) + 4096 + 3 * 14336);
        let outside = 4 * 4096 + 4 * 128_256;
        assert_eq!(activations(Checkpointing::Selective), 4096 * (32 * layer + outside));
        assert_eq!(activations(Checkpointing::None), 4096 * (32 * (layer + 2 * 32 * 4096) + outside));
        assert_eq!(activations(Checkpointing::Full), 4096 * (32 * 2 * 4096 + layer + outside));
    }

    #[test]
    fn replicas_send_their_gradients_and_tensor_parallel_halves_the_work() {
        let alone = of(PLAIN, Setting::default());
        let replicated = of(Training { data_parallel: 8, ..PLAIN }, Setting::default());
        assert_eq!(replicated.communication[0].bytes, 2 * 2 * 8_030_261_248 * 7 / 8);
        assert_eq!(replicated.tokens_per_step, 8 * alone.tokens_per_step);
        let halved = of(PLAIN, Setting { tensor_parallel: 2, ..Setting::default() });
        let flops = |floor: &TrainingFloor| floor.operations.iter().map(|row| row.flops).sum::<u128>();
        assert_eq!(2 * flops(&halved), flops(&alone));
        assert_eq!(halved.communication.len(), 2);
    }

    #[test]
    fn a_run_takes_its_tokens_over_the_rate() {
        let floor = of(Training { tokens: Some(15_000_000_000_000), ..PLAIN }, Setting::default());
        let expected = 15e12 / floor.tokens_per_second();
        assert!((floor.total_seconds().unwrap() - expected).abs() < 1.0);
    }
}
