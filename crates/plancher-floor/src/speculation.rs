//! Speculative decoding: how many tokens a verifying pass yields, and what it is worth.

use crate::error::Result;
use crate::pass::{Regime, Setting, floor};
use crate::{Class, FloorError, Hardware, ModelShape, Shard, Weight};

/// The longest draft that is taken for meant.
const MOST_DRAFT: u64 = 256;

/// How likely each drafted token is accepted, given that those before it were.
#[derive(Clone, Debug, PartialEq)]
pub enum Acceptance {
    /// The same at every position.
    Constant(f64),
    /// One for each position of the draft.
    Positions(Vec<f64>),
}

impl Acceptance {
    fn at(&self, position: usize) -> f64 {
        match self {
            Self::Constant(acceptance) => *acceptance,
            Self::Positions(list) => list[position],
        }
    }

    fn check(&self, k: u64) -> Result<()> {
        let values = match self {
            Self::Constant(acceptance) => std::slice::from_ref(acceptance),
            Self::Positions(list) if list.len() as u64 == k => list.as_slice(),
            Self::Positions(list) => {
                return Err(FloorError::invalid(
                    "acceptance",
                    format!("has {} values for a draft of `{k}`", list.len()),
                ));
            }
        };
        match values.iter().find(|value| !(0.0..=1.0).contains(*value)) {
            Some(value) => Err(FloorError::invalid("acceptance", format!("`{value}` is not between 0 and 1"))),
            None => Ok(()),
        }
    }
}

/// Expected tokens of a verifying pass: `(1 − a^(k+1)) / (1 − a)`, which is `k + 1` at `a = 1`; with a list, the sum of
/// the products of its beginnings.
///
/// # Errors
/// When an acceptance is not between 0 and 1, or a list has not `k` values.
pub fn tokens_per_pass(k: u64, acceptance: &Acceptance) -> Result<f64> {
    if k > MOST_DRAFT {
        return Err(FloorError::invalid("k", format!("`{k}` drafted tokens are more than {MOST_DRAFT}")));
    }
    acceptance.check(k)?;
    let (mut tokens, mut reached) = (1.0, 1.0);
    for position in 0..k as usize {
        reached *= acceptance.at(position);
        tokens += reached;
    }
    Ok(tokens)
}

/// What drafts.
#[derive(Clone, Debug, PartialEq)]
pub enum Draft {
    /// A smaller model.
    Model(Box<ModelShape>),
    /// The multi-token-prediction layer that the checkpoint carries, with the model's head.
    Mtp,
    /// One extra head a drafted token, each a residual block `hidden × hidden` and a projection onto the vocabulary
    /// (Cai et al. 2024, Medusa-1).
    Medusa,
    /// One decoder layer over features and embedding (`hidden × 2 hidden` in front), with the model's head (Li et al. 2024).
    Eagle,
}

impl Draft {
    /// The draft of that preset: `mtp`, `medusa`, `eagle`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "mtp" => Some(Self::Mtp),
            "medusa" => Some(Self::Medusa),
            "eagle" => Some(Self::Eagle),
            _ => None,
        }
    }

    /// The draft length that the method's own paper or release uses; `None` for a model.
    #[must_use]
    pub const fn usual_length(&self) -> Option<u64> {
        match self {
            Self::Model(_) => None,
            // DeepSeek-V3 has one prediction layer and drafts one token with it.
            Self::Mtp => Some(1),
            // Five heads (Medusa), a chain of five (EAGLE).
            Self::Medusa | Self::Eagle => Some(5),
        }
    }

    /// What one drafted token reads, as a model of its own.
    fn shape(&self, target: &ModelShape) -> Result<ModelShape> {
        let hidden = target.hidden_size;
        let head = || target.outside.iter().filter(|weight| weight.class == Class::Head).cloned();
        let Some(head_format) = head().next().map(|weight| weight.format) else {
            return Err(FloorError::invalid("draft", format!("`{}` has no head", target.name)));
        };
        let (name, layers, mut outside): (&str, Vec<_>, Vec<Weight>) = match self {
            Self::Model(model) => return Ok((**model).clone()),
            Self::Mtp => match &target.predictor {
                Some(layer) => ("mtp", vec![layer.clone()], Vec::new()),
                None => {
                    return Err(FloorError::invalid("draft", format!("`{}` has no prediction layer", target.name)));
                }
            },
            Self::Medusa => {
                ("medusa", Vec::new(), vec![Weight::matrix(Class::Mlp, hidden, hidden, head_format, Shard::Replicated)])
            }
            Self::Eagle => {
                let Some(mut layer) = target.layers.last().cloned() else {
                    return Err(FloorError::invalid("draft", format!("`{}` has no layers", target.name)));
                };
                layer.weights.push(Weight::matrix(
                    Class::AttentionWeights,
                    hidden,
                    2 * hidden,
                    head_format,
                    Shard::Replicated,
                ));
                ("eagle", vec![layer], Vec::new())
            }
        };
        outside.extend(head());
        Ok(ModelShape {
            name: format!("{name} of {}", target.name),
            layers,
            outside,
            predictor: None,
            notes: Vec::new(),
            ..target.clone()
        })
    }
}

