//! Log-probabilities of the model's own distribution: of the raw logits, before penalty, temperature and truncation.

use plancher_cpu::kernels::Kernels;

use super::candidates::{self, Buffers, Candidate};

/// The log-probabilities beside a chosen token, natural logarithms.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TokenLogprobs {
    /// The chosen token.
    pub token: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely tokens with theirs, most likely first.
    pub top: Vec<(u32, f32)>,
}

/// `ln Σ exp(logits)`, in f64; minus infinity when no logit is a number.
#[must_use]
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    f64::from(max) + Kernels::best().sum_of_exponentials(logits, max).ln()
}

/// The log-probability of `token` and the `top` most likely ones.
///
/// # Panics
/// When `token` is not below `logits.len()`.
#[must_use]
pub fn logprobs(logits: &[f32], token: u32, top: usize) -> TokenLogprobs {
    let normalizer = log_sum_exp(logits);
    let logprob = |logit: f32| (f64::from(logit) - normalizer) as f32;
    let (mut maxima, mut best) = (Vec::new(), Vec::new());
    candidates::block_maxima(logits, &mut maxima);
    candidates::top_k(logits, &maxima, top, &mut Buffers::default(), &mut best);
    best.sort_unstable_by(Candidate::order);
    TokenLogprobs {
        token,
        logprob: logprob(logits[token as usize]),
        top: best.into_iter().map(|candidate| (candidate.token, logprob(candidate.logit))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_the_best_comes_first() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 / 100.0).collect();
        let got = logprobs(&logits, 3, 1000);
        let total: f64 = got.top.iter().map(|&(_, p)| f64::from(p).exp()).sum();
        assert!((total - 1.0).abs() < 1e-5, "{total}");
        assert!(got.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        let own = got.top.iter().find(|(token, _)| *token == 3).map(|&(_, p)| p);
        assert_eq!(own, Some(got.logprob));
    }

    #[test]
    fn two_equal_logits_have_half_each() {
        let got = logprobs(&[5.0, 5.0, f32::NEG_INFINITY], 1, 1);
        assert!((got.logprob - 0.5f32.ln()).abs() < 1e-6);
        assert_eq!(got.top[0].0, 0);
    }
}
