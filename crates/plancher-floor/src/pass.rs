//! The floor of one forward pass: decoding any batch at any context, verifying a draft, or prefill.
//!
//! Bytes and FLOP are counted by class of operation for *one device* (tensor parallelism divides what
//! [`crate::Shard`] says). The least time is the sum over classes of the longer of bytes over bandwidth and FLOP
//! over peak: classes depend on each other, so that one cannot hide behind another.

use crate::communication::{Communication, layer_all_reduces};
use crate::error::{Result, product, sum};
use crate::experts::expected_distinct;
use crate::shape::part_of;
use crate::{Class, Compute, FloorError, Format, Hardware, ModelShape, Weight};

/// What one pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// The next token of each sequence.
    Decode {
        /// Sequences.
        batch: u64,
        /// Tokens of each sequence that attention sees.
        context: u64,
        /// New tokens a sequence in this pass: 1, or `k + 1` to verify a draft of `k`.
        positions: u64,
    },
    /// All tokens of a prompt at once.
    Prefill {
        /// Sequences.
        batch: u64,
        /// Tokens of each prompt.
        prompt: u64,
        /// The head computes every position instead of each sequence's last.
        all_logits: bool,
    },
}

impl Regime {
    /// Decoding one token of each of `batch` sequences at `context`.
    #[must_use]
    pub const fn decode(batch: u64, context: u64) -> Self {
        Self::Decode { batch, context, positions: 1 }
    }

    /// Tokens that pass through the layers.
    pub(crate) fn tokens(self) -> u64 {
        // `check` bounds both factors to 2^32.
        match self {
            Self::Decode { batch, positions, .. } => batch * positions,
            Self::Prefill { batch, prompt, .. } => batch * prompt,
        }
    }

    pub(crate) const fn batch(self) -> u64 {
        match self {
            Self::Decode { batch, .. } | Self::Prefill { batch, .. } => batch,
        }
    }

    /// Tokens that attention sees: the context when decoding, the prompt in prefill.
    #[must_use]
    pub const fn context(self) -> u64 {
        match self {
            Self::Decode { context, .. } => context,
            Self::Prefill { prompt, .. } => prompt,
        }
    }

    const fn head_tokens(self) -> u64 {
        match self {
            Self::Decode { batch, positions, .. } => batch * positions,
            Self::Prefill { batch, all_logits: false, .. } => batch,
            Self::Prefill { batch, prompt, all_logits: true } => batch * prompt,
        }
    }

    fn check(self) -> Result<()> {
        let (context_name, new_name, new) = match self {
            Self::Decode { positions, .. } => ("context", "positions", positions),
            Self::Prefill { prompt, .. } => ("prompt", "prompt", prompt),
        };
        at_least_one("batch", self.batch())?;
        at_least_one(context_name, self.context())?;
        at_least_one(new_name, new)
    }
}

/// Refuses 0 and absurdly large counts, so that products of two counts fit in 64 bits.
pub(crate) fn at_least_one(name: &str, value: u64) -> Result<()> {
    if value == 0 || value > 1 << 31 {
        return Err(FloorError::invalid(name, format!("`{value}` is not a count from 1 to 2147483648")));
    }
    Ok(())
}

/// What else decides a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How KV entries are stored.
    pub kv: Format,
    /// Devices that share every layer.
    pub tensor_parallel: u64,
    /// The operand type whose peak applies; by default the fastest that holds the weights.
    pub compute: Option<Compute>,
}

impl Default for Setting {
    fn default() -> Self {
        Self { kv: Format::Bf16, tensor_parallel: 1, compute: None }
    }
}

/// One row of the table: a class of operation on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Which class.
    pub class: Class,
    /// Bytes that move between memory and the device.
    pub bytes: u128,
    /// FLOP, 2 per multiply-add.
    pub flops: u128,
    /// Seconds that the bytes take.
    pub memory_s: f64,
    /// Seconds that the FLOP take; 0 when the machine's peaks are not known.
    pub compute_s: f64,
}

impl Operation {
    /// The least time of this class, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.memory_s.max(self.compute_s)
    }

    /// What limits it.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        Limiter::of(self.memory_s, self.compute_s)
    }
}

/// Which of the two limits is the longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Limiter {
    Memory,
    Compute,
}

impl Limiter {
    pub(crate) fn of(memory_s: f64, compute_s: f64) -> Self {
        if compute_s > memory_s { Self::Compute } else { Self::Memory }
    }

    /// `memory` or `compute`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
        }
    }
}