/// What speculation yields at the floor.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculation {
    /// Drafted tokens.
    pub k: u64,
    /// Expected tokens a sequence and verifying pass.
    pub tokens_per_pass: f64,
    /// Floor of one draft pass over that of one decode pass: the c of the speed-up.
    pub draft_cost: f64,
    /// Floor of the verifying pass, `k + 1` positions, over that of one decode pass.
    pub verify_cost: f64,
    /// `tokens_per_pass / (k · draft_cost + verify_cost)`.
    pub speedup: f64,
    /// Floors in seconds: one decode pass, one draft pass, the verifying pass.
    pub seconds: (f64, f64, f64),
    /// Bytes that one draft pass reads.
    pub draft_bytes: u128,
    /// Tokens a second over all sequences.
    pub tokens_per_second: f64,
}

/// Speculation with drafts of `k` tokens on top of decoding `batch` sequences at `context`.
///
/// # Errors
/// When an acceptance is impossible, the target lacks what the draft needs, or those of [`floor`].
#[expect(clippy::too_many_arguments, reason = "a pass, a machine and a draft are what speculation is made of")]
pub fn speculation(
    target: &ModelShape,
    hardware: &Hardware,
    setting: Setting,
    batch: u64,
    context: u64,
    draft: &Draft,
    k: u64,
    acceptance: &Acceptance,
) -> Result<Speculation> {
    let tokens_per_pass = tokens_per_pass(k, acceptance)?;
    let decode = floor(target, hardware, Regime::decode(batch, context), setting)?.seconds();
    let draft_floor = floor(&draft.shape(target)?, hardware, Regime::decode(batch, context), setting)?;
    let verify = floor(target, hardware, Regime::Decode { batch, context, positions: k + 1 }, setting)?.seconds();
    let (draft_cost, verify_cost) = (draft_floor.seconds() / decode, verify / decode);
    let speedup = tokens_per_pass / (k as f64 * draft_cost + verify_cost);
    Ok(Speculation {
        k,
        tokens_per_pass,
        draft_cost,
        verify_cost,
        speedup,
        seconds: (decode, draft_floor.seconds(), verify),
        draft_bytes: draft_floor.bytes(),
        tokens_per_second: speedup * batch as f64 / decode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn tokens(k: u64, acceptance: f64) -> f64 {
        tokens_per_pass(k, &Acceptance::Constant(acceptance)).unwrap()
    }

    #[test]
    fn expected_tokens_follow_the_geometric_sum() {
        assert!((tokens(5, 0.7) - (1.0 - 0.7f64.powi(6)) / 0.3).abs() < 1e-12);
        assert_eq!(format!("{:.2}", tokens(5, 0.7)), "2.94");
        assert_eq!(tokens(5, 1.0).to_bits(), 6f64.to_bits());
        assert_eq!(tokens(5, 0.0).to_bits(), 1f64.to_bits());
        assert_eq!(tokens(0, 0.7).to_bits(), 1f64.to_bits());
    }

    #[test]
    fn a_list_gives_each_position_its_own_acceptance() {
        let list = Acceptance::Positions(vec![0.8, 0.5, 0.25]);
        assert!((tokens_per_pass(3, &list).unwrap() - (1.0 + 0.8 + 0.4 + 0.1)).abs() < 1e-12);
        let equal = Acceptance::Positions(vec![0.7; 5]);
        assert!((tokens_per_pass(5, &equal).unwrap() - tokens(5, 0.7)).abs() < 1e-12);
        assert!(tokens_per_pass(2, &list).unwrap_err().to_string().contains("3 values"));
    }

    #[test]
    fn impossible_acceptance_and_length_are_refused() {
        for acceptance in [1.1, -0.1, f64::NAN] {
            assert!(tokens_per_pass(5, &Acceptance::Constant(acceptance)).is_err());
        }
        assert!(tokens_per_pass(1 << 40, &Acceptance::Constant(0.5)).is_err());
    }

    fn of(draft: &Draft, target: &str, k: u64) -> Result<Speculation> {
        let target = presets::model(target).unwrap();
        let h200 = presets::hardware("h200").unwrap();
        let acceptance = Acceptance::Constant(0.7);
        speculation(&target, &h200, Setting::default(), 1, 1, draft, k, &acceptance)
    }

    #[test]
    fn a_1b_draft_for_an_8b_gives_1_61_not_2_5() {
        let draft = Draft::Model(Box::new(presets::model("llama-3.2-1b").unwrap()));
        assert_eq!(format!("{:.2}", of(&draft, "llama-3.1-8b", 5).unwrap().speedup), "1.61");
    }

    #[test]
    fn presets_cost_what_they_read() {
        let medusa = of(&Draft::Medusa, "llama-3.1-8b", 5).unwrap();
        assert_eq!(medusa.draft_bytes, 2 * (4096 * 4096 + 128_256 * 4096));
        let eagle = of(&Draft::Eagle, "llama-3.1-8b", 5).unwrap();
        let layer = (4096 + 1024) * 2 * 4096 + 3 * 14336 * 4096 + 2 * 4096;
        assert_eq!(eagle.draft_bytes, 2 * (layer + 2 * 4096 * 4096 + 128_256 * 4096) + 4096);
        // Two positions are routed to almost twice the experts: at batch 1 the verifying pass costs most of the gain.
        let mtp = of(&Draft::Mtp, "deepseek-v3", 1).unwrap();
        assert!(mtp.verify_cost > 1.5 && mtp.verify_cost < 1.6 && mtp.speedup < 1.1, "{mtp:?}");
        assert!(of(&Draft::Mtp, "llama-3.1-8b", 1).unwrap_err().to_string().contains("no prediction layer"));
    }
}
