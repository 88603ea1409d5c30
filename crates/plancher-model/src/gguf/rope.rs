//! Rotary embedding in GGUF metadata: `rope.*` keys and the tensor of frequency divisors, by llama.cpp's rules.

use super::config::Keys;
use super::tensors::{ROPE_FACTORS, Stored};
use crate::rope_scaling::{RopeScaling, Yarn, yarn_magnitude};
use crate::{Architecture, Result, Rope, RopeLayout, limits};

/// The tables of a model.
pub(super) struct Ropes {
    pub(super) tables: Vec<Rope>,
}

impl Ropes {
    /// The table of a layer with or without a window.
    pub(super) fn index(&self, windowed: bool) -> usize {
        if windowed { self.tables.len() - 1 } else { 0 }
    }

    pub(super) fn read(
        keys: Keys<'_>,
        architecture: Architecture,
        head_dim: usize,
        context_length: usize,
        stored: &Stored<'_>,
    ) -> Result<Self> {
        // Both architectures' query and key rows are stored in pairs (`llama_model_rope_type`).
        let layout = match architecture {
            Architecture::Llama | Architecture::SmolLm3 => RopeLayout::Interleaved,
            _ => RopeLayout::Halves,
        };
        let dimension_count = keys.size("rope.dimension_count", limits::HEAD_DIM)?;
        if let Some(n) = dimension_count.filter(|&n| n > head_dim) {
            let problem = format!("is {n}, but a head has {head_dim} elements");
            return Err(keys.invalid("rope.dimension_count", problem));
        }
        let rotary_dim = dimension_count.unwrap_or(head_dim);
        let theta = keys.number("rope.freq_base")?.unwrap_or(10_000.0);
        let scaling = scaling(keys, context_length, stored)?;
        let table = |key: &str, theta: f64, scaling: &RopeScaling| {
            Rope::scaled(layout, theta, rotary_dim, scaling).map_err(|problem| keys.invalid(key, problem))
        };
        let mut rope = table("rope.freq_base", theta, &scaling)?;
        if let Some(factor) = positive(keys, "rope.scaling.attn_factor")? {
            rope.attention_factor *= factor as f32;
        }
        if let Some(factors) = stored.vector(ROPE_FACTORS, rotary_dim / 2)? {
            if matches!(scaling, RopeScaling::Yarn(_)) {
                let problem = format!("is `yarn`, which together with the tensor `{ROPE_FACTORS}` is not supported");
                return Err(keys.invalid("rope.scaling.type", problem));
            }
            for (frequency, factor) in rope.inverse_frequencies.iter_mut().zip(factors) {
                *frequency /= factor;
                if !(frequency.is_finite() && *frequency > 0.0) {
                    return Err(
                        stored.invalid(ROPE_FACTORS, format!("has the factor {factor}, expected a positive one"))
                    );
                }
            }
        }
        let mut tables = vec![rope];
        if architecture == Architecture::Gemma3 {
            let theta = keys.number("rope.freq_base_swa")?.unwrap_or(10_000.0);
            tables.push(table("rope.freq_base_swa", theta, &RopeScaling::None)?);
        }
        Ok(Self { tables })
    }
}

/// A number above zero.
fn positive(keys: Keys<'_>, key: &str) -> Result<Option<f64>> {
    match keys.number(key)? {
        Some(n) if n <= 0.0 => Err(keys.invalid(key, format!("is {n}, expected a positive number"))),
        n => Ok(n),
    }
}

fn scaling(keys: Keys<'_>, context_length: usize, stored: &Stored<'_>) -> Result<RopeScaling> {
    // Two spellings; zero means none.
    let mut factor = 1.0;
    for key in ["rope.scale_linear", "rope.scaling.factor"] {
        if keys.number(key)?.is_some_and(|n| n != 0.0) {
            factor = positive(keys, key)?.unwrap_or(1.0);
        }
    }
    for name in ["rope_factors_long.weight", "rope_factors_short.weight"] {
        if stored.contains(name) {
            return Err(stored.invalid(name, "belongs to `longrope` scaling, which is not supported"));
        }
    }
    match keys.text("rope.scaling.type")? {
        Some("none") => Ok(RopeScaling::None),
        None | Some("linear") if factor.to_bits() == 1.0f64.to_bits() => Ok(RopeScaling::None),
        None | Some("linear") => Ok(RopeScaling::Linear { factor }),
        Some("yarn") => yarn(keys, factor, context_length),
        Some(other) => {
            let other = super::metadata::shown(other.as_bytes());
            let problem = format!("is `{other}`, which is not supported (supported: none, linear, yarn)");
            Err(keys.invalid("rope.scaling.type", problem))
        }
    }
}

fn yarn(keys: Keys<'_>, factor: f64, context_length: usize) -> Result<RopeScaling> {
    if let Some(n) = keys.number("rope.scaling.yarn_ext_factor")?.filter(|n| n.to_bits() != 1.0f64.to_bits()) {
        let problem = format!("is {n}, which is not supported (supported: 1)");
        return Err(keys.invalid("rope.scaling.yarn_ext_factor", problem));
    }
    // Written for architectures that are not supported; what it means for the others differs from converter to converter.
    if let Some(n) = keys.number("rope.scaling.yarn_log_multiplier")?.filter(|n| *n != 0.0) {
        return Err(keys.invalid("rope.scaling.yarn_log_multiplier", format!("is {n}, which is not supported")));
    }
    let original = keys.size("rope.scaling.original_context_length", limits::CONTEXT)?;
    Ok(RopeScaling::Yarn(Yarn {
        factor,
        original_context: original.unwrap_or(context_length) as f64,
        beta_fast: positive(keys, "rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
        beta_slow: positive(keys, "rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        truncate: true,
        attention_factor: yarn_magnitude(factor, 1.0),
    }))
}
