//! The arithmetic of a step in plain f32, shared by the reference and the interpreter. Loops are written so that the
//! compiler can use vector instructions: several sums at once, of fixed number.

use plancher_model::{Activation, Rope, RopeLayout};

/// Partial sums of a dot product.
const LANES: usize = 16;

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// `sum += factor * x`.
pub(crate) fn add_scaled(sum: &mut [f32], factor: f32, x: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

pub(crate) fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

pub(crate) fn add(sum: &mut [f32], x: &[f32]) {
    add_scaled(sum, 1.0, x);
}

/// `out = x / rms(x) * weight`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let factor = rms_factor(x, epsilon);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * weight;
    }
}

pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], epsilon: f32) {
    let factor = rms_factor(x, epsilon);
    for (x, weight) in x.iter_mut().zip(weight) {
        *x *= factor * weight;
    }
}

fn rms_factor(x: &[f32], epsilon: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + epsilon).sqrt()
}

/// Rotates one head for `position`.
pub(crate) fn rotate(head: &mut [f32], rope: &Rope, position: usize) {
    let half = rope.inverse_frequencies.len();
    for (pair, frequency) in rope.inverse_frequencies.iter().enumerate() {
        let (sine, cosine) = (position as f32 * frequency).sin_cos();
        let (sine, cosine) = (sine * rope.attention_factor, cosine * rope.attention_factor);
        let (i, j) = match rope.layout {
            RopeLayout::Halves => (pair, pair + half),
            RopeLayout::Interleaved => (2 * pair, 2 * pair + 1),
        };
        (head[i], head[j]) = (head[i] * cosine - head[j] * sine, head[j] * cosine + head[i] * sine);
    }
}

pub(crate) fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let sqrt_2_over_pi = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
            0.5 * x * (1.0 + (sqrt_2_over_pi * (x + 0.044_715 * x * x * x)).tanh())
        }
    }
}

/// The attention of one query over some positions, not yet divided by the sum of exponentials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SoftmaxState {
    /// The largest score; negative infinity over no positions.
    pub(crate) maximum: f32,
    /// Sum of `exp(score - maximum)`.
    pub(crate) sum: f32,
}

/// Attends to the given `(key, value)` pairs in two passes; `out` receives `Σ exp(score - maximum) value`. `scores` is
/// scratch.
pub(crate) fn attend<'a>(
    query: &[f32],
    pairs: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
    scale: f32,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) -> SoftmaxState {
    scores.clear();
    scores.extend(pairs.clone().map(|(key, _)| scale * dot(query, key)));
    let maximum = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    out.fill(0.0);
    let mut sum = 0.0;
    for (score, (_, value)) in scores.iter().zip(pairs) {
        let weight = (score - maximum).exp();
        sum += weight;
        add_scaled(out, weight, value);
    }
    SoftmaxState { maximum, sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_adds_every_element_once() {
        for n in [0, 1, 15, 16, 17, 63] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let ones = vec![1.0; n];
            assert_eq!(dot(&a, &ones) as usize, n * n.saturating_sub(1) / 2);
        }
    }

    #[test]
    fn rotation_by_zero_changes_nothing_and_a_quarter_turn_swaps() {
        let rope = |layout| Rope {
            layout,
            inverse_frequencies: vec![std::f32::consts::FRAC_PI_2, 0.0],
            attention_factor: 1.0,
        };
        let mut head = [1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut head, &rope(RopeLayout::Halves), 0);
        assert_eq!(head.map(|x| x as i32), [1, 2, 3, 4, 5]);
        rotate(&mut head, &rope(RopeLayout::Halves), 1);
        assert!((head[0] + 3.0).abs() < 1e-6 && (head[2] - 1.0).abs() < 1e-6, "elements 0 and 2 are a pair");
        let mut head = [1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut head, &rope(RopeLayout::Interleaved), 1);
        assert!((head[0] + 2.0).abs() < 1e-6 && (head[1] - 1.0).abs() < 1e-6, "elements 0 and 1 are a pair");
        assert_eq!(head.map(|x| x as i32)[2..], [3, 4, 5]);
    }
}
