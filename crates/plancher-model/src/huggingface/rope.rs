//! Rotary embedding in `config.json`: the old spelling (`rope_theta`, `rope_scaling`), the new one of
//! transformers 5 (`rope_parameters`, flat or by layer type), and Gemma's `rope_local_base_freq`. Precedence
//! follows `RotaryEmbeddingConfigMixin` of transformers' `modeling_rope_utils.py`.

use crate::json::Fields;
use crate::rope_scaling::{RopeScaling, Yarn, yarn_magnitude};
use crate::{Architecture, Result, Rope, RopeLayout, limits};

use super::families::Family;
use super::layers::LayerKind;

/// What a rotary table depends on beside its own parameters.
pub(super) struct RopeContext<'a> {
    pub(super) config: Fields<'a>,
    pub(super) family: &'a Family,
    pub(super) head_dim: usize,
    pub(super) context_length: usize,
}

/// The rotary tables of a model and which one each kind of layer uses.
pub(super) struct Ropes {
    pub(super) tables: Vec<Rope>,
    by_kind: [usize; 2],
}

impl Ropes {
    /// Index of the table for layers of `kind`.
    pub(super) fn index(&self, kind: LayerKind) -> usize {
        self.by_kind[kind as usize]
    }
}

impl RopeContext<'_> {
    /// Reads the tables.
    pub(super) fn read(&self) -> Result<Ropes> {
        let old = self.config.object("rope_scaling")?;
        let parameters = match old {
            Some(scaling) => Some(scaling),
            None => self.config.object("rope_parameters")?,
        };
        let theta = self.config.positive("rope_theta")?;
        let nested = parameters.is_some_and(|p| LayerKind::ALL.iter().any(|kind| p.contains(kind.name())));
        let local_theta = self.config.positive("rope_local_base_freq")?;
        if !nested && self.family.local_rope_theta.is_none() {
            let table = self.table(parameters, theta.unwrap_or(self.family.rope_theta))?;
            return Ok(Ropes { tables: vec![table], by_kind: [0, 0] });
        }
        // Scaling in the flat spelling is for the layers with full attention only (Gemma 3).
        let (full, sliding) = match parameters {
            Some(p) if nested => (p.object(LayerKind::Full.name())?, p.object(LayerKind::Sliding.name())?),
            flat => (flat, None),
        };
        let local_theta = local_theta.or(self.family.local_rope_theta).or(theta);
        let full = self.table(full, theta.unwrap_or(self.family.rope_theta))?;
        let sliding = self.table(sliding, local_theta.unwrap_or(self.family.rope_theta))?;
        if full == sliding {
            return Ok(Ropes { tables: vec![full], by_kind: [0, 0] });
        }
        Ok(Ropes { tables: vec![full, sliding], by_kind: [0, 1] })
    }

    /// One table from its parameters, which may be absent.
    fn table(&self, parameters: Option<Fields<'_>>, theta: f64) -> Result<Rope> {
        let from = parameters.unwrap_or(self.config);
        let theta = match parameters {
            Some(p) => p.positive("rope_theta")?.unwrap_or(theta),
            None => theta,
        };
        let partial = match parameters {
            Some(p) => p.positive("partial_rotary_factor")?,
            None => None,
        };
        let partial = match partial {
            None => self.config.positive("partial_rotary_factor")?,
            some => some,
        };
        let rotary_dim = match partial {
            None | Some(1.0) => self.head_dim,
            Some(factor) if factor < 1.0 && self.family.architecture == Architecture::Phi3 => {
                // Truncated as Python's `int(head_dim * factor)` does.
                (self.head_dim as f64 * factor) as usize
            }
            Some(factor) => {
                let name = self.family.architecture.name();
                return Err(from.invalid("partial_rotary_factor", format!("is {factor}, which `{name}` does not have")));
            }
        };
        let scaling = match parameters {
            Some(p) => self.scaling(p)?,
            None => RopeScaling::None,
        };
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            let problem =
                format!("is {}, of which {rotary_dim} elements rotate, expected an even number", self.head_dim);
            return Err(self.config.invalid("head_dim", problem));
        }
        Rope::scaled(RopeLayout::Halves, theta, rotary_dim, &scaling)
            .map_err(|problem| self.config.invalid(from.name().unwrap_or("rope_theta"), problem))
    }

    fn scaling(&self, p: Fields<'_>) -> Result<RopeScaling> {
        let field = if p.value("rope_type").is_some() { "rope_type" } else { "type" };
        let kind = p.text(field)?.unwrap_or("default");
        let unsupported = |supported: &str| {
            Err(p.invalid(field, format!("is `{kind}`, which is not supported (supported: {supported})")))
        };
        if self.family.architecture == Architecture::Phi3 && kind != "default" {
            return unsupported("default");
        }
        Ok(match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: p.required_positive("factor")? },
            "llama3" => RopeScaling::Llama3 {
                factor: p.required_positive("factor")?,
                low_freq_factor: p.required_positive("low_freq_factor")?,
                high_freq_factor: p.required_positive("high_freq_factor")?,
                original_context: self.original_context(p)?,
            },
            "yarn" => RopeScaling::Yarn(self.yarn(p)?),
            _ => return unsupported("default, linear, llama3, yarn"),
        })
    }

    fn yarn(&self, p: Fields<'_>) -> Result<Yarn> {
        let original_context = self.original_context(p)?;
        let factor = p.positive("factor")?.unwrap_or(self.context_length as f64 / original_context);
        let attention_factor = match (p.number("attention_factor")?, p.number("mscale")?, p.number("mscale_all_dim")?) {
            (Some(given), _, _) => given,
            // Zero counts as absent, as in the original.
            (None, Some(mscale), Some(all_dim)) if mscale != 0.0 && all_dim != 0.0 => {
                yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim)
            }
            _ => yarn_magnitude(factor, 1.0),
        };
        Ok(Yarn {
            factor,
            original_context,
            beta_fast: p.number("beta_fast")?.filter(|&n| n != 0.0).unwrap_or(32.0),
            beta_slow: p.number("beta_slow")?.filter(|&n| n != 0.0).unwrap_or(1.0),
            truncate: p.flag("truncate")?.unwrap_or(true),
            attention_factor,
        })
    }

    /// Positions of the pretraining: beside the parameters, among them, or the model's own.
    fn original_context(&self, p: Fields<'_>) -> Result<f64> {
        const NAME: &str = "original_max_position_embeddings";
        let outer = self.config.size(NAME, limits::CONTEXT)?;
        let positions = match outer {
            None => p.size(NAME, limits::CONTEXT)?,
            some => some,
        };
        Ok(positions.unwrap_or(self.context_length) as f64)
    }
}
