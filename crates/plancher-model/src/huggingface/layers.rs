//! Which layers attend to a window and which have no rotary embedding: the per-layer patterns of
//! `config.json`, spelled differently by every architecture.

use crate::json::Fields;
use crate::{Architecture, Result, limits};

use super::families::Family;

/// How far a layer attends, in the words of `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// To all positions.
    Full,
    /// To a window.
    Sliding,
}

impl LayerKind {
    pub(super) const ALL: [Self; 2] = [Self::Full, Self::Sliding];

    /// The name in `layer_types`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }

    fn sliding_if(sliding: bool) -> Self {
        if sliding { Self::Sliding } else { Self::Full }
    }
}

/// The pattern over all layers.
pub(super) struct Pattern {
    pub(super) kinds: Vec<LayerKind>,
    /// Positions that layers of [`LayerKind::Sliding`] attend to.
    pub(super) window: Option<usize>,
    /// Whether each layer has rotary embedding.
    pub(super) rotary: Vec<bool>,
}

/// Reads the pattern of `n_layers` layers.
pub(super) fn read(config: Fields<'_>, family: &Family, n_layers: usize) -> Result<Pattern> {
    let rotary = match family.architecture {
        Architecture::SmolLm3 => rotary_layers(config, n_layers)?,
        _ => vec![true; n_layers],
    };
    let enabled = match family.architecture {
        Architecture::Llama => false,
        Architecture::Mistral | Architecture::Phi3 | Architecture::Gemma3 => true,
        Architecture::Qwen2 | Architecture::Qwen3 | Architecture::SmolLm3 => {
            config.flag("use_sliding_window")?.unwrap_or(false)
        }
    };
    // Only an absent field has a default: `null` means no window.
    let window = match config.size("sliding_window", limits::CONTEXT)? {
        None if !config.contains("sliding_window") => family.sliding_window,
        given => given,
    }
    .filter(|_| enabled);
    let kinds = match layer_types(config, n_layers)? {
        Some(kinds) => kinds,
        None => default_kinds(config, family.architecture, n_layers, &rotary)?,
    };
    Ok(Pattern { kinds, window, rotary })
}

/// `layer_types`, one word per layer.
fn layer_types(config: Fields<'_>, n_layers: usize) -> Result<Option<Vec<LayerKind>>> {
    let Some(list) = config.list("layer_types")? else { return Ok(None) };
    if list.len() != n_layers {
        let problem = format!("has {} entries, but `num_hidden_layers` is {n_layers}", list.len());
        return Err(config.invalid("layer_types", problem));
    }
    let kind = |value: &serde_json::Value| {
        LayerKind::ALL.into_iter().find(|kind| value.as_str() == Some(kind.name())).ok_or_else(|| {
            let problem = format!("has {value}, which is not supported (supported: full_attention, sliding_attention)");
            config.invalid("layer_types", problem)
        })
    };
    list.iter().map(kind).collect::<Result<_>>().map(Some)
}

/// What transformers assumes without `layer_types`.
fn default_kinds(
    config: Fields<'_>,
    architecture: Architecture,
    n_layers: usize,
    rotary: &[bool],
) -> Result<Vec<LayerKind>> {
    Ok(match architecture {
        Architecture::Llama => vec![LayerKind::Full; n_layers],
        Architecture::Mistral | Architecture::Phi3 => vec![LayerKind::Sliding; n_layers],
        Architecture::Qwen2 | Architecture::Qwen3 => {
            // Zero is usual here: every layer then has the window.
            let first = match config.value("max_window_layers") {
                None => 28,
                Some(value) => value.as_u64().ok_or_else(|| {
                    config.invalid("max_window_layers", format!("is {value}, expected a number of layers"))
                })?,
            };
            (0..n_layers).map(|i| LayerKind::sliding_if(i as u64 >= first)).collect()
        }
        Architecture::Gemma3 => {
            let pattern = match config.size("sliding_window_pattern", limits::LAYERS)? {
                None => config.size("_sliding_window_pattern", limits::LAYERS)?,
                given => given,
            };
            let pattern = pattern.unwrap_or(6);
            (1..=n_layers).map(|i| LayerKind::sliding_if(!i.is_multiple_of(pattern))).collect()
        }
        Architecture::SmolLm3 => rotary.iter().map(|&rotary| LayerKind::sliding_if(!rotary)).collect(),
    })
}

/// `no_rope_layers`, in which 1 says that the layer *has* rotary embedding, or `no_rope_layer_interval`.
fn rotary_layers(config: Fields<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let Some(list) = config.list("no_rope_layers")? else {
        let interval = config.size("no_rope_layer_interval", limits::LAYERS)?.unwrap_or(4);
        return Ok((1..=n_layers).map(|i| !i.is_multiple_of(interval)).collect());
    };
    if list.len() < n_layers {
        let problem = format!("has {} entries, but `num_hidden_layers` is {n_layers}", list.len());
        return Err(config.invalid("no_rope_layers", problem));
    }
    let rotary = |value: &serde_json::Value| match value.as_u64() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(config.invalid("no_rope_layers", format!("has {value}, expected 0 or 1"))),
    };
    list[..n_layers].iter().map(rotary).collect()
}