/// The floor of one pass. Bytes and FLOP are those of one device; parameters are the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// What was computed.
    pub regime: Regime,
    /// Under which setting.
    pub setting: Setting,
    /// The classes that the model has, in the order of [`Class`].
    pub operations: Vec<Operation>,
    /// Parameters stored.
    pub params_total: u128,
    /// Parameters that this pass reads; with experts the expected number, rounded.
    pub params_read: u128,
    /// KV bytes that a token adds, over all devices together.
    pub kv_bytes_per_token: u128,
    /// The ridge: FLOP per byte at which both limits are equal, for the peak of most of the FLOP; `None` when no
    /// peak is known.
    pub ridge: Option<f64>,
    /// The operand type and rate of that peak.
    pub peak: Option<(Compute, f64)>,
    /// All-reduces between devices, each its own line; not part of [`Floor::seconds`].
    pub communication: Vec<Communication>,
    /// Bytes of activations by the model of [`crate::activations`]; not part of [`Floor::seconds`].
    pub activation_bytes: u128,
    /// Seconds for them.
    pub activation_s: f64,
}

impl Floor {
    /// Bytes that move: weights and KV.
    #[must_use]
    pub fn bytes(&self) -> u128 {
        self.operations.iter().map(|operation| operation.bytes).sum()
    }

    /// FLOP.
    #[must_use]
    pub fn flops(&self) -> u128 {
        self.operations.iter().map(|operation| operation.flops).sum()
    }

    /// Bytes of weights read.
    #[must_use]
    pub fn weight_bytes_read(&self) -> u128 {
        self.bytes() - self.kv_bytes()
    }

    /// Bytes of the KV cache: read by decoding, written by prefill.
    #[must_use]
    pub fn kv_bytes(&self) -> u128 {
        self.operations.iter().filter(|o| o.class == Class::Attention).map(|operation| operation.bytes).sum()
    }

    /// The least time of the pass in seconds: weights and KV by the per-class rule.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.operations.iter().map(Operation::seconds).sum()
    }

    /// The single maximum over the totals, in seconds: a bound below [`Floor::seconds`], that of a machine on which
    /// all classes overlap perfectly.
    #[must_use]
    pub fn overlapped_seconds(&self) -> f64 {
        self.memory_s().max(self.compute_s())
    }

    /// Seconds for all bytes.
    #[must_use]
    pub fn memory_s(&self) -> f64 {
        self.operations.iter().map(|operation| operation.memory_s).sum()
    }

    /// Seconds for all FLOP.
    #[must_use]
    pub fn compute_s(&self) -> f64 {
        self.operations.iter().map(|operation| operation.compute_s).sum()
    }

    /// Seconds of communication.
    #[must_use]
    pub fn communication_s(&self) -> f64 {
        // An empty sum of floats is -0.
        self.communication.iter().fold(0.0, |total, term| total + term.seconds)
    }

    /// The floor with communication and activations, in seconds.
    #[must_use]
    pub fn step_seconds(&self) -> f64 {
        self.seconds() + self.communication_s() + self.activation_s
    }

    /// FLOP per byte.
    #[must_use]
    pub fn intensity(&self) -> f64 {
        self.flops() as f64 / self.bytes() as f64
    }

    /// What limits most of the time.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        let compute: f64 =
            self.operations.iter().filter(|o| o.limiter() == Limiter::Compute).map(Operation::seconds).sum();
        Limiter::of(self.seconds() - compute, compute)
    }

    /// Tokens a second over all sequences: new tokens when decoding (one a sequence and pass), prompt tokens in
    /// prefill.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        let tokens = match self.regime {
            Regime::Decode { batch, .. } => batch,
            Regime::Prefill { .. } => self.regime.tokens(),
        };
        tokens as f64 / self.seconds()
    }
}

/// The floor of one pass of `shape` on `hardware`.
///
/// # Errors
/// When a count is 0 or absurd, the devices do not divide the model, a chosen peak is not known, or a product does
/// not fit in 128 bits. Whether the model fits in memory is asked separately ([`ModelShape::stored_bytes`]).
pub fn floor(shape: &ModelShape, hardware: &Hardware, regime: Regime, setting: Setting) -> Result<Floor> {
    hardware.check()?;
    regime.check()?;
    at_least_one("tensor parallel", setting.tensor_parallel)?;
    let mut classes = Classes { hardware, setting, rows: Vec::new(), params_read: 0, by_peak: Vec::new() };
    for layer in &shape.layers {
        for weight in &layer.weights {
            classes.add_weight(weight, regime.tokens())?;
        }
        let (bytes, flops) = attention_counts(&layer.attention, regime, setting)?;
        classes.add(Class::Attention, setting.kv, bytes, flops)?;
    }
    for weight in &shape.outside {
        let tokens = if weight.class == Class::Head { regime.head_tokens() } else { regime.tokens() };
        classes.add_weight(weight, tokens)?;
    }
    let Classes { mut rows, params_read, by_peak, .. } = classes;
    let main_peak = by_peak.into_iter().max_by_key(|(flops, ..)| *flops).map(|(_, compute, rate)| (compute, rate));
    rows.sort_by_key(|row| row.class);
    let activation_bytes = crate::activations::bytes(shape, regime, setting)?;
    let floor = Floor {
        regime,
        setting,
        operations: rows,
        params_total: shape.params_total()?,
        params_read,
        kv_bytes_per_token: shape.kv_bytes_per_token(setting.kv)?,
        ridge: main_peak.map(|(_, rate)| hardware.ridge(rate)),
        peak: main_peak,
        communication: layer_all_reduces(shape, hardware, regime.tokens(), setting.tensor_parallel)?,
        activation_bytes,
        activation_s: activation_bytes as f64 / hardware.bandwidth,
    };
    // Every class was checked; the totals are sums of them.
    sum("bytes", floor.operations.iter().map(|row| row.bytes))?;
    sum("FLOP", floor.operations.iter().map(|row| row.flops))?;
    if floor.bytes() == 0 {
        return Err(FloorError::invalid("model", "has no weights"));
    }
    Ok(floor)
}

/// Bytes and FLOP of one layer's attention for all sequences.
fn attention_counts(attention: &crate::Attention, regime: Regime, setting: Setting) -> Result<(u128, u128)> {
    let devices = setting.tensor_parallel;
    let bytes = attention.kv_bytes(regime.context(), setting.kv, devices)?;
    let flops = match regime {
        Regime::Decode { context, positions, .. } => attention.decode_flops(positions, context, devices)?,
        Regime::Prefill { prompt, .. } => attention.causal_flops(prompt, devices)?,
    };
    let batch = regime.batch().into();
    Ok((product("KV bytes", [bytes, batch])?, product("attention FLOP", [flops, batch])?))
}

/// The rows while they are summed up.
struct Classes<'a> {
    hardware: &'a Hardware,
    setting: Setting,
    rows: Vec<Operation>,
    params_read: u128,
    /// FLOP of weights by the peak that applies to them.
    by_peak: Vec<(u128, Compute, f64)>,
}

impl Classes<'_> {
    fn add_weight(&mut self, weight: &Weight, tokens: u64) -> Result<()> {
        if weight.class == Class::Embedding {
            return Ok(());
        }
        let (held, of) = weight.shard.part(self.setting.tensor_parallel)?;
        let on_device = |elements| part_of(elements, held, of);
        let (elements, read_params) = match weight.experts {
            None => (on_device(weight.elements()?)?, weight.elements()?),
            Some(experts) => {
                let all = weight.elements()?;
                (expected_distinct(on_device(all)?, experts, tokens)?, expected_distinct(all, experts, tokens)?)
            }
        };
        self.params_read = sum("parameters read", [self.params_read, read_params])?;
        let flops = if weight.is_matmul() {
            product("FLOP", [2, on_device(weight.active_elements()?)?, tokens.into()])?
        } else {
            0
        };
        self.add(weight.class, weight.format, weight.format.bytes(elements)?, flops)
    }

    fn add(&mut self, class: Class, format: Format, bytes: u128, flops: u128) -> Result<()> {
        let peak = self.hardware.peak(format, self.setting.compute)?;
        if let Some((compute, rate)) = peak
            && class != Class::Attention
        {
            match self.by_peak.iter_mut().find(|(_, other, _)| *other == compute) {
                Some((total, ..)) => *total = sum("FLOP", [*total, flops])?,
                None => self.by_peak.push((flops, compute, rate)),
            }
        }
        add_row(&mut self.rows, self.hardware, class, bytes, flops, peak.map(|(_, rate)| rate))
    }
}

/// Adds bytes and FLOP to the row of their class; FLOP without a known peak take no time.
pub(crate) fn add_row(
    rows: &mut Vec<Operation>,
    hardware: &Hardware,
    class: Class,
    bytes: u128,
    flops: u128,
    peak: Option<f64>,
) -> Result<()> {
    let index = rows.iter().position(|row| row.class == class).unwrap_or_else(|| {
        rows.push(Operation { class, bytes: 0, flops: 0, memory_s: 0.0, compute_s: 0.0 });
        rows.len() - 1
    });
    let row = &mut rows[index];
    row.bytes = sum("bytes", [row.bytes, bytes])?;
    row.flops = sum("FLOP", [row.flops, flops])?;
    row.memory_s = row.bytes as f64 / hardware.bandwidth;
    row.compute_s += peak.map_or(0.0, |peak| flops as f64 / peak);
    Ok(())
}
